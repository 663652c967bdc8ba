"""The published load test: 150 requests from 8 clients,
lengths within 15% of 20,000 tokens in and 2,000 out.

Its request list was recovered: generated with numpy's seed 0 as `vllm bench
serve --dataset-name random --random-range-ratio 0.15` does, it alone gives the
published products of throughput and duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agentload.emulator.calls import EngineRequest, Finished, FirstToken
from agentload.emulator.engine import Engine
from agentload.model.profile import ArmProfile

S = 10**9


def _recovered() -> tuple[tuple[int, int], ...]:
    rng = np.random.default_rng(0)
    prompts, outputs = rng.integers(17_000, 23_001, 150), rng.integers(1_700, 2_301, 150)
    return tuple(zip(prompts.tolist(), outputs.tolist(), strict=True))


LOAD_TEST = _recovered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a closed loop came to: medians, and totals."""

    ttft_ms: float
    itl_ms: float
    duration_s: float
    output_tok_s: float


def closed_loop(of: ArmProfile, lengths: Sequence[tuple[int, int]], clients: int) -> Measured:
    """Let clients send one request after the other until all are done."""
    engine = Engine(of)
    sent: dict[str, int] = {}
    ttft, gaps = [], []
    last = 0
    todo = iter(enumerate(lengths))

    def send(at_ns: int) -> None:
        index, (prompt, output) = next(todo, (-1, (0, 0)))
        if index >= 0:
            sent[str(index)] = at_ns
            engine.submit(EngineRequest(str(index), ((f"p{index}", prompt),), output), at_ns)

    for _ in range(clients):
        send(0)
    while (at := engine.next_ns()) is not None:
        for event in engine.advance(at):
            if isinstance(event, FirstToken):
                ttft.append(event.at_ns - sent[event.id])
            elif isinstance(event, Finished):
                gaps.append(np.diff(event.token_ns))
                last = event.at_ns
                send(last)
    return Measured(
        ttft_ms=float(np.median(ttft)) / 1e6,
        itl_ms=float(np.median(np.concatenate(gaps))) / 1e6,
        duration_s=last / S,
        output_tok_s=sum(output for _, output in lengths) * S / last,
    )
