from __future__ import annotations

import pytest

from tests.emulator.arms import shipped
from tests.emulator.closed_loop import LOAD_TEST, closed_loop

ROWS = [
    ("llama-3.1-8b-h100", "bf16"),
    ("llama-3.1-8b-h100", "fp8"),
    ("gpt-oss-20b-h100", "bf16"),
    ("gpt-oss-20b-h100", "fp8"),
    ("gpt-oss-20b-h100", "fp8-skip-sw"),
]


@pytest.mark.parametrize(("profile", "name"), ROWS)
def test_the_published_load_test_is_reproduced_within_three_percent(
    profile: str, name: str
) -> None:
    arm = shipped(profile, name)
    (published,) = arm.load_tests
    measured = closed_loop(arm, LOAD_TEST, published.concurrency)
    assert (
        measured.ttft_ms,
        measured.itl_ms,
        measured.output_tok_s,
        measured.duration_s,
    ) == pytest.approx(
        (published.ttft_ms, published.itl_ms, published.output_tok_s, published.duration_s),
        rel=0.03,
    )


def throughput(profile: str, name: str) -> float:
    return closed_loop(shipped(profile, name), LOAD_TEST, 8).output_tok_s


@pytest.mark.parametrize(
    ("profile", "name", "gain", "points"),
    [("llama-3.1-8b-h100", "fp8", 14.9, 1.5), ("gpt-oss-20b-h100", "fp8-skip-sw", 4.8, 1.0)],
)
def test_the_published_gains_of_fp8_under_load_are_reproduced(
    profile: str, name: str, gain: float, points: float
) -> None:
    assert 100 * (throughput(profile, name) / throughput(profile, "bf16") - 1) == pytest.approx(
        gain, abs=points
    )
