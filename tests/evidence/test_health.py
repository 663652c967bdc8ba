from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest

from agentload.evidence.gather import gather
from agentload.evidence.health import notes
from tests.evidence.runs import call, pair_of_blocks, stored


@pytest.mark.parametrize(
    ("refused", "share"),
    [
        ({"http_status": 429}, 0.5),
        ({"http_status": 200, "error": "429 rate_limit_error: slow down"}, 0.5),  # in the stream
        ({"http_status": 200, "error": "503 Service Unavailable: the queue is full"}, 0.0),
    ],
)
def test_the_share_of_attempts_answered_429_is_known(
    tmp_path: Path, refused: dict[str, Any], share: float
) -> None:
    again = call("fp8", 0, 202, turn=1, status="busy", **refused)
    with stored(tmp_path, [*pair_of_blocks(), again]) as connection:
        found = gather(connection, "r1")
    assert {health.arm: health.limited_share for health in found.health} == {
        "bf16": 0.0,
        "fp8": share,
    }


def rows(
    *, held_ms: float = 0.0, every: int = 5, scatter: float = 0.05, prompts: float = 1.0
) -> pl.DataFrame:
    """Two arms that play the same sixty calls; of the second's, one in so many is held back."""
    rng = Random(1)
    return pl.DataFrame(
        [
            {
                "workload": "chat",
                "arm": arm,
                "pair": 0,
                "session": turn // 6,
                "turn": turn % 6,
                "status": "ok",
                "ttft_ms": 200 * rng.uniform(0.8, 1.2)
                + (
                    held_ms * rng.uniform(1 - scatter, 1 + scatter)
                    if arm == "b" and not turn % every
                    else 0
                ),
                "prompt_tokens": round(1000 * prompts),
                "context_tokens": 1000,
            }
            for turn in range(60)
            for arm in ("a", "b")
        ]
    )


def test_retries_that_a_gateway_does_not_tell_of_are_seen_in_calls_held_back_by_one_time() -> None:
    (said,) = notes((), rows(held_ms=1500))
    assert said.startswith(
        "b: the first token of 12 of 60 calls came about 1.5 s later than on another arm, "
        "each time by as much"
    )


def test_calls_that_are_late_by_many_different_times_are_a_queue_and_no_retry() -> None:
    assert notes((), rows(held_ms=1500, scatter=0.9)) == ()
    assert notes((), rows()) == ()
    assert notes((), rows(held_ms=1500, every=1)) == ()  # all of them: the arm is slow


def test_a_count_of_twice_the_prompt_is_no_matter_of_the_tokenizer() -> None:
    assert all(
        "its usage disagrees with what was sent" in each for each in notes((), rows(prompts=2.0))
    )
    assert all(
        "give the served model's own tokenizer" in each for each in notes((), rows(prompts=1.1))
    )
