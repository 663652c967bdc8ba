from __future__ import annotations

from dataclasses import replace

import pytest

from agentload.dispatch.dispatcher import Dispatcher
from agentload.model.commands import Event, Finish, Lost, Open, Opened, Started, Stopped
from agentload.model.plan import Budget, Load, Plan
from agentload.model.trace import Session
from tests.dispatch.playing import START, S, one_block, play, took
from tests.dispatch.talks import talk


def started(
    pairs: int,
    starts: tuple[int, ...],
    sessions: tuple[Session, ...] = (talk("s", 2),),
    *,
    load: Load | None = None,
) -> Plan:
    plan = one_block(sessions, arms=("a", "b"), pairs=pairs, load=load)
    return replace(
        plan,
        rounds=tuple(
            replace(round_, start=start) for round_, start in zip(plan.rounds, starts, strict=True)
        ),
    )


def test_a_round_on_a_new_start_begins_when_its_server_is_up_and_one_on_the_same_start_at_once() -> (
    None
):
    log = play(started(2, (0, 0, 1, 2)), took(1.0))
    assert log.opened == [(0, "a"), (2, "a"), (3, "b")]
    assert [(each.send.call.turn, each.sent_ns) for each in log.done[:4]] == [
        (0, START),
        (1, START + 2 * S),
        (0, START + 3 * S),
        (1, START + 5 * S),
    ]
    assert log.done[4].sent_ns == 2 * START + 6 * S


def test_a_void_pair_comes_again_on_starts_of_its_own() -> None:
    log = play(started(2, (0, 1, 2, 3)), void={0: ((0, "restart"),)})
    assert log.opened == [(0, "a"), (2, "a"), (3, "b"), (4, "a"), (5, "b")]
    assert [send.salt for send in log.sent if send.pair == 0] == ["salt0"] * 2 + ["salt0~1"] * 4


def test_after_a_server_died_the_next_round_of_its_start_gets_a_new_one() -> None:
    log = play(started(2, (0, 0, 0, 0)), inject={1: Lost(at_ns=START, arm="a")})
    assert log.opened == [(0, "a"), (1, "b")]


def test_a_plan_that_is_stopped_while_a_server_starts_sends_nothing_and_ends_when_it_is_up() -> (
    None
):
    dispatcher = Dispatcher(started(1, (0, 1)))
    assert dispatcher.handle(Started(at_ns=0)) == (Open(round=0, arms=("a",)),)
    assert dispatcher.handle(Stopped(at_ns=1)) == ()
    assert dispatcher.handle(Opened(at_ns=2)) == (Finish(),)


@pytest.mark.parametrize(
    ("load", "inject"),
    [(Load(budget=Budget(calls=1)), {}), (Load(), {2: Lost(at_ns=START, arm="a")})],
)
def test_an_alarm_that_a_block_left_behind_does_not_end_the_round_that_is_being_opened(
    load: Load, inject: dict[int, Event]
) -> None:
    # The second session is still to come when the first arm's block
    # closes; its instant falls into the second server's start.
    sessions = (talk("s", 2, wait_s=0.0), talk("later", 1, start_s=10.0))
    plan = started(1, (0, 1), sessions, load=load)
    log = play(plan, took(0.5), inject=inject)
    assert log.opened == [(0, "a"), (1, "b")]
    assert [(end.play.arm, end.round) for end in log.ends] == [("a", 0), ("b", 1)]
    assert "b" in {send.arm for send in log.sent}
