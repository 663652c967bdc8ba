from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.model.check import Has
from agentload.model.commands import Ended, Event, Lost, Outcome, Reply, Send, Settle, Started, Stopped, Wake, Woke
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop, WaitScale
from agentload.model.plan import Recorded as AsRecorded
from agentload.model.trace import Segment, Session, Turn, TurnRef
from agentload.replay.dispatcher import Dispatcher
from agentload.replay.session import shortened
from tests.replay.playing import Log, S, one_block, play, said, took


def talk(name: str, turns: int, *, start_s: float | None = 0.0, wait_s: float = 1.0, **first: object) -> Session:
    def turn(i: int) -> Turn:
        made = Turn(add=(said("user", 5, f"{name}.{i}"),), output=4, wait="user" if i else None, wait_s=wait_s if i else 0.0)
        return replace(made, **first) if i == 0 else made  # type: ignore[arg-type]

    return Session(session=name, workload="chat", start_s=start_s, prefix="P", turns=tuple(turn(i) for i in range(turns)))


def instants(log: Log) -> list[tuple[str, int, float]]:
    return [(d.send.call.session, d.send.call.turn, d.sent_ns / S) for d in log.done]


def test_a_turn_is_due_when_the_one_before_it_is_complete_plus_its_wait() -> None:
    log = play(one_block((talk("s", 3),)), took(0.25))
    assert instants(log) == [("s", 0, 0.0), ("s", 1, 1.25), ("s", 2, 2.5)]


def test_context_grows_by_what_each_turn_adds_and_keep_cuts_it() -> None:
    session = talk("s", 3)
    cut = replace(session, turns=(*session.turns[:2], replace(session.turns[2], keep=1)))
    contexts = [[seg.key for seg in d.send.call.context] for d in play(one_block((cut,))).done]
    assert contexts == [["sys", "s.0"], ["sys", "s.0", "s.1"], ["sys", "s.2"]]
    assert [d.send.call.context_tokens for d in play(one_block((cut,))).done] == [15, 20, 15]


def test_a_spawned_session_starts_when_the_spawning_turn_completes_and_a_join_waits_for_it() -> None:
    parent = talk("p", 2, wait_s=0.0, spawn=("c",))
    joined = replace(parent, turns=(parent.turns[0], replace(parent.turns[1], after=(TurnRef(session="c", turn=-1),))))
    log = play(one_block((joined, talk("c", 2, start_s=None, wait_s=3.0))), took(1.0))
    assert instants(log) == [("p", 0, 0.0), ("c", 0, 1.0), ("c", 1, 5.0), ("p", 1, 6.0)]


def test_a_live_edge_carries_the_answer_and_is_cut_to_the_segment() -> None:
    source = Segment(role="user", tokens=1, key="r", source=TurnRef(session="eye", turn=0))
    main = Session(
        session="main", workload="mm", start_s=0.0, turns=(Turn(add=(source,), output=2, after=(TurnRef(session="eye", turn=0),)),)
    )

    def serve(send: Send, now: int) -> Outcome:
        return Outcome(status="ok", done_ns=now + S, reply=Reply(text="a red square", tokens=3))

    log = play(one_block((talk("eye", 1), main)), serve)
    (filled,) = log.done[1].send.call.context
    assert (filled.text, filled.tokens, filled.source) == ("a", 1, None)
    assert log.done[0].send.call.wants_reply
    assert not log.done[1].send.call.wants_reply


@pytest.mark.parametrize(
    ("text", "tokens", "wanted", "kept"),
    [
        ("a red square", 3, 5, "a red square"),
        ("a red square", 3, 2, "a red"),
        ("a red  square", 6, 4, "a red"),
        ("a", 9, 3, ""),
        ("", 4, 2, ""),
    ],
)
def test_an_answer_is_cut_at_a_word_in_proportion_to_its_tokens(text: str, tokens: int, wanted: int, kept: str) -> None:
    assert shortened(Reply(text=text, tokens=tokens), wanted) == kept


def test_a_checked_turn_wants_its_answer() -> None:
    assert play(one_block((talk("s", 1, check=(Has(text="x"),)),))).sent[0].call.wants_reply


def test_a_failed_fixed_session_goes_on_and_a_live_one_ends_with_rows_not_sent() -> None:
    def fails_first(send: Send, now: int) -> Outcome:
        return Outcome(status="reset" if send.call.turn == 0 else "ok", done_ns=now + S, reply=Reply(text="x", tokens=1))

    turns = tuple(replace(t, add=(said("assistant", 3, "a"), *t.add)) if i else t for i, t in enumerate(talk("s", 3).turns))
    session = replace(talk("s", 3), turns=turns)
    assert len(play(one_block((session,)), fails_first).sent) == 3
    live = play(one_block((session,), load=Load(history="live")), fails_first)
    assert [s.call.turn for s in live.sent] == [0]
    assert [s.call.turn for s in live.skipped] == [1, 2]


def test_what_waits_for_a_turn_that_never_comes_is_skipped_not_awaited() -> None:
    waiting = talk("w", 2, after=(TurnRef(session="nobody", turn=0),))
    log = play(one_block((waiting, talk("ok", 1), talk("orphan", 1, start_s=None))))
    assert [(s.call.session, s.call.turn) for s in log.skipped] == [("w", 0), ("w", 1), ("orphan", 0)]
    closed = play(one_block((waiting, talk("ok", 1)), load=Load(arrivals=ClosedLoop(sessions=1))))
    assert [s.call.session for s in closed.sent] == ["ok"]


def test_waits_are_scaled_and_capped_by_kind() -> None:
    load = Load(waits={"user": WaitScale(scale=10, cap_s=4.0)})
    assert [at for *_, at in instants(play(one_block((talk("s", 2),), load=load), took(0.5)))] == [0.0, 4.5]


def test_a_retry_is_a_further_attempt_with_its_own_name() -> None:
    def busy_once(send: Send, now: int) -> Outcome:
        return Outcome(status="busy" if send.attempt == 0 else "ok", done_ns=now + S)

    log = play(one_block((talk("s", 2),), load=Load(retries=1)), busy_once)
    assert [(s.call.turn, s.attempt, s.retry_of) for s in log.sent] == [
        (0, 0, None),
        (0, 1, log.sent[0].request_id),
        (1, 0, None),
        (1, 1, log.sent[2].request_id),
    ]
    assert len({s.request_id for s in log.sent}) == 4


def test_every_fixed_call_is_made_ready_before_it_is_sent() -> None:
    log = play(one_block((talk("s", 3), talk("t", 2))))
    assert sorted(log.prepared) == sorted(s.request_id for s in log.sent)


def test_closed_loop_keeps_n_sessions_going_and_marks_the_drain() -> None:
    log = play(one_block(tuple(talk(f"s{i}", 1) for i in range(4)), load=Load(arrivals=ClosedLoop(sessions=2))), took(1.0))
    assert [at for *_, at in instants(log)] == [0.0, 0.0, 1.0, 1.0]


def test_under_a_cap_a_call_is_released_when_a_slot_is_free() -> None:
    log = play(one_block(tuple(talk(f"s{i}", 1) for i in range(3)), load=Load(max_in_flight=1)), took(1.0))
    assert [(s.due_ns / S, s.released_ns / S) for s in log.sent] == [(0.0, 0.0), (0.0, 1.0), (0.0, 2.0)]


def test_open_loop_starts_do_not_depend_on_the_server() -> None:
    sessions = tuple(talk(f"s{i}", 1) for i in range(20))
    load = Load(arrivals=OpenLoop(rate_per_s=5.0))
    fast, slow = (play(one_block(sessions, load=load), took(t)) for t in (0.01, 60.0))
    assert [s.due_ns for s in fast.sent] == [s.due_ns for s in slow.sent]


def test_a_session_is_forgotten_once_when_its_play_is_over_and_not_before_its_last_attempt() -> None:
    def busy_at_first(send: Send, now: int) -> Outcome:
        return Outcome(status="busy" if send.call.turn == 1 and send.attempt == 0 else "ok", done_ns=now + S // 4)

    sessions = (talk("long", 2), talk("short", 1), talk("stranded", 1, after=(TurnRef(session="nobody", turn=0),)))
    log = play(one_block(sessions, load=Load(retries=1), arms=("a", "b")), busy_at_first)
    assert [(arm, session, at_ns / S) for arm, session, at_ns in log.forgotten] == [
        (arm, session, begun_s + after_s)
        for arm, begun_s in (("a", 0.0), ("b", 2.75))
        for session, after_s in (("short", 0.25), ("long", 2.75), ("stranded", 2.75))
    ]


def test_sessions_that_a_budget_or_a_stop_cut_off_are_forgotten_when_the_play_is_over() -> None:
    sessions = (talk("s", 50), talk("t", 50))
    spent = play(one_block(sessions, load=Load(budget=Budget(calls=3))), took(0.25))
    stopped = play(one_block(sessions), took(0.25), inject={2: Stopped(at_ns=S // 4)})
    for log in (spent, stopped):
        assert sorted(session for _, session, _ in log.forgotten) == ["s", "t"]
        assert {at_ns for *_, at_ns in log.forgotten} == {max(done.ended_ns for done in log.done)}


@pytest.mark.parametrize("budget", [Budget(calls=3), Budget(seconds=2.5), Budget(tokens=30)])
def test_a_spent_budget_releases_nothing_more(budget: Budget) -> None:
    def counted(send: Send, now: int) -> Outcome:
        return Outcome(status="ok", done_ns=now + S // 10, prompt_tokens=10, output_tokens=0)

    log = play(one_block((talk("s", 50),), load=Load(budget=budget)), counted)
    assert len(log.sent) == 3
    assert log.skipped == []


def test_a_share_of_streams_is_watched_to_be_cancelled_and_the_choice_is_equal_on_every_arm() -> None:
    sessions = tuple(talk(f"s{i}", 1) for i in range(100))
    log = play(one_block(sessions, load=Load(cancel_share=0.3), arms=("a", "b")))
    by_arm = {arm: {s.call.session: s.watch for s in log.sent if s.arm == arm} for arm in "ab"}
    assert by_arm["a"] == by_arm["b"]
    assert 15 < sum(w is not None for w in by_arm["a"].values()) < 45


def test_every_pair_is_played_on_every_arm_with_the_same_salt() -> None:
    log = play(one_block((talk("s", 1),), arms=("a", "b"), pairs=2))
    assert [(s.pair, s.arm, s.salt) for s in log.sent] == [(0, "a", "salt0"), (0, "b", "salt0"), (1, "a", "salt1"), (1, "b", "salt1")]


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
    cancelled = play(one_block((talk("s", 9),)), took(1.0), inject={0: Stopped(at_ns=0, drain=False)})
    assert cancelled.cancelled == [cancelled.sent[0].request_id]


def test_recorded_speed_scales_the_starts() -> None:
    sessions = (talk("s", 1), talk("t", 1, start_s=8.0))
    assert [at for *_, at in instants(play(one_block(sessions, load=Load(arrivals=AsRecorded(speed=4.0)))))] == [0.0, 2.0]


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
            replace(t, spawn=tuple(children) if k == spawning else (), after=joins if children and k == spawning + 1 else ())
            for k, t in enumerate(parent.turns)
        ]
        out.append(replace(parent, turns=tuple(made)))
        out.extend(talk(c, draw(st.integers(1, 3)), start_s=None, wait_s=draw(st.floats(0, 2))) for c in children)
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


@settings(max_examples=150, deadline=None)
@given(traces(), loads, st.integers(0, 5))
def test_dispatcher_properties(sessions: tuple[Session, ...], load: Load, seed: int) -> None:
    def serve(send: Send, now: int) -> Outcome:
        return Outcome(status="ok", done_ns=now + (hash((send.call.turn, len(send.call.session), seed)) % 977) * 1_000_000)

    plan = one_block(sessions, load=load, arms=("a", "b"), seed=seed)
    log = play(plan, serve)
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
            needs += [ended[(r.session, last[r.session] if r.turn < 0 else r.turn)] for r in spec.after]
            if session.start_s is None and turn == 0:
                needs += [ended[(p.session, k)] for p in sessions for k, t in enumerate(p.turns) if session.session in t.spawn]
            # nothing is sent before all it depends on is complete plus its wait, and due is exactly that
            assert d.sent_ns >= max(needs, default=0) + round(spec.wait_s * S)
            if needs and (turn or session.start_s is None):
                assert d.send.due_ns == max(needs) + round(spec.wait_s * S)
            assert d.send.due_ns <= d.send.released_ns <= d.sent_ns
            if load.max_in_flight is None:
                assert d.send.released_ns == d.sent_ns
    # equal seed, equal bytes
    assert play(plan, serve) == log


@pytest.mark.parametrize("calls", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_a_hundred_thousand_calls_take_seconds_not_minutes(calls: int) -> None:
    sessions = tuple(talk(f"s{i}", 50, start_s=i * 0.01) for i in range(calls // 50))
    assert len(play(one_block(sessions)).sent) == calls


def test_ended_twice_is_our_bug_and_crashes() -> None:
    dispatcher = Dispatcher(one_block((talk("s", 2),)))
    sent = [c for c in dispatcher.handle(Started(at_ns=0)) if isinstance(c, Send)]
    ended = Ended(at_ns=5, request_id=sent[0].request_id, outcome=Outcome(status="ok"))
    dispatcher.handle(ended)
    with pytest.raises(KeyError):
        dispatcher.handle(ended)


def test_a_lost_arm_releases_nothing_more_in_its_round_and_plays_on_in_the_next() -> None:
    plan = one_block((talk("s", 3),), arms=("a", "b"), pairs=2)
    log = play(plan, inject={1: Lost(at_ns=S, arm="a")})
    assert [(s.arm, s.pair, s.call.turn) for s in log.sent if s.pair == 0] == [("a", 0, 0), ("b", 0, 0), ("b", 0, 1), ("b", 0, 2)]
    assert [(s.arm, s.call.turn) for s in log.sent if s.pair == 1] == [(arm, turn) for arm in "ab" for turn in range(3)]


def test_an_arm_that_is_lost_for_good_is_never_played_again() -> None:
    plan = one_block((talk("s", 2),), arms=("a", "b"), pairs=3)
    log = play(plan, inject={1: Lost(at_ns=S, arm="a", for_good=True)}, void={1: ((0, "dead"),)})
    assert [(s.arm, s.pair) for s in log.sent if s.arm == "a"] == [("a", 0)]
    assert len([s for s in log.sent if s.arm == "b"]) == 2 * 4


def test_the_load_drains_from_the_first_end_that_nothing_replaces() -> None:
    # Two long sessions that start at once are the whole load: nothing drains until one of them ends.
    sessions = (talk("a", 4), talk("b", 8, start_s=0.5))
    log = play(one_block(sessions), took(1.0))
    tails = {(s.call.session, s.call.turn) for s in log.sent if s.tail}
    assert tails == {("b", turn) for turn in range(4, 8)}
    closed = play(one_block(tuple(talk(f"s{i}", 2) for i in range(4)), load=Load(arrivals=ClosedLoop(sessions=2))), took(1.0))
    assert not any(s.tail for s in closed.sent)


@pytest.mark.parametrize(("after", "is_whole"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_block_that_was_stopped_before_all_of_it_was_played_is_not_whole(after: int, *, is_whole: bool) -> None:
    dispatcher = Dispatcher(one_block((talk("s", 2),)))
    events: list[Event] = [Started(at_ns=0)]
    now = 0
    step = 0
    while True:
        event = events.pop(0)
        commands = dispatcher.handle(event)
        if step == after and not any(isinstance(command, Settle) for command in commands):
            commands += dispatcher.handle(Stopped(at_ns=now))
        step += 1
        for command in commands:
            match command:
                case Send():
                    now += S
                    events.append(Ended(at_ns=now, request_id=command.request_id, outcome=Outcome(status="ok", done_ns=now)))
                case Wake(at_ns=at_ns):
                    now = at_ns
                    events.append(Woke(at_ns=at_ns))
                case Settle():
                    (end,) = dispatcher.ended_plays()
                    assert end.is_whole is is_whole
                    return
                case _:
                    pass


def test_a_later_leg_plays_under_salts_of_its_own() -> None:
    plan = one_block((talk("s", 1),), arms=("a", "b"), pairs=2)
    sent = [c for c in Dispatcher(plan, leg=3, done=[0], voided={1: 1}).handle(Started(at_ns=0)) if isinstance(c, Send)]
    assert [(send.pair, send.arm, send.salt) for send in sent] == [(1, "a", "salt1~3.1")]
