"""What is carried over an instant: every turn once, in the contexts that the trace gives it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.layout.carried import Carried, carry
from agentload.layout.timeline import lasts_s, timeline
from agentload.model.plan import Load
from agentload.model.trace import PRIME, UNDER_WAY, Header, Segment, Session, Turn, TurnRef
from agentload.model.walk import contexts
from tests.dispatch.playing import one_block, play
from tests.layout.family_draws import HEADER, LOAD, drawn_families

Family = tuple[Session, ...]
SHARES = st.floats(0.0, 0.999)


def said(tokens: int, key: str, **more: object) -> Segment:
    # a live edge, or nothing
    return Segment(role="user", tokens=tokens, key=key, **more)  # type: ignore[arg-type]


def ask(key: str, *, output: int = 50, **more: object) -> Turn:
    """Return a turn that takes a second, but for what it waits."""
    # as the case says
    return Turn(add=(said(1, key),), output=output, **more)  # type: ignore[arg-type]


def session(
    name: str, *turns: Turn, start_s: float | None = 0.0, prefix: str | None = None
) -> Session:
    return Session(session=name, workload="w", turns=turns, start_s=start_s, prefix=prefix)


def cut(family: Family, share: float) -> tuple[float, Carried]:
    at_s = share * lasts_s(family, timeline(family, LOAD))
    return at_s, carry(HEADER, family, timeline(family, LOAD), at_s=at_s)


# --- cases ---

TALK = session("s", ask("0"), ask("1", wait="tool", wait_s=4.0), ask("2"), prefix="P")
PREFIX = HEADER.prefixes["P"]


def test_who_waits_at_the_instant_is_primed_and_sends_the_next_turn_at_once() -> None:
    found = carry(HEADER, (TALK,), timeline((TALK,), LOAD), at_s=3.0)
    prime = Turn(add=(said(1, "0"),), output=1, event=PRIME)
    assert found.sessions == (replace(TALK, turns=(prime, ask("1"), ask("2"))),)
    assert found.idle_s == pytest.approx(3.0 - 1.0, abs=0.1)


def test_the_rest_of_an_answer_under_way_is_asked_for_behind_the_part_that_is_there() -> None:
    found = carry(HEADER, (TALK,), timeline((TALK,), LOAD), at_s=0.5)
    prime, rest, *others = found.sessions[0].turns
    part = Segment(role="assistant", tokens=prime.add[-1].tokens, key="s~3")
    assert prime == Turn(add=(said(1, "0"), part), output=1, event=PRIME)
    assert 20 <= part.tokens <= 30
    assert rest == Turn(add=(), output=50 - part.tokens, event=UNDER_WAY)
    assert others == [replace(TALK.turns[1], keep=3), TALK.turns[2]]
    assert found.idle_s == 0.0


def test_a_family_that_has_sent_nothing_is_itself() -> None:
    family = (session("s", ask("0", wait="schedule", wait_s=9.0)),)
    assert carry(HEADER, family, timeline(family, LOAD), at_s=4.0) == Carried(
        sessions=family, idle_s=0.0
    )


PARENT = session("p", ask("0", spawn=("c",)), ask("1", after=(TurnRef(session="c", turn=-1),)))
CHILD = session("c", ask("c0"), ask("c1"), ask("c2"), start_s=None)


@pytest.mark.parametrize(
    ("at_s", "expected"),
    [
        (0.5, {"p": [PRIME, UNDER_WAY, None], "c": [None, None, None]}),
        (1.5, {"p": [PRIME, None], "c": [PRIME, UNDER_WAY, None, None]}),
        (2.5, {"p": [PRIME, None], "c": [PRIME, UNDER_WAY, None]}),
        (4.5, {"p": [PRIME, UNDER_WAY]}),
    ],
)
def test_a_child_is_to_come_or_alive_or_over(
    at_s: float, expected: dict[str, list[str | None]]
) -> None:
    found = carry(HEADER, (PARENT, CHILD), timeline((PARENT, CHILD), LOAD), at_s=at_s)
    assert {
        each.session: [turn.event for turn in each.turns] for each in found.sessions
    } == expected
    alive = "c" in expected and PRIME in expected["c"]
    assert found.sessions[0].turns[0].spawn == (("c",) if alive else ())


def test_what_waited_for_a_turn_waits_for_it_where_it_stands_now() -> None:
    family = (
        session(
            "p",
            ask("0", spawn=("c",)),
            ask("1", after=(TurnRef(session="c", turn=0), TurnRef(session="c", turn=2))),
        ),
        CHILD,
    )
    joined = carry(HEADER, family, timeline(family, LOAD), at_s=2.5).sessions[0].turns[-1]
    assert joined.after == (
        TurnRef(session="c", turn=2),
    )  # behind its prime, and the rest of its second


@pytest.mark.parametrize(
    ("at_s", "is_live"), [(0.5, True), (1.5, True), (3.5, False), (4.5, False)]
)
def test_an_answer_is_quoted_live_only_where_all_of_it_is_to_come(
    at_s: float, *, is_live: bool
) -> None:
    quoted = said(25, "q", source=TurnRef(session="c", turn=-1))
    family = (
        session(
            "p",
            ask("0", spawn=("c",)),
            replace(ask("1", after=(TurnRef(session="c", turn=-1),)), add=(quoted,)),
            ask("2"),
        ),
        CHILD,
    )
    found = carry(HEADER, family, timeline(family, LOAD), at_s=at_s).sessions[0]
    segment = next(each for turn in found.turns for each in turn.add if each.key == "q")
    assert (segment.source is not None) == is_live


# --- properties ---


def told(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Return a context as its words are, whoever they are quoted from."""
    return tuple(replace(each, source=None) for each in segments)


@given(family=drawn_families(), share=SHARES)
def test_every_turn_is_answered_before_or_under_way_or_played_once(
    family: Family, share: float
) -> None:
    at_s, found = cut(family, share)
    timings = timeline(family, LOAD)
    left = {each.session: each for each in found.sessions}
    assert len(left) == len(found.sessions)
    for member in family:
        instants = timings.get(member.session, ())
        answered = sum(each.answered_s <= at_s for each in instants)
        under_way = sum(each.sent_s <= at_s < each.answered_s for each in instants)
        events = (
            [turn.event for turn in left[member.session].turns] if member.session in left else []
        )
        assert events.count(UNDER_WAY) == under_way <= 1
        assert events.count(None) == (
            len(member.turns) - answered - under_way if instants or events else 0
        )
        has_sent = answered + under_way > 0 and member.session in left
        assert events.count(PRIME) == has_sent
        assert PRIME not in events[1:]


@given(family=drawn_families(), share=SHARES)
def test_turns_to_come_send_what_the_trace_says(family: Family, share: float) -> None:
    _, found = cut(family, share)
    members = {each.session: each for each in family}
    for session_left in found.sessions:
        before = [told(context) for context in contexts(HEADER, members[session_left.session])]
        after = [told(context) for context in contexts(HEADER, session_left)]
        played = [place for place, turn in enumerate(session_left.turns) if turn.event is None]
        assert [after[place] for place in played] == before[len(before) - len(played) :]
        waits = [
            turn.output for turn in members[session_left.session].turns[len(before) - len(played) :]
        ]
        assert [session_left.turns[place].output for place in played] == waits


@given(family=drawn_families(), share=SHARES)
def test_a_prime_holds_what_the_last_call_sent_and_what_is_there_of_its_answer(
    family: Family, share: float
) -> None:
    at_s, found = cut(family, share)
    members = {each.session: each for each in family}
    timings = timeline(family, LOAD)
    for session_left in found.sessions:
        if session_left.turns[0].event != PRIME:
            continue
        sent = [each for each in timings[session_left.session] if each.sent_s <= at_s]
        last = told([*contexts(HEADER, members[session_left.session])][len(sent) - 1])
        primed = told(next(iter(contexts(HEADER, session_left))))
        assert primed[: len(last)] == last
        said_already = sum(each.tokens for each in primed[len(last) :])
        output = members[session_left.session].turns[len(sent) - 1].output
        if sent[-1].answered_s <= at_s:
            assert said_already == 0
        else:
            share_said = (at_s - sent[-1].sent_s) / (sent[-1].answered_s - sent[-1].sent_s)
            assert said_already == pytest.approx(share_said * output, abs=1.0)
            assert session_left.turns[1].output + said_already == output


@given(family=drawn_families(), share=SHARES)
def test_references_point_only_to_what_is_played(family: Family, share: float) -> None:
    _, found = cut(family, share)
    left = {each.session: each for each in found.sessions}
    turns = [turn for each in found.sessions for turn in each.turns]
    refs = [ref for turn in turns for ref in turn.after]
    refs += [segment.source for turn in turns for segment in turn.add if segment.source is not None]
    for ref in refs:
        assert left[ref.session].turns[ref.turn].event != PRIME
    spawned = [name for turn in turns for name in turn.spawn]
    assert sorted(spawned) == sorted(name for name, each in left.items() if each.start_s is None)
    alive = {each.session for each in found.sessions[1:] if each.turns[0].event == PRIME}
    assert alive <= set(found.sessions[0].turns[0].spawn)


@given(family=drawn_families(), share=SHARES)
def test_a_carried_family_plays_to_its_end(family: Family, share: float) -> None:
    _, found = cut(family, share)
    made = one_block(found.sessions, load=Load(waits=LOAD.waits))
    made = replace(made, header=HEADER, blocks=(replace(made.blocks[0], is_window=True),))
    log = play(made)
    assert not log.skipped
    assert len(log.sent) == sum(len(each.turns) for each in found.sessions)
    assert log.ends[0].is_whole


def test_prefixes_that_a_context_has_left_are_not_primed() -> None:
    family = (session("s", ask("0"), ask("1", keep=0), ask("2"), prefix="P"),)
    found = carry(
        Header(name="t", prefixes=HEADER.prefixes), family, timeline(family, LOAD), at_s=2.5
    )
    assert [each.key for each in next(iter(contexts(HEADER, found.sessions[0])))][:2] == ["1", "2"]
