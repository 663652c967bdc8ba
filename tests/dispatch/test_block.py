"""What a block sends, and when: under a load, a cap and a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.dispatch.block import CAPPED_LEAD_NS
from agentload.dispatch.dispatcher import Dispatcher
from agentload.dispatch.foresight import CONNECT_NS, TOKEN_NS
from agentload.model.commands import (
    Ended,
    Event,
    Outcome,
    Send,
    Settle,
    Started,
    Stopped,
    Wake,
    Woke,
)
from agentload.model.plan import Budget, ClosedLoop, Load, OpenLoop
from agentload.model.plan import Recorded as AsRecorded
from agentload.model.trace import Session, TurnRef
from tests.dispatch.playing import S, one_block, play, took
from tests.dispatch.talks import instants, talk


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
    log = play(one_block((talk("s", 3), talk("t", 2))), prepares=True)
    assert sorted(log.prepared) == sorted(s.request_id for s in log.sent)


def test_a_block_begins_when_its_first_calls_can_be_ready() -> None:
    sessions = (talk("s", 1), talk("t", 1), talk("later", 1, start_s=9.0))
    lead_ns = CONNECT_NS + TOKEN_NS * 2 * (10 + 5)
    for prepares, begins_ns in ((True, lead_ns), (False, 0)):
        log = play(one_block(sessions), prepares=prepares)
        assert [(s.due_ns, s.released_ns) for s in log.sent] == [
            (at_ns, at_ns) for at_ns in (begins_ns, begins_ns, begins_ns + 9 * S)
        ]


def test_a_closed_loop_has_ready_what_may_follow_and_lets_go_of_what_never_came() -> None:
    sessions = tuple(talk(f"s{i}", 1) for i in range(9))
    load = Load(arrivals=ClosedLoop(sessions=2), budget=Budget(calls=3))
    log = play(one_block(sessions, load=load), took(1.0), prepares=True)
    assert len(log.sent) == 3
    assert (
        len(log.prepared) == len(set(log.prepared)) == 2 + 2 + 2
    )  # those that begin, what may follow them, what may follow those
    assert sorted(session for _, session, _ in log.forgotten) == [f"s{i}" for i in range(6)]
    lead_ns = CONNECT_NS + TOKEN_NS * 4 * (10 + 5)
    assert log.sent[0].released_ns == lead_ns


def test_closed_loop_keeps_n_sessions_going_and_marks_the_drain() -> None:
    log = play(
        one_block(
            tuple(talk(f"s{i}", 1) for i in range(4)), load=Load(arrivals=ClosedLoop(sessions=2))
        ),
        took(1.0),
    )
    assert [at for *_, at in instants(log)] == [0.0, 0.0, 1.0, 1.0]


def test_under_a_cap_a_call_is_released_when_a_slot_is_free() -> None:
    log = play(
        one_block(tuple(talk(f"s{i}", 1) for i in range(3)), load=Load(max_in_flight=1)), took(1.0)
    )
    assert [(s.due_ns / S, s.released_ns / S) for s in log.sent] == [
        (0.0, 0.0),
        (0.0, 1.0),
        (0.0, 2.0),
    ]


def test_open_loop_starts_do_not_depend_on_the_server() -> None:
    sessions = tuple(talk(f"s{i}", 1) for i in range(20))
    load = Load(arrivals=OpenLoop(rate_per_s=5.0))
    fast, slow = (play(one_block(sessions, load=load), took(t)) for t in (0.01, 60.0))
    assert [s.due_ns for s in fast.sent] == [s.due_ns for s in slow.sent]


def test_a_session_is_forgotten_once_when_its_play_is_over_and_not_before_its_last_attempt() -> (
    None
):
    def busy_at_first(send: Send, now: int) -> Outcome:
        return Outcome(
            status="busy" if send.call.turn == 1 and send.attempt == 0 else "ok",
            done_ns=now + S // 4,
        )

    sessions = (
        talk("long", 2),
        talk("short", 1),
        talk("stranded", 1, after=(TurnRef(session="nobody", turn=0),)),
    )
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


def test_a_share_of_streams_is_watched_to_be_cancelled_and_the_choice_is_equal_on_every_arm() -> (
    None
):
    sessions = tuple(talk(f"s{i}", 1) for i in range(100))
    log = play(one_block(sessions, load=Load(cancel_share=0.3), arms=("a", "b")))
    by_arm = {arm: {s.call.session: s.watch for s in log.sent if s.arm == arm} for arm in "ab"}
    assert by_arm["a"] == by_arm["b"]
    assert 15 < sum(w is not None for w in by_arm["a"].values()) < 45


def test_recorded_speed_scales_the_starts() -> None:
    sessions = (talk("s", 1), talk("t", 1, start_s=8.0))
    assert [
        at
        for *_, at in instants(play(one_block(sessions, load=Load(arrivals=AsRecorded(speed=4.0)))))
    ] == [0.0, 2.0]


def test_the_load_drains_from_the_first_end_that_nothing_replaces() -> None:
    # Two long sessions that start at once are the whole
    # load: nothing drains until one of them ends.
    sessions = (talk("a", 4), talk("b", 8, start_s=0.5))
    log = play(one_block(sessions), took(1.0))
    tails = {(s.call.session, s.call.turn) for s in log.sent if s.tail}
    assert tails == {("b", turn) for turn in range(4, 8)}
    closed = play(
        one_block(
            tuple(talk(f"s{i}", 2) for i in range(4)), load=Load(arrivals=ClosedLoop(sessions=2))
        ),
        took(1.0),
    )
    assert not any(s.tail for s in closed.sent)


@pytest.mark.parametrize(("after", "is_whole"), [(0, False), (1, False), (2, True), (3, True)])
def test_a_block_that_was_stopped_before_all_of_it_was_played_is_not_whole(
    after: int, *, is_whole: bool
) -> None:
    dispatcher = Dispatcher(one_block((talk("s", 2),)), prepares=False)
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
                    events.append(
                        Ended(
                            at_ns=now,
                            request_id=command.request_id,
                            outcome=Outcome(status="ok", done_ns=now),
                        )
                    )
                case Wake(at_ns=at_ns):
                    now = at_ns
                    events.append(Woke(at_ns=at_ns))
                case Settle():
                    (end,) = dispatcher.ended_plays()
                    assert end.is_whole is is_whole
                    return
                case _:
                    pass


def parent_and_child() -> tuple[Session, ...]:
    """The parent's last turn waits for its child: while
    only that is in flight, the parent is nowhere.
    """
    parent, child = talk("parent", 2, spawn=("child",)), talk("child", 1, start_s=None)
    joined = replace(parent.turns[1], after=(TurnRef(session="child", turn=-1),))
    return replace(parent, turns=(parent.turns[0], joined)), child


DRAIN, DROP = Stopped(at_ns=0), Stopped(at_ns=0, drain=False)
ONE, TWO = (talk("s", 1),), (talk("s", 1), talk("slow", 1))


@pytest.mark.parametrize(
    ("sessions", "load", "stops", "is_whole"),
    [
        (TWO, Load(), {0: DRAIN}, True),
        (TWO, Load(), {0: DRAIN, 1: DROP}, False),
        ((talk("s", 9), talk("slow", 9)), Load(budget=Budget(calls=2)), {2: DROP}, False),
        (parent_and_child(), Load(), {1: DRAIN}, False),
        (ONE, Load(retries=1), {0: DRAIN}, False),
        (ONE, Load(retries=1), {0: DRAIN, 1: DROP}, False),
        (ONE, Load(retries=1, budget=Budget(calls=1)), {}, True),
        ((talk("s", 1), talk("later", 1, start_s=60.0)), Load(), {0: DRAIN}, False),
    ],
)
def test_a_block_is_whole_when_all_of_it_was_played_to_its_end(
    sessions: tuple[Session, ...], load: Load, stops: dict[int, Event], *, is_whole: bool
) -> None:
    def serve(send: Send, now: int) -> Outcome:
        return Outcome(
            status="busy" if load.retries else "ok",
            done_ns=now + (9 * S if send.call.session == "slow" else S // 10),
        )

    (end,) = play(one_block(sessions, load=load), serve, inject=stops).ends
    assert end.is_whole is is_whole


def test_a_server_that_asks_to_be_left_alone_is_left_alone_for_as_long() -> None:
    def busy(send: Send, now: int) -> Outcome:
        return Outcome(
            status="busy", done_ns=now, retry_after_ns=(None, S // 2, 20 * S, None)[send.attempt]
        )

    log = play(one_block((talk("s", 1),), load=Load(retries=3)), busy)
    assert [s.due_ns / S for s in log.sent] == [0, 1, 3, 23]


def test_a_call_that_is_refused_ahead_of_its_instant_moves_no_other_ahead_of_theirs() -> None:
    def refused_ahead(send: Send, now: int) -> Outcome:
        return Outcome(status="refused", done_ns=now - S // 500 if send.call.turn == 0 else now)

    log = play(one_block((talk("s", 2, start_s=5.0),)), refused_ahead)
    assert [s.due_ns / S for s in log.sent] == [5, 6]


@pytest.mark.parametrize(
    ("patience_s", "sent_s"),
    [
        (60, [0.0, 0.0, 11.0, 61.0]),  # the turn moves, and the retry stays
        (5, [0.0, 0.0, 6.0, 17.0]),  # the load is busy with the retry before that
    ],
)
def test_a_load_that_is_idle_for_too_long_moves_turns_nearer_and_no_retry(
    patience_s: int, sent_s: list[float]
) -> None:
    def busy_at_first(send: Send, now: int) -> Outcome:
        if send.call.session == "busy" and send.attempt == 0:
            return Outcome(status="busy", done_ns=now + S, retry_after_ns=patience_s * S)
        return Outcome(status="ok", done_ns=now + S)

    load = Load(retries=1, idle_cap_s=10.0)
    sessions = (talk("busy", 1), talk("idle", 2, wait_s=100.0))
    log = play(one_block(sessions, load=load), busy_at_first)
    assert [send.released_ns / S for send in log.sent] == sent_s
    assert [done.sent_ns / S for done in log.done] == sent_s


@pytest.mark.parametrize("holds_trees", [False, True])
def test_a_closed_loop_goes_on_after_a_tree_that_waits_for_what_never_comes(
    *, holds_trees: bool
) -> None:
    first, second = talk("parent", 2).turns
    never = replace(second, after=(TurnRef(session="child", turn=0),), spawn=("child",))
    sessions = (
        replace(talk("parent", 2), turns=(first, never)),
        replace(talk("child", 1, start_s=None), turns=(replace(first, spawn=("grandchild",)),)),
        talk("grandchild", 1, start_s=None),
        talk("next", 1),
    )
    load = Load(arrivals=ClosedLoop(sessions=1, holds_trees=holds_trees))
    log = play(one_block(sessions, load=load), took(1.0))
    assert [(session, turn) for session, turn, _ in instants(log)] == [("parent", 0), ("next", 0)]
    assert [(skip.call.session, skip.call.turn) for skip in log.skipped] == [
        ("parent", 1),
        ("child", 0),
        ("grandchild", 0),
    ]


LED = (
    talk("s", 3),
    talk("t", 3, start_s=0.4, wait_s=0.01),
    *(talk(f"u{i}", 2, start_s=i / 3, wait_s=0.5) for i in range(9)),
)


@pytest.mark.parametrize(
    "load",
    [
        Load(arrivals=AsRecorded()),
        Load(arrivals=AsRecorded(), budget=Budget(seconds=2.02)),
        Load(arrivals=ClosedLoop(sessions=3), budget=Budget(seconds=2.02)),
        Load(arrivals=AsRecorded(), budget=Budget(calls=7)),
    ],
)
@pytest.mark.parametrize("is_window", [False, True])
def test_a_call_is_sent_ahead_of_its_instant_and_nothing_else_changes(
    load: Load, is_window: object
) -> None:
    lead_ns = S // 20
    plan = one_block(LED, load=load)
    plan = replace(plan, blocks=(replace(plan.blocks[0], is_window=bool(is_window)),))

    def answer(send: Send, now: int) -> Outcome:
        return Outcome(status="ok", done_ns=max(now, send.released_ns) + S // 10)

    on_time = play(plan, answer)
    ahead = play(plan, answer, lead_ns=lead_ns)
    assert [(s.request_id, s.released_ns, s.call.prime) for s in ahead.sent] == [
        (s.request_id, s.released_ns, s.call.prime) for s in on_time.sent
    ]
    assert [end.drain_ns for end in ahead.ends] == [end.drain_ns for end in on_time.ends]
    drain_ns = on_time.ends[0].drain_ns or 0
    for early, late in zip(ahead.sent, on_time.sent, strict=True):
        # What was sent already when the load began to drain is no part of its tail.
        assert early.tail == late.tail or drain_ns < early.released_ns <= drain_ns + lead_ns
    earlier = [done.send.released_ns - done.sent_ns for done in ahead.done]
    assert max(earlier) == lead_ns
    assert min(earlier) >= 0


def test_a_block_is_not_over_before_the_instant_of_a_call_that_was_refused_ahead_of_it() -> None:
    def refuse(_: Send, now: int) -> Outcome:
        return Outcome(status="refused", done_ns=now)

    log = play(one_block((talk("s", 1, start_s=1.0),)), refuse, lead_ns=S // 20)
    (done,) = log.done
    assert done.ended_ns < done.send.released_ns <= log.ends[0].ended_ns


def test_a_call_under_a_cap_takes_its_slot_only_just_before_its_instant() -> None:
    sessions = (talk("s", 1, start_s=1.0), talk("t", 1, start_s=1.0))
    log = play(one_block(sessions, load=Load(max_in_flight=4)), lead_ns=S // 20)
    assert [done.send.released_ns - done.sent_ns for done in log.done] == [CAPPED_LEAD_NS] * 2
