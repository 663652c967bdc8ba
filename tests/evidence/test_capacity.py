"""What searches for concurrency left beside a run, as the advisor reads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from advisor.evidence import CapacityPoint
from agentload.evidence.capacity import Held, capacity, held, next_search
from agentload.model.rows import ProbeRow
from tests.evidence.runs import stored

CLASSES = ("chat", "rag")


def step(agents: int, *, at_ns: int = 5, arm: str = "bf16", classes: Sequence[str] = CLASSES, void: bool = False, **seen: Any) -> ProbeRow:
    unseen = dict.fromkeys(("trouble", "peak_kv_usage", "preemptions", "found_again"))
    detail = {"turns": 100, "within": 99, "minutes": 2.0, "hit_rate": 0.5, "output_tokens_per_s": 800.0, **unseen, **seen}
    return ProbeRow(
        run_id="r1",
        arm=arm,
        at_ns=at_ns,
        probe="capacity",
        settings=json.dumps({"agents": agents, "classes": classes}),
        outcome="void" if void else "ok",
        detail=json.dumps(detail),
    )


def point(agents: int, **changed: Any) -> CapacityPoint:
    seen = {"turns": 100, "within_slo": 99, "minutes": 2.0, "hit_rate": 0.5, "output_tokens_per_s": 800.0, **changed}
    return CapacityPoint(arm="bf16", agents=agents, **seen)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step(4)], [Held(arm="bf16", workload=None, holds=4, breaks=None)]),
        ([step(4, within=40)], [Held(arm="bf16", workload=None, holds=None, breaks=4)]),
        ([step(4), step(8, void=True)], [Held(arm="bf16", workload=None, holds=4, breaks=None)]),
        ([step(4), step(2, at_ns=6)], [Held(arm="bf16", workload=None, holds=2, breaks=None)]),  # the search was made again
        (
            [step(4), step(2, at_ns=6, classes=("rag",)), step(3, at_ns=7, arm="fp8", classes=())],
            [
                Held(arm="bf16", workload="rag", holds=2, breaks=None),
                Held(arm="bf16", workload=None, holds=4, breaks=None),
                Held(arm="fp8", workload=None, holds=3, breaks=None),
            ],
        ),
        ([step(4, classes=("chat", "rag", "code"))], [Held(arm="bf16", workload=None, holds=4, breaks=None)]),
    ],
)
def test_the_last_search_of_each_arm_and_class_says_what_holds_and_what_breaks(
    tmp_path: Path, steps: list[ProbeRow], expected: list[Held]
) -> None:
    with stored(tmp_path, steps) as connection:
        assert sorted(held(connection, "r1", CLASSES), key=lambda each: (each.arm, each.workload or "~")) == expected


def test_a_search_holds_what_the_fit_through_its_trials_says_at_its_own_share(tmp_path: Path) -> None:
    trials = [step(agents, within=within) for agents, within in ((4, 99), (8, 99), (10, 97), (11, 96), (12, 92), (16, 40))]
    with stored(tmp_path, trials) as connection:
        (found,) = held(connection, "r1", CLASSES)
    assert found.holds is not None
    assert found.breaks is not None
    assert 8 <= found.holds < 12 <= found.breaks <= 16


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ({}, {"pool_filled": None}),
        ({"peak_kv_usage": 0.94}, {"pool_filled": False}),
        ({"peak_kv_usage": 0.95}, {"pool_filled": True}),
        ({"peak_kv_usage": 0.1, "preemptions": 1.0}, {"pool_filled": True, "preemptions": 1.0}),
        ({"peak_kv_usage": 0.1, "preemptions": 0.0}, {"pool_filled": False, "preemptions": 0.0}),
        ({"found_again": 0.89}, {"pool_filled": False}),
        ({"found_again": 0.87}, {"pool_filled": True}),  # contexts that the step with 0.9 still found were evicted
        ({"trouble": "preempted"}, {"trouble": "preempted"}),
        ({"trouble": "slo"}, {"trouble": None}),  # the share of turns says it
        ({"trouble": "errors"}, {"trouble": None}),
        ({"within": 7, "turns": 9}, {"within_slo": 7, "turns": 9}),
    ],
)
def test_a_step_is_a_point_with_a_full_pool_where_pages_preemptions_or_lost_contexts_say_so(
    tmp_path: Path, seen: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = step(4, found_again=0.9) if "found_again" in seen else step(4, peak_kv_usage=0.5)
    with stored(tmp_path, [before, step(8, **seen)]) as connection:
        assert capacity(connection, "r1", ["bf16"], CLASSES) == (point(4, pool_filled=False), point(8, **expected))
        assert capacity(connection, "r1", ["fp8"], CLASSES) == ()


def test_a_search_without_a_date_is_numbered_behind_all_others(tmp_path: Path) -> None:
    with stored(tmp_path, [step(4, at_ns=7), step(8, at_ns=3)]) as connection:
        assert (next_search(connection, "r1"), next_search(connection, "r2")) == (8, 0)
