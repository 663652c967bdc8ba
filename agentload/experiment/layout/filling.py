"""How long a load takes to fill a KV pool: until as many tokens as it holds have been written.

A server keeps what it has computed until it needs the room, so a pool is full once its number of tokens was written, whoever reads them
later. Then, and not before, its size decides what is found again.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

from agentload.experiment.layout.cost import turn_seconds
from agentload.model.plan import ClosedLoop, Load
from agentload.model.trace import Session, Trace


def fill_s(trace: Trace, load: Load, pool_tokens: float) -> float | None:
    """Say when a trace in a closed loop has filled a pool, at the speeds that `cost` assumes; None: its sessions never do."""
    assert isinstance(load.arrivals, ClosedLoop)
    queue, told, written = iter(trace.sessions), set[str](), 0
    for at_s, tokens in merge(*(_slot(trace, load, queue, told) for _ in range(load.arrivals.sessions))):
        written += tokens
        if written >= pool_tokens:
            return at_s
    return None


def _slot(trace: Trace, load: Load, queue: Iterator[Session], told: set[str]) -> Iterator[tuple[float, int]]:
    """Yield when each call of one session after the other ends, and how many tokens it wrote; a shared prefix is written once."""
    at_s = 0.0
    for session in queue:
        name = session.prefix or ""
        new = 0 if name in told else sum(segment.tokens for segment in trace.header.prefixes.get(name, ()))
        told.add(name)
        for turn in session.turns:
            at_s += turn_seconds(load, turn)
            yield at_s, new + sum(segment.tokens for segment in turn.add) + turn.output
            new = 0
