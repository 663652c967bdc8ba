"""Degraded traces keep their lengths and structure, and lose exactly what was asked for."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload import degrade
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.trace import Header, Recorded, Segment, Session, Turn, TurnRef
from agentload.model.walk import contexts
from tests.importers.importing import assert_ordered

PREFIX = (
    Segment(role="system", tokens=32, key="sys"),
    Segment(role="tools", tokens=64, key="tools"),
)
HEADER = Header(name="t", prefixes={"P": PREFIX})


def made(
    name: str,
    turns: int,
    *,
    start_s: float | None = 0.0,
    keep: int | None = None,
    spawn: str | None = None,
) -> Session:
    """A session that grows by an answer and a result a turn; `keep`
    cuts its third turn, `spawn` starts a child with its second.
    """
    found = [Turn(add=(Segment(role="user", tokens=40, key=f"{name}.u"),), output=20)]
    for number in range(1, turns):
        add = (
            Segment(role="assistant", tokens=20, key=f"{name}.a{number}"),
            Segment(role="tool", tokens=30, key=f"{name}.r{number}"),
        )
        children = (spawn,) if spawn is not None and number == 1 else ()
        after = (TurnRef(session=spawn, turn=-1),) if spawn is not None and number == 2 else ()
        cut = keep if number == 2 else None
        recorded = Recorded(start_s=10.0 * number, api_s=2.0)
        found.append(
            Turn(
                add=add,
                output=20,
                wait="tool",
                wait_s=100.0,
                keep=cut,
                spawn=children,
                after=after,
                recorded=recorded,
            )
        )
    return Session(session=name, workload="w", prefix="P", turns=tuple(found), start_s=start_s)


SESSIONS = (
    made("a", 5, spawn="b"),
    made("b", 3, start_s=None),
    made("c", 4, start_s=7.0, keep=1),
    made("d", 1, start_s=8.0),
)
sets = st.lists(
    st.builds(made, st.uuids().map(str), st.integers(1, 5), keep=st.none() | st.integers(0, 6)),
    max_size=4,
)


def lengths(sessions: Iterable[Session]) -> list[list[int]]:
    return [
        [sum(segment.tokens for segment in context) for context in contexts(HEADER, session)]
        for session in sessions
    ]


def ideal(sessions: Iterable[Session]) -> float:
    reuse = BlockReuse(16)
    for session in sessions:
        for context in contexts(HEADER, session):
            reuse.trail().call(context)
    return reuse.ratio or 0.0


@given(sets, st.floats(0, 1), st.integers(0, 5))
def test_a_break_changes_names_and_nothing_else(
    found: list[Session], share: float, keep: int
) -> None:
    broken = list(degrade.break_prefixes(HEADER, found, share=share, keep=keep, seed=1))
    assert lengths(broken) == lengths(found)
    for before, after in zip(found, broken, strict=True):
        assert [turn.output for turn in before.turns] == [turn.output for turn in after.turns]
        for one, two in zip(contexts(HEADER, before), contexts(HEADER, after), strict=True):
            assert [(segment.role, segment.tokens) for segment in one] == [
                (segment.role, segment.tokens) for segment in two
            ]
            assert one[:keep] == two[:keep]


def test_all_calls_broken_share_only_what_stands_in_front() -> None:
    broken = list(degrade.break_prefixes(HEADER, SESSIONS, share=1.0, keep=1, seed=1))
    first = [list(contexts(HEADER, session)) for session in broken]
    assert all(
        {segment.key for segment in one[1:]}.isdisjoint(segment.key for segment in two[1:])
        for one, two in zip(first[0], first[0][1:], strict=False)
    )
    assert ideal(broken) < ideal(SESSIONS) / 2
    assert list(degrade.break_prefixes(HEADER, SESSIONS, share=0.0, keep=2, seed=1)) == list(
        SESSIONS
    )


def test_a_tenth_of_the_calls_is_broken_when_a_tenth_is_asked_for() -> None:
    many = [made(f"s{number}", 21, start_s=float(number)) for number in range(100)]
    broken = list(degrade.break_prefixes(HEADER, many, share=0.1, keep=2, seed=1))
    changed = sum(
        before != after
        for one, two in zip(many, broken, strict=True)
        for before, after in zip(one.turns, two.turns, strict=True)
    )
    assert abs(changed - 200) < 4 * (2_000 * 0.1 * 0.9) ** 0.5


def test_waits_are_capped_and_their_recorded_times_go() -> None:
    (only,) = degrade.cap_waits([made("a", 2)], cap_s=30.0)
    assert (only.turns[1].wait_s, only.turns[1].recorded) == (30.0, Recorded(api_s=2.0))
    assert only.turns[0] == made("a", 2).turns[0]


def test_time_is_scaled_but_not_what_servers_took() -> None:
    (only,) = degrade.scale_times([made("a", 2, start_s=8.0)], scale=0.25)
    assert (only.start_s, only.turns[1].wait_s, only.turns[1].recorded) == (
        2.0,
        25.0,
        Recorded(start_s=2.5, api_s=2.0),
    )


def test_a_sample_keeps_families_together_and_drops_waits_for_others() -> None:
    waiting = made("e", 2, start_s=9.0)
    waiting = Session(
        session="e",
        workload="w",
        start_s=9.0,
        turns=(waiting.turns[0], Turn(add=(), output=1, after=(TurnRef(session="c", turn=-1),))),
    )
    every = (*SESSIONS, waiting)
    seen = set()
    for seed in range(40):
        kept = list(degrade.take_sample(every, share=0.5, seed=seed))
        assert_ordered(kept)
        names = tuple(session.session for session in kept)
        assert ("a" in names) == ("b" in names)
        seen.add(names)
    assert len(seen) > 10
    assert list(degrade.take_sample(every, share=1.0, seed=1)) == list(every)
    assert list(degrade.take_sample(every, share=0.0, seed=1)) == []


@given(st.integers(0, 200))
def test_a_split_session_sends_what_the_whole_one_sent_from_there_on(seed: int) -> None:
    found = list(degrade.start_midway(HEADER, SESSIONS, share=1.0, seed=seed))
    assert_ordered(found)
    whole = {session.session: list(contexts(HEADER, session)) for session in SESSIONS}
    for session in found:
        sent = list(contexts(HEADER, session))
        assert sent == whole[session.session][-len(sent) :]
        if len(whole[session.session]) >= 3 and session.start_s is not None:
            assert (session.turns[0].event, session.turns[0].output, session.turns[1].wait_s) == (
                "prime",
                1,
                0.0,
            )
            assert 2 <= len(sent) < len(whole[session.session]) + 1
    # The child of a told turn is told, too.
    assert ("b" in {session.session for session in found}) == any(
        "b" in turn.spawn for session in found for turn in session.turns
    )


@pytest.mark.parametrize("seed", range(12))
def test_what_is_quoted_of_a_told_turn_stands_as_text_and_what_is_left_goes_by_its_new_number(
    seed: int,
) -> None:
    (parent, child), quoted = (
        (made("a", 6, spawn="b"), made("b", 3, start_s=None)),
        TurnRef(session="b", turn=-1),
    )
    reads = Segment(role="tool", tokens=9, key="b.said", source=quoted)
    reader = replace(
        parent, turns=(*parent.turns[:3], replace(parent.turns[3], add=(reads,)), *parent.turns[4:])
    )
    other = made("z", 2, start_s=9.0)
    late = replace(
        other,
        turns=(replace(other.turns[0], after=(TurnRef(session="a", turn=5),)), other.turns[1]),
    )
    found = {
        session.session: session
        for session in degrade.start_midway(HEADER, (reader, child, late), share=1.0, seed=seed)
    }
    sources = [segment.source for turn in found["a"].turns for segment in turn.add]
    # A child is told with the turn that spawned it, and then nobody can answer for it.
    assert sources.count(quoted) == ("b" in found)
    assert [segment.source for segment in found["a"].turns[0].add] == [None] * len(
        found["a"].turns[0].add
    )
    assert found["z"].turns[0].after == (TurnRef(session="a", turn=len(found["a"].turns) - 1),)


def test_sessions_are_left_whole_where_no_split_is_asked_for() -> None:
    assert list(degrade.start_midway(HEADER, SESSIONS, share=0.0, seed=1)) == list(SESSIONS)


@pytest.mark.parametrize("purpose", ["break", "split"])
def test_draws_depend_on_the_seed_the_purpose_and_the_name_alone(purpose: str) -> None:
    assert (
        degrade._drawn(1, purpose, made("a", 1)).random()
        == degrade._drawn(1, purpose, made("a", 1)).random()
    )
    assert (
        len(
            {
                degrade._drawn(seed, purpose, made(name, 1)).random()
                for seed in (1, 2)
                for name in "ab"
            }
        )
        == 4
    )


@given(sets, st.integers(60, 400))
def test_a_shortened_trace_holds_what_fits_and_nothing_that_came_after_it(
    found: list[Session], tokens: int
) -> None:
    short = {each.session: each for each in degrade.shorten(HEADER, found, tokens=tokens)}
    for session in found:
        needs = [
            length + turn.output
            for length, turn in zip(*lengths([session]), session.turns, strict=True)
        ]
        fitting = next((number for number, need in enumerate(needs) if need > tokens), len(needs))
        assert len(short[session.session].turns if session.session in short else ()) == fitting


def test_what_a_shortened_session_would_have_spawned_goes_and_nobody_waits_for_it() -> None:
    a, b, c, _ = SESSIONS
    short = list(degrade.shorten(HEADER, SESSIONS, tokens=sum(part.tokens for part in PREFIX) + 70))
    assert [(each.session, len(each.turns)) for each in short] == [
        ("a", 1),
        ("c", 1),
        ("d", 1),
    ]  # b would be spawned by a second turn
    assert_ordered(short)
    last = replace(
        c,
        turns=(
            replace(
                c.turns[0], after=(TurnRef(session="a", turn=3), TurnRef(session="b", turn=-1))
            ),
        ),
    )
    *_, waits = degrade.shorten(
        HEADER, (a, b, last), tokens=sum(part.tokens for part in PREFIX) + 70
    )
    assert waits.turns[0].after == (TurnRef(session="a", turn=-1),)


def test_a_trace_that_fits_is_left_as_it_is() -> None:
    assert tuple(degrade.shorten(HEADER, SESSIONS, tokens=100_000)) == SESSIONS
