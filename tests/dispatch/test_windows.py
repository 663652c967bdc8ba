"""A window on one arm: contexts are primed, then the clock starts,
and its load stays on until the last call that counts has ended.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.model.commands import Event, Lost, Outcome, Reply, Send, Stopped
from agentload.model.plan import Budget, ClosedLoop, Load, Plan, Recorded
from agentload.model.trace import PRIME, UNDER_WAY, Segment, Session, Turn, TurnRef
from tests.dispatch.playing import Log, S, one_block, play, said, took

PRIMING = Turn(add=(said("user", 100, "before"),), output=1, event=PRIME)


def primed(name: str, *turns: Turn, start_s: float | None = 0.0) -> Session:
    return Session(session=name, workload="w", turns=(PRIMING, *turns), start_s=start_s)


def fresh(name: str, *turns: Turn, start_s: float = 0.0) -> Session:
    return Session(session=name, workload="w", turns=turns, start_s=start_s)


def ask(wait_s: float = 0.0, **more: object) -> Turn:
    return Turn(
        add=(said("user", 5, "next"),),
        output=3,
        wait="tool" if wait_s else None,
        wait_s=wait_s,
        **more,  # type: ignore[arg-type]  # as said
    )


def window(
    *sessions: Session, load: Load | None = None, pairs: int = 1, arms: tuple[str, ...] = ("a",)
) -> Plan:
    made = one_block(sessions, load=load or Load(arrivals=Recorded()), pairs=pairs, arms=arms)
    return replace(made, blocks=(replace(made.blocks[0], is_window=True),))


def seen(log: Log) -> list[tuple[str, int, float]]:
    """Return the session, turn and instant of each call that was sent."""
    return [(send.call.session, send.call.turn, send.released_ns / S) for send in log.sent]


def closed(sessions: int, **budget: float) -> Load:
    # numbers
    return Load(arrivals=ClosedLoop(sessions=sessions), budget=Budget(**budget))  # type: ignore[arg-type]


def test_contexts_are_primed_one_after_the_other_in_their_order_and_nothing_else_is_sent() -> None:
    log = play(window(primed("s", ask()), primed("t", ask()), fresh("u", ask())), took(1.0))
    assert seen(log)[:2] == [("s", 0, 0.0), ("t", 0, 1.0)]
    assert sorted(seen(log)[2:]) == [("s", 1, 2.0), ("t", 1, 2.0), ("u", 0, 2.0)]
    assert [send.call.prime for send in log.sent] == [True, True, False, False, False]
    assert log.ends[0].primed_ns == 2 * S


def test_children_that_are_alive_are_primed_before_the_clock_starts_as_well() -> None:
    parent = replace(primed("p", ask()), turns=(replace(PRIMING, spawn=("c",)), ask()))
    log = play(window(parent, primed("c", ask(), start_s=None)), took(1.0))
    assert seen(log) == [("p", 0, 0.0), ("c", 0, 1.0), ("p", 1, 2.0), ("c", 1, 2.0)]


def test_waits_count_from_the_clock() -> None:
    log = play(
        window(primed("s", ask(wait_s=3.0)), primed("t", ask()), fresh("u", ask(wait_s=1.0))),
        took(2.0),
    )
    assert seen(log)[2:] == [("t", 1, 4.0), ("u", 0, 5.0), ("s", 1, 7.0)]


def test_those_that_arrive_later_count_from_the_clock() -> None:
    log = play(window(primed("s", ask()), fresh("u", ask(), start_s=1.5)), took(2.0))
    assert seen(log) == [("s", 0, 0.0), ("s", 1, 2.0), ("u", 0, 3.5)]


def test_a_window_without_anything_to_prime_begins_at_once() -> None:
    log = play(window(fresh("s", ask()), fresh("u", ask(), start_s=1.5)), took(0.5))
    assert seen(log) == [("s", 0, 0.0), ("u", 0, 1.5)]
    assert log.ends[0].primed_ns == 0


FOLLOWERS = tuple(fresh(f"f{place}", ask(), ask()) for place in range(20))


@pytest.mark.parametrize(
    ("budget", "counting"),
    [({"seconds": 3.0}, 3), ({"seconds": 2.5}, 3), ({"calls": 3}, 3), ({"tokens": 250}, 3)],
)
def test_budgets_count_from_the_clock_and_without_primes(
    budget: dict[str, float], counting: int
) -> None:
    def serve(send: Send, now_ns: int) -> Outcome:
        return Outcome(
            status="ok",
            done_ns=now_ns + S,
            prompt_tokens=99,
            output_tokens=1,
            reply=Reply(text="x", tokens=1),
        )

    log = play(window(primed("s", ask(), ask()), *FOLLOWERS, load=closed(1, **budget)), serve)
    assert len([send for send in log.sent if not send.call.prime]) == counting


def test_the_load_stays_on_until_the_last_call_that_counts_has_ended_and_is_then_cancelled() -> (
    None
):
    def serve(send: Send, now_ns: int) -> Outcome:
        is_long = send.call.session == "long" and send.call.turn == 1
        return took(6.5 if is_long else 1.0)(send, now_ns)

    log = play(
        window(primed("long", ask()), primed("s", ask()), *FOLLOWERS, load=closed(2, seconds=3.0)),
        serve,
    )
    counting = [each for each in log.done if not each.send.call.prime]
    clock_ns = log.ends[0].primed_ns
    assert clock_ns == 2 * S
    assert max(each.sent_ns for each in counting) < clock_ns + 3 * S
    tail = [each for each in log.done if each.sent_ns >= clock_ns + 3 * S]
    assert len(tail) == 4  # at 3, 4, 5 and 6 s
    assert all(each.send.tail and each.send.call.prime for each in tail)
    assert log.cancelled == [tail[-1].send.request_id]
    assert log.ends[0].drain_ns == clock_ns + 3 * S
    assert log.ends[0].is_whole


def test_the_rest_of_an_answer_under_way_counts_for_nothing_and_keeps_no_window_open() -> None:
    rest = Turn(add=(), output=9, event=UNDER_WAY)

    def serve(send: Send, now_ns: int) -> Outcome:
        return took(50.0 if send.call.turn == 1 and send.call.session == "s" else 1.0)(send, now_ns)

    log = play(
        window(
            primed("s", rest, ask()),
            primed("t", ask(), ask(), ask(), ask()),
            load=closed(2, seconds=2.0),
        ),
        serve,
    )
    assert [(send.call.session, send.call.turn) for send in log.sent if not send.call.prime] == [
        ("t", 1),
        ("t", 2),
    ]
    assert log.sent[2].request_id in log.cancelled
    assert log.finished_ns is not None


def test_a_prime_that_fails_does_not_hold_the_clock() -> None:
    def serve(send: Send, now_ns: int) -> Outcome:
        return Outcome(
            status="http_error" if send.call.session == "s" and send.call.prime else "ok",
            done_ns=now_ns + S,
        )

    log = play(window(primed("s", ask()), primed("t", ask())), serve)
    assert seen(log)[2:] == [("s", 1, 2.0), ("t", 1, 2.0)]


def test_a_prime_that_is_tried_again_is_waited_for() -> None:
    def serve(send: Send, now_ns: int) -> Outcome:
        is_busy = send.call.session == "s" and send.attempt == 0
        return Outcome(status="busy" if is_busy and send.call.prime else "ok", done_ns=now_ns + S)

    log = play(window(primed("s", ask()), primed("t", ask()), load=Load(retries=1)), serve)
    assert [(send.call.session, send.attempt) for send in log.sent[:3]] == [
        ("s", 0),
        ("t", 0),
        ("s", 1),
    ]
    clock_ns = max(each.ended_ns for each in log.done[:3])
    assert log.ends[0].primed_ns == clock_ns
    assert all(send.released_ns == clock_ns for send in log.sent[3:])


@pytest.mark.parametrize("drain", [True, False])
def test_a_stop_while_contexts_are_primed_ends_the_block(*, drain: bool) -> None:
    stop: Event = Stopped(at_ns=0, drain=drain)
    log = play(window(primed("s", ask()), primed("t", ask()), pairs=2), took(1.0), inject={0: stop})
    assert seen(log) == [("s", 0, 0.0)]
    assert len(log.cancelled) == (0 if drain else 1)
    assert (log.ends[0].primed_ns, log.ends[0].is_whole) == (None, False)


def test_nothing_is_sent_once_the_last_call_that_counts_has_ended() -> None:
    log = play(window(primed("s", ask(), ask(), ask()), load=closed(1, seconds=1.5)), took(1.0))
    whole = [(send.call.turn, send.call.prime) for send in log.sent]
    assert whole == [(0, True), (1, False), (2, False)]
    assert log.ends[0].is_whole


def test_an_arm_that_is_lost_while_it_is_primed_is_not_played() -> None:
    made = window(primed("s", ask()), primed("t", ask()), pairs=2)
    log = play(made, took(1.0), inject={0: Lost(at_ns=0, arm="a", for_good=True)})
    assert seen(log) == [("s", 0, 0.0)]
    assert (log.ends[0].primed_ns, log.ends[0].is_whole) == (None, False)


def test_a_cap_holds_from_the_clock_on() -> None:
    sessions = [primed(f"s{place}", ask()) for place in range(4)]
    log = play(window(*sessions, load=Load(max_in_flight=2)), took(1.0))
    assert [at_s for *_, at_s in seen(log)] == [0.0, 1.0, 2.0, 3.0, 4.0, 4.0, 5.0, 5.0]
    assert log.peak == {"a": 2}


def test_a_slot_that_only_primes_makes_room_for_the_next() -> None:
    prefix = Session(
        session="prefix P",
        workload="w",
        turns=(replace(PRIMING, add=(said("user", 1, "p"),)),),
        start_s=0.0,
    )
    log = play(
        window(prefix, primed("s", ask()), *FOLLOWERS, load=closed(1, seconds=2.0)), took(1.0)
    )
    assert [(name, turn) for name, turn, _ in seen(log)] == [
        ("prefix P", 0),
        ("s", 0),
        ("s", 1),
        ("f0", 0),
    ]


def test_an_answer_that_was_only_primed_is_not_quoted_by_live_history() -> None:
    """The next turn tells what the trace says was answered:
    a primed call answers a token that nobody wanted.
    """
    answer = Segment(role="assistant", tokens=40, key="said before")
    rest = Turn(add=(), output=9, event=UNDER_WAY)
    then = Turn(add=(answer, said("user", 5, "then")), output=3, keep=1)
    later = Turn(
        add=(Segment(role="assistant", tokens=3, key="said live"), said("user", 5, "later")),
        output=3,
    )
    sessions = (primed("s", replace(then, keep=None), later), primed("t", rest, then, later))
    log = play(window(*sessions, load=Load(history="live")), took(1.0))
    sent = {(send.call.session, send.call.turn): send.call for send in log.sent}
    assert sent["s", 1].context[1] == sent["t", 2].context[1] == answer
    assert str(sent["s", 2].context[-2].key).startswith("live:")
    assert str(sent["t", 3].context[-2].key).startswith("live:")
    assert not log.skipped


def test_every_arm_is_primed_with_the_same_calls() -> None:
    log = play(window(primed("s", ask()), primed("t", ask(), ask()), arms=("a", "b")), took(0.7))
    calls = {
        arm: [(send.call, send.salt) for send in log.sent if send.arm == arm] for arm in ("a", "b")
    }
    assert calls["a"] == calls["b"]


def test_a_window_is_cut_whose_context_cannot_be_primed() -> None:
    quoted = replace(said("assistant", 5, "q"), source=TurnRef(session="nobody", turn=0))
    lost = replace(primed("s"), turns=(replace(PRIMING, add=(quoted,)),))
    log = play(window(lost, fresh("u", ask(), start_s=5.0)), took(1.0))
    assert seen(log) == []
    assert [end.is_whole for end in log.ends] == [False]
