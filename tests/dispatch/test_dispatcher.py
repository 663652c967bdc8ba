from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.dispatch.dispatcher import Dispatcher
from agentload.model.commands import Ended, Lost, Outcome, Send, Started, Stopped
from agentload.model.plan import ClosedLoop, Load, OpenLoop
from agentload.model.plan import Recorded as AsRecorded
from agentload.model.trace import Session, TurnRef
from tests.dispatch.playing import S, one_block, play, took
from tests.dispatch.talks import talk


def test_every_pair_is_played_on_every_arm_with_the_same_salt() -> None:
    log = play(one_block((talk("s", 1),), arms=("a", "b"), pairs=2))
    assert [(s.pair, s.arm, s.salt) for s in log.sent] == [
        (0, "a", "salt0"),
        (0, "b", "salt0"),
        (1, "a", "salt1"),
        (1, "b", "salt1"),
    ]


def test_a_void_pair_is_played_again_whole_with_a_new_salt_and_not_for_ever() -> None:
    log = play(one_block((talk("s", 1),), arms=("a", "b"), pairs=2), void={0: ((0, "restart"),)})
    assert [(s.pair, s.arm, s.salt) for s in log.sent] == [
        (0, "a", "salt0"),
        (1, "a", "salt1"),
        (1, "b", "salt1"),
        (0, "a", "salt0~1"),
        (0, "b", "salt0~1"),
    ]
    always = play(one_block((talk("s", 1),)), void=dict.fromkeys(range(50), ((0, "restart"),)))
    assert [s.salt for s in always.sent] == ["salt0", "salt0~1", "salt0~2"]


def test_a_resumed_plan_skips_the_pairs_that_are_done() -> None:
    log = play(one_block((talk("s", 1),), arms=("a", "b"), pairs=3), done=(0, 2))
    assert {s.pair for s in log.sent} == {1}


def test_stop_drains_what_is_in_flight_and_finishes() -> None:
    log = play(one_block((talk("s", 9), talk("t", 9))), took(1.0), inject={0: Stopped(at_ns=0)})
    assert len(log.sent) == 2
    cancelled = play(
        one_block((talk("s", 9),)), took(1.0), inject={0: Stopped(at_ns=0, drain=False)}
    )
    assert cancelled.cancelled == [cancelled.sent[0].request_id]


@st.composite
def traces(draw: st.DrawFn) -> tuple[Session, ...]:
    """Sessions with waits, spawned children and joins, as a generator would make them."""
    out: list[Session] = []
    start = 0.0
    for i in range(draw(st.integers(1, 6))):
        start += draw(st.floats(0, 3))
        turns = draw(st.integers(1, 4))
        children = [f"s{i}.c{k}" for k in range(draw(st.integers(0, 2)))] if turns > 1 else []
        spawning = draw(st.integers(0, turns - 2)) if children else 0
        joins = tuple(TurnRef(session=c, turn=-1) for c in children)
        parent = talk(f"s{i}", turns, start_s=start, wait_s=draw(st.floats(0, 2)))
        made = [
            replace(
                t,
                spawn=tuple(children) if k == spawning else (),
                after=joins if children and k == spawning + 1 else (),
            )
            for k, t in enumerate(parent.turns)
        ]
        out.append(replace(parent, turns=tuple(made)))
        out.extend(
            talk(c, draw(st.integers(1, 3)), start_s=None, wait_s=draw(st.floats(0, 2)))
            for c in children
        )
    return tuple(out)


loads = st.builds(
    Load,
    arrivals=st.one_of(
        st.just(AsRecorded()),
        st.builds(ClosedLoop, sessions=st.integers(1, 3)),
        st.builds(OpenLoop, rate_per_s=st.floats(0.1, 50), cv=st.floats(0, 4)),
    ),
    max_in_flight=st.one_of(st.none(), st.integers(1, 3)),
)


@given(traces(), loads, st.integers(0, 5), st.booleans())
def test_dispatcher_properties(
    sessions: tuple[Session, ...],
    load: Load,
    seed: int,
    prepares: bool,  # noqa: FBT001  # drawn
) -> None:
    def serve(send: Send, now: int) -> Outcome:
        return Outcome(
            status="ok",
            done_ns=now + (hash((send.call.turn, len(send.call.session), seed)) % 977) * 1_000_000,
        )

    plan = one_block(sessions, load=load, arms=("a", "b"), seed=seed)
    log = play(plan, serve, prepares=prepares)
    # every call is made ready once
    assert sorted(log.prepared) == (sorted(s.request_id for s in log.sent) if prepares else [])
    turns = {(s.session, t) for s in sessions for t in range(len(s.turns))}
    for arm in ("a", "b"):
        sent = [d for d in log.done if d.send.arm == arm]
        # every call ends once
        assert {(d.send.call.session, d.send.call.turn) for d in sent} == turns
        assert len(sent) == len(turns)
        # in flight never exceeds the cap
        assert load.max_in_flight is None or log.peak[arm] <= load.max_in_flight
        ended = {(d.send.call.session, d.send.call.turn): d.ended_ns for d in sent}
        last = {s.session: len(s.turns) - 1 for s in sessions}
        by_name = {s.session: s for s in sessions}
        for d in sent:
            session, turn = by_name[d.send.call.session], d.send.call.turn
            spec = session.turns[turn]
            needs = [ended[(session.session, turn - 1)]] if turn else []
            needs += [
                ended[(r.session, last[r.session] if r.turn < 0 else r.turn)] for r in spec.after
            ]
            if session.start_s is None and turn == 0:
                needs += [
                    ended[(p.session, k)]
                    for p in sessions
                    for k, t in enumerate(p.turns)
                    if session.session in t.spawn
                ]
            # nothing is sent before all it depends on is
            # complete plus its wait, and due is exactly that
            assert d.sent_ns >= max(needs, default=0) + round(spec.wait_s * S)
            if needs and (turn or session.start_s is None):
                assert d.send.due_ns == max(needs) + round(spec.wait_s * S)
            assert d.send.due_ns <= d.send.released_ns <= d.sent_ns
            if load.max_in_flight is None:
                assert d.send.released_ns == d.sent_ns
    # equal seed, equal bytes
    assert play(plan, serve, prepares=prepares) == log


@pytest.mark.slow
@pytest.mark.parametrize("calls", [10_000, pytest.param(100_000, marks=pytest.mark.alone)])
def test_a_hundred_thousand_calls_take_seconds_not_minutes(calls: int) -> None:
    sessions = tuple(talk(f"s{i}", 50, start_s=i * 0.01) for i in range(calls // 50))
    assert len(play(one_block(sessions)).sent) == calls


def test_ended_twice_is_our_bug_and_crashes() -> None:
    dispatcher = Dispatcher(one_block((talk("s", 2),)), prepares=False)
    sent = [c for c in dispatcher.handle(Started(at_ns=0)) if isinstance(c, Send)]
    ended = Ended(at_ns=5, request_id=sent[0].request_id, outcome=Outcome(status="ok"))
    dispatcher.handle(ended)
    with pytest.raises(KeyError):
        dispatcher.handle(ended)


def test_a_lost_arm_releases_nothing_more_in_its_round_and_plays_on_in_the_next() -> None:
    plan = one_block((talk("s", 3),), arms=("a", "b"), pairs=2)
    log = play(plan, inject={1: Lost(at_ns=S, arm="a")})
    assert [(s.arm, s.pair, s.call.turn) for s in log.sent if s.pair == 0] == [
        ("a", 0, 0),
        ("b", 0, 0),
        ("b", 0, 1),
        ("b", 0, 2),
    ]
    assert [(s.arm, s.call.turn) for s in log.sent if s.pair == 1] == [
        (arm, turn) for arm in "ab" for turn in range(3)
    ]


def test_an_arm_that_is_lost_for_good_is_never_played_again() -> None:
    plan = one_block((talk("s", 2),), arms=("a", "b"), pairs=3)
    log = play(plan, inject={1: Lost(at_ns=S, arm="a", for_good=True)}, void={1: ((0, "dead"),)})
    assert [(s.arm, s.pair) for s in log.sent if s.arm == "a"] == [("a", 0)]
    assert len([s for s in log.sent if s.arm == "b"]) == 2 * 4


def test_a_later_leg_plays_under_salts_of_its_own() -> None:
    plan = one_block((talk("s", 1),), arms=("a", "b"), pairs=2)
    sent = [
        c
        for c in Dispatcher(plan, leg=3, done=[0], voided={1: 1}, prepares=False).handle(
            Started(at_ns=0)
        )
        if isinstance(c, Send)
    ]
    assert [(send.pair, send.arm, send.salt) for send in sent] == [(1, "a", "salt1~3.1")]
