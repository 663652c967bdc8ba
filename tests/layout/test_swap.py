from __future__ import annotations

import pytest

from agentload.errors import PlanError
from agentload.layout.plan import plan
from agentload.model.plan import Design, Plan
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.replay.stretches import stretches, where

SESSIONS = tuple(
    Session(session=f"s{i}", workload="w", start_s=float(i), turns=(Turn(add=(Segment(role="user", tokens=3, key=f"{i}"),), output=1),))
    for i in range(8)
)
TRACE = Trace(header=Header(name="t"), sessions=SESSIONS)


def swapped(design: Design = "parallel", *, pairs: int = 4, warmup: bool = False, began: int | None = None) -> Plan:
    machines = ("m1", "m2")
    return plan(TRACE, ("a", "b"), run="r", pairs=pairs, design=design, machines=machines, swap=True, warmup=warmup, blocks=began)


@pytest.mark.parametrize("design", ["parallel", "interleaved"])
def test_arms_change_machines_half_way_and_no_pair_is_torn(design: Design) -> None:
    before, after = stretches(swapped(design).rounds)
    assert (where(before), where(after)) == ({"a": "m1", "b": "m2"}, {"a": "m2", "b": "m1"})
    assert [{play.pair for each in stretch for play in each.plays} for stretch in (before, after)] == [{0, 1}, {2, 3}]


def test_a_swapped_run_grows_by_whole_runs_of_it_and_begins_where_its_servers_are() -> None:
    """What was played stays, the first new pairs need no exchange, and each machine has had each arm as often as the other."""
    first, grown = swapped("interleaved"), swapped("interleaved", pairs=12, began=4)
    assert grown.rounds[: len(first.rounds)] == first.rounds
    stays = [({play.pair for each in stretch for play in each.plays}, where(stretch)["a"]) for stretch in stretches(grown.rounds)]
    assert stays == [({0, 1}, "m1"), ({2, 3, 4, 5}, "m2"), ({6, 7, 8, 9}, "m1"), ({10, 11}, "m2")]
    with pytest.raises(PlanError, match="as many pairs on each machine, and began with 4, got 6") as caught:
        swapped(pairs=6, began=4)
    assert caught.value.hint == "--pairs 8"


def test_no_two_arms_are_ever_on_one_machine() -> None:
    for round_ in swapped().rounds:
        machines = [play.machine for play in round_.plays]
        assert len(set(machines)) == len(machines) == 2


def test_a_server_that_was_moved_is_warmed_up_again_under_a_salt_of_its_own() -> None:
    warmed = [(play.machine, play.arm, play.salt) for r in swapped(warmup=True).rounds for play in r.plays if play.warmup]
    assert warmed == [("m1", "a", "r/-1"), ("m2", "b", "r/-1"), ("m2", "a", "r/-2"), ("m1", "b", "r/-2")]


def test_a_plan_without_a_swap_is_one_stretch() -> None:
    still = plan(TRACE, ("a", "b"), run="r", pairs=4, design="parallel", machines=("m1", "m2"))
    assert [where(stretch) for stretch in stretches(still.rounds)] == [{"a": "m1", "b": "m2"}]
    unnamed = plan(TRACE, ("a", "b"), run="r", pairs=4)
    assert [where(stretch) for stretch in stretches(unnamed.rounds)] == [{"a": None, "b": None}]


@pytest.mark.parametrize(
    ("arms", "machines", "pairs", "design", "says"),
    [
        (("a", "b", "c"), ("m1", "m2", "m3"), 4, "parallel", "exchanges two arms, got 3"),
        (("a", "b"), ("m1", "m1"), 4, "parallel", "a machine of its own"),
        (("a", "b"), (), 4, "parallel", "got none"),
        (("a", "b"), ("m1", "m2"), 5, "parallel", "as many pairs on each machine, got 5"),
        (("a", "b"), ("m1", "m2"), 4, "sequential", "side by side"),
    ],
)
def test_what_one_change_cannot_balance_is_refused(
    arms: tuple[str, ...], machines: tuple[str, ...], pairs: int, design: Design, says: str
) -> None:
    with pytest.raises(PlanError, match=says):
        plan(TRACE, arms, run="r", pairs=pairs, design=design, machines=machines, swap=True)
