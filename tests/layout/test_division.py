from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.intake import intake
from agentload.errors import PlanError
from agentload.layout.blocks import dependency_groups
from agentload.layout.division import check, divide
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop, Plan, PlannedBurst, Recorded
from agentload.model.trace import Session, TurnRef
from tests.layout.test_plan import session, trace


def many(count: int, *, every: int = 3) -> tuple[Session, ...]:
    """Sessions of which every third spawns the one
    behind it, and every fifth waits for an earlier one.
    """
    found: list[Session] = []
    for number in range(count):
        spawns = number % every == 0 and number + 1 < count
        is_spawned = number % every == 1
        after = (TurnRef(session=f"s{number - 4}", turn=0),) if number % 20 == 5 else ()
        start_s = None if is_spawned else float(number)
        found.append(
            session(
                f"s{number}",
                start_s=start_s,
                spawn=(f"s{number + 1}",) if spawns else (),
                after=after,
            )
        )
    return tuple(found)


def names(sessions: Iterable[Session]) -> list[str]:
    return [each.session for each in sessions]


def starts(made: Plan) -> dict[str, int | None]:
    (block,) = made.blocks
    return {each.session: at_ns for each, at_ns in intake(made, block, started_ns=0).take(10**15)}


@given(st.integers(40, 90), st.integers(1, 4), st.integers(1, 2))
def test_every_session_is_in_one_share_and_with_it_all_that_it_needs(
    count: int, shares: int, pairs: int
) -> None:
    whole = plan(trace(*many(count)), ("a", "b"), run="r", scheme=Scheme(pairs=pairs))
    made = divide(whole, shares)
    for place, block in enumerate(whole.blocks):
        parts = [share.blocks[place] for share in made]
        assert Counter(name for part in parts for name in names(part.sessions)) == Counter(
            names(block.sessions)
        )
        for family in dependency_groups(block.sessions):
            homes = [
                number
                for number, part in enumerate(parts)
                if {*names(family)} & {*names(part.sessions)}
            ]
            assert len(homes) == 1
        assert len({part.lead_ns for part in parts}) == 1
    assert {(share.run, share.rounds, share.arms, share.seed) for share in made} == {
        (whole.run, whole.rounds, whole.arms, whole.seed)
    }


@pytest.mark.parametrize(
    "arrivals",
    [
        OpenLoop(rate_per_s=2.0),
        OpenLoop(
            rate_per_s=0.5, cv=3.0, ramp_s=4.0, burst=PlannedBurst(factor=4, seconds=1, every_s=5)
        ),
        Recorded(speed=2.0),
    ],
)
def test_sessions_start_when_one_dispatcher_would_start_them(arrivals: OpenLoop | Recorded) -> None:
    whole = plan(
        trace(*many(40)),
        ("a",),
        run="r",
        scheme=Scheme(pairs=1),
        seed=4,
        load=Load(arrivals=arrivals),
    )
    found: dict[str, int | None] = {}
    for share in divide(whole, 3):
        found |= starts(share)
    assert found == starts(whole)


def test_the_first_sessions_of_a_closed_loop_are_those_of_one_dispatcher() -> None:
    whole = plan(
        trace(*(session(f"s{number}") for number in range(20))),
        ("a",),
        run="r",
        scheme=Scheme(pairs=1),
        load=Load(arrivals=ClosedLoop(sessions=7)),
    )
    made = divide(whole, 3)
    loops = [share.load.arrivals for share in made]
    assert loops == [ClosedLoop(sessions=each) for each in (3, 2, 2)]
    begun = [
        names(share.blocks[0].sessions)[: loop.sessions]
        for share, loop in zip(made, loops, strict=True)
        if isinstance(loop, ClosedLoop)
    ]
    assert sorted(name for part in begun for name in part) == sorted(
        f"s{number}" for number in range(7)
    )


def test_caps_and_budgets_are_divided_and_a_duration_holds_for_all() -> None:
    load = Load(max_in_flight=8, budget=Budget(calls=10, tokens=1_000, seconds=60.0))
    made = divide(plan(trace(*many(30)), ("a",), run="r", scheme=Scheme(pairs=1), load=load), 3)
    assert [share.load.max_in_flight for share in made] == [3, 3, 2]
    assert [share.load.budget for share in made] == [
        Budget(calls=4, tokens=334, seconds=60.0),
        Budget(calls=3, tokens=333, seconds=60.0),
        Budget(calls=3, tokens=333, seconds=60.0),
    ]


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(arrivals=ClosedLoop(sessions=2)), "--sessions 2 cannot be divided over 3 nodes"),
        (Load(max_in_flight=1), "--max-in-flight 1 cannot be divided over 3 nodes"),
        (Load(budget=Budget(calls=2)), "--max-calls 2 cannot be divided over 3 nodes"),
    ],
)
def test_a_load_with_less_than_one_for_each_node_is_refused(load: Load, said: str) -> None:
    made = plan(trace(*many(30)), ("a",), run="r", scheme=Scheme(pairs=1), load=load)
    for act in (check, divide):
        with pytest.raises(PlanError, match=said):
            act(made, 3)


def test_sessions_that_wait_for_each_other_are_not_torn_apart_and_the_reason_is_said() -> None:
    waiting = tuple(
        session(f"s{number}", after=(TurnRef(session="s0", turn=-1),) if number else ())
        for number in range(6)
    )
    with pytest.raises(
        PlanError,
        match=r"its sessions are 1 family, because sessions wait for each other \(turn 0 of s1 is "
        r"after s0\)",
    ):
        divide(plan(trace(*waiting), ("a",), run="r", scheme=Scheme(pairs=1)), 2)
