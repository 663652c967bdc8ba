"""Whether a machine can measure follows from what was seen of it and what is asked of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.model.client import AskedLoad, ClientLook, Verdict, readiness

IDLE = ClientLook(
    cores=2, timer_p50_ms=0.2, timer_p99_ms=1.0, taken_share=0.02, steal_share=0.0, load=0.3
)
FEW = AskedLoad(streams=8, chunks_per_s=400)


@pytest.mark.parametrize(
    ("look", "verdict"),
    [
        (IDLE, "ok"),
        (replace(IDLE, steal_share=None, load=None), "ok"),
        (replace(IDLE, timer_p99_ms=4.0), "doubtful"),
        (replace(IDLE, taken_share=0.5, load=2.4), "doubtful"),
        (replace(IDLE, steal_share=0.2), "doubtful"),
        (replace(IDLE, timer_p50_ms=6.0, timer_p99_ms=40.0), "cannot"),
        (replace(IDLE, cores=1, taken_share=0.9), "cannot"),
        (replace(IDLE, cores=16, taken_share=0.2), "ok"),
    ],
)
def test_timers_and_cores_say_whether_a_machine_can_measure(
    look: ClientLook, verdict: Verdict
) -> None:
    found = readiness(look, FEW)
    assert found.verdict == verdict
    assert (found.cure is None) == (verdict == "ok")


@pytest.mark.parametrize(
    ("streams", "workers", "cores", "says"),
    [
        (8, 1, 2, None),
        (256, 1, 2, None),
        (1000, 1, 2, "--workers 2"),
        (1000, 2, 2, None),
        (4000, 1, 8, "--workers 5"),
        (4000, 1, 2, "lower the number of sessions or the rate"),
    ],
)
def test_a_load_is_doubtful_where_one_process_cannot_read_its_chunks(
    streams: int, workers: int, cores: int, says: str | None
) -> None:
    asked = AskedLoad(streams=streams, chunks_per_s=50 * streams, workers=workers)
    found = readiness(replace(IDLE, cores=cores), asked)
    assert found.verdict == ("ok" if says is None else "doubtful")
    assert found.cure == says


def test_a_busy_machine_is_told_what_takes_its_cores() -> None:
    busy = replace(IDLE, taken_share=0.52, timer_p99_ms=4.2, load=3.9)
    found = readiness(busy, replace(FEW, has_emulated=True))
    assert found.seen == "timers fire 4.2 ms late (p99), other programs take 52% of 2 cores"
    assert found.cure == (
        "stop what else runs here (3.9 processes want 2 cores), or measure from another machine; "
        "emulated servers share its cores, so ask for fewer sessions"
    )
