from __future__ import annotations

import pytest

from agentload.errors import PlanError
from agentload.layout.plan import plan, starts_of, with_starts
from agentload.layout.traces import sweep
from agentload.model.plan import Plan


def made(pairs: int) -> Plan:
    return plan(sweep((64, 128), pairs=pairs, output=1, seed=0), ("a", "b", "c"), run="r", pairs=pairs)


def rounds(found: Plan) -> list[tuple[int | None, str, int]]:
    return [(round_.start, play.arm, play.pair) for round_ in found.rounds for play in round_.plays]


def test_each_pair_has_a_start_of_each_server_in_the_order_that_was_drawn() -> None:
    before = made(4)
    found = with_starts(before)
    assert [(arm, pair) for _, arm, pair in rounds(found)] == [(arm, pair) for _, arm, pair in rounds(before)]
    assert [start for start, _, _ in rounds(found)] == list(range(12))
    assert [round_.index for round_ in found.rounds] == list(range(12))
    assert (starts_of(before), starts_of(found)) == (0, 12)


def test_pairs_that_share_a_start_are_played_together_and_the_next_start_mirrors_the_order() -> None:
    found = rounds(with_starts(made(5), 2))
    first = [arm for _, arm, _ in found[:9:3]]
    assert found == [
        *[(start, arm, pair) for start, arm in enumerate(first) for pair in (0, 1, 2)],
        *[(start + 3, arm, pair) for start, arm in enumerate(reversed(first)) for pair in (3, 4)],
    ]


def test_what_cannot_be_divided_is_told() -> None:
    for restarts in (0, 4):
        with pytest.raises(PlanError, match="3 pairs cannot be divided"):
            with_starts(made(3), restarts)
    trace = sweep((64,), pairs=2, output=1, seed=0)
    for other in (
        plan(trace, ("a", "b"), run="r", pairs=2, warmup=True),
        plan(trace, ("a", "b"), run="r", pairs=2, design="parallel"),
    ):
        with pytest.raises(PlanError, match="interleaved and without a warm-up"):
            with_starts(other)


def test_servers_that_are_started_in_turn_cannot_change_machines() -> None:
    trace = sweep((64,), pairs=4, output=1, seed=0)
    swapped = plan(trace, ("a", "b"), run="r", pairs=4, machines=("m1", "m2"), swap=True)
    with pytest.raises(PlanError, match="--swap needs servers that run all the time"):
        with_starts(swapped)
