"""When turns are sent and answered at the nominal speed."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given

from agentload.layout.timeline import TurnTiming, lasts_s, seconds_of, timeline
from agentload.model.plan import Load, WaitScale
from agentload.model.trace import Segment, Session, Turn, TurnRef
from tests.layout.family_draws import LOAD, drawn_families

Family = tuple[Session, ...]


def ask(*, output: int = 50, tokens: int = 0, **more: object) -> Turn:
    add = (Segment(role="user", tokens=tokens, key="k"),) if tokens else ()
    return Turn(add=add, output=output, **more)  # type: ignore[arg-type]  # as the case says


def session(name: str, *turns: Turn, start_s: float | None = 0.0) -> Session:
    return Session(session=name, workload="w", turns=turns, start_s=start_s)


@pytest.mark.parametrize(
    ("turns", "load", "expected"),
    [
        ((ask(),), Load(), [TurnTiming(0.0, 1.0)]),
        ((ask(tokens=10_000),), Load(), [TurnTiming(0.0, 2.0)]),
        (
            (ask(), ask(wait="user", wait_s=4.0)),
            Load(),
            [TurnTiming(0.0, 1.0), TurnTiming(5.0, 6.0)],
        ),
        (
            (ask(), ask(wait="user", wait_s=4.0)),
            Load(waits={"user": WaitScale(cap_s=2.0)}),
            [TurnTiming(0.0, 1.0), TurnTiming(3.0, 4.0)],
        ),
        (
            (ask(), ask(wait="user", wait_s=4.0)),
            Load(waits={"user": WaitScale(scale=0.5)}),
            [TurnTiming(0.0, 1.0), TurnTiming(3.0, 4.0)],
        ),
    ],
)
def test_a_turn_waits_reads_and_answers(
    turns: tuple[Turn, ...], load: Load, expected: list[TurnTiming]
) -> None:
    assert list(timeline([session("s", *turns)], load)["s"]) == expected


def test_a_join_waits_for_the_last_of_those_it_names() -> None:
    both = (TurnRef(session="a", turn=-1), TurnRef(session="b", turn=0))
    family = [
        session("p", ask(spawn=("a", "b")), ask(after=both)),
        session("a", ask(), ask(), start_s=None),
        session("b", ask(output=200), ask(), start_s=None),
    ]
    found = timeline(family, Load())
    assert found["p"] == (TurnTiming(0.0, 1.0), TurnTiming(5.0, 6.0))
    assert found["b"] == (TurnTiming(1.0, 5.0), TurnTiming(5.0, 6.0))
    assert lasts_s(family, timeline(family, Load())) == 6.0


def test_what_nobody_starts_has_no_timings_and_what_others_do_is_not_waited_for() -> None:
    elsewhere = TurnRef(session="elsewhere", turn=0)
    found = timeline(
        [session("p", ask(after=(elsewhere,))), session("never", ask(), start_s=None)], Load()
    )
    assert found == {"p": (TurnTiming(0.0, 1.0),)}


@given(family=drawn_families())
def test_turns_follow_each_other_and_whom_they_wait_for(family: Family) -> None:
    found = timeline(family, LOAD)
    members = {each.session: each for each in family}
    assert set(found) == set(members)
    for name, timings in found.items():
        assert len(timings) == len(members[name].turns)
        assert all(each.sent_s < each.answered_s for each in timings)
        assert all(one.answered_s <= other.sent_s for one, other in pairwise(timings))
        for turn, timing in zip(members[name].turns, timings, strict=True):
            assert all(
                found[ref.session][ref.turn].answered_s <= timing.sent_s for ref in turn.after
            )
            assert all(found[child][0].sent_s >= timing.answered_s for child in turn.spawn)


@given(family=drawn_families())
def test_a_session_alone_lasts_as_long_as_its_turns(family: Family) -> None:
    alone = family[0]
    if not any(turn.after for turn in alone.turns):
        assert lasts_s([alone], timeline([alone], LOAD)) == pytest.approx(seconds_of(LOAD, alone))
