"""What turns waited for most is named from planted figures, each kind once."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.evidence import Calls, ClientHealth, Phase, Telemetry
from agentload.report.sections.bottleneck import bottleneck


def calls(ttft_ms: float, turn_ms: float, *, ok: bool = True) -> Calls:
    ones = np.ones(4)
    whole = np.arange(4)
    return Calls(
        restart=whole * 0,
        pair=whole,
        block=whole,
        session=whole,
        turn=whole,
        start_s=ones,
        ok=np.full(4, ok),
        ttft_ms=ones * ttft_ms,
        tpot_ms=ones,
        turn_ms=ones * turn_ms,
        prompt_tokens=ones,
        output_tokens=ones,
    )


def queue(mean_ms: float) -> Telemetry:
    phases = (
        Phase(name="queue", mean_ms=mean_ms, count=9),
        Phase(name="answer", mean_ms=1000.0, count=9),
    )
    return Telemetry(phases=phases)


@pytest.mark.parametrize(
    ("ttft_ms", "server", "lag_ms", "said"),
    [
        (100.0, None, None, "bandwidth, 90% decoding"),
        (700.0, queue(100.0), 1.0, "compute, 70% prefill"),
        (700.0, queue(300.0), 1.0, "queue, 30% waiting"),
        (700.0, Telemetry(preemptions=3.0), 1.0, "KV pool, 0.75 preemptions a turn"),
        (100.0, Telemetry(pool_filled_share=0.91), 1.0, "KV pool, full 91%"),
        (100.0, Telemetry(pool_filled_share=0.4), 1.0, "bandwidth, 90% decoding"),
        (100.0, Telemetry(preemptions=3.0), 11.0, "client, 11 ms late"),
        (100.0, Telemetry(preemptions=0.04), 9.0, "bandwidth, 90% decoding"),
    ],
)
def test_each_bottleneck_is_named_with_its_evidence(
    ttft_ms: float, server: Telemetry | None, lag_ms: float | None, said: str
) -> None:
    health = None if lag_ms is None else ClientHealth(send_lag_p99_ms=lag_ms)
    assert bottleneck([calls(ttft_ms, 1000.0)], server, health) == said


def test_without_a_turn_that_ended_well_nothing_is_said() -> None:
    assert bottleneck([], None, None) is None
    assert bottleneck([calls(1.0, 2.0, ok=False)], None, None) is None
