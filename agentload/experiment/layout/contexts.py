"""Lay out a context sweep: calls of growing length, one at a time, each length once a pair in an order that is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.trace import Header, Segment, Session, Trace, Turn

SMALLEST: Final = 64


def sweep(contexts: Sequence[int], *, pairs: int, output: int, seed: int) -> Trace:
    """Return a trace whose blocks are one call for each length; no two calls share a token beyond the template's."""
    rng = Random(seed)
    sessions: list[Session] = []
    for pair in range(pairs):
        order = sorted(contexts, key=lambda _: rng.random())
        for context in order:
            name = f"{pair}.{context}"
            turn = Turn(add=(Segment(role="user", tokens=context, key=name),), output=output)
            sessions.append(Session(session=name, workload=CONTEXT_SWEEP, start_s=float(len(sessions)), turns=(turn,)))
    return Trace(header=Header(name=CONTEXT_SWEEP, seed=seed), sessions=tuple(sessions))
