"""What a window is likely to play, at the nominal speed."""

from __future__ import annotations

from dataclasses import replace

from agentload.layout.nominal import nominal_calls
from agentload.model.plan import Block, Budget, ClosedLoop, Load
from agentload.model.trace import PRIME, Header, Segment, Session, Turn

PRIMED = Turn(add=(Segment(role="user", tokens=5_000, key="before"),), output=1, event=PRIME)


def ask(*, output: int = 50, wait_s: float = 0.0) -> Turn:
    return Turn(add=(), output=output, wait="tool" if wait_s else None, wait_s=wait_s)


def session(name: str, *turns: Turn, start_s: float | None = 0.0) -> Session:
    return Session(session=name, workload="w", turns=turns, start_s=start_s)


def seen(sessions: tuple[Session, ...], load: Load) -> list[tuple[str, int, float]]:
    found = nominal_calls(Header(name="t"), Block(index=0, sessions=sessions, is_window=True), load)
    return [
        (each.session.session, each.session.turns.index(each.turn), round(each.sent_s, 6))
        for each in found
        if each.counts
    ]


def closed(sessions: int, **budget: float) -> Load:
    # numbers
    return Load(arrivals=ClosedLoop(sessions=sessions), budget=Budget(**budget))  # type: ignore[arg-type]


def test_calls_count_from_the_clock_and_the_next_session_takes_a_free_place() -> None:
    going = session("s", PRIMED, ask(), ask(output=60, wait_s=2.0))
    found = seen((going, session("t", ask(output=500))), closed(1, seconds=20.0))
    assert found == [("s", 1, 0.0), ("s", 2, 3.0), ("t", 0, 4.2)]


def test_priming_a_child_delays_nobody() -> None:
    parent = session("p", replace(PRIMED, spawn=("c",)), ask(wait_s=1.0))
    child = session("c", PRIMED, ask(wait_s=2.0), start_s=None)
    found = seen((parent, child), closed(1, seconds=20.0))
    assert found == [("p", 1, 1.0), ("c", 1, 2.0)]


def test_a_window_ends_where_its_calls_or_tokens_are_spent() -> None:
    going = session("s", PRIMED, *(ask(output=50 + place) for place in range(9)))
    assert [turn for _, turn, _ in seen((going,), closed(1, calls=3))] == [1, 2, 3]
    assert [turn for _, turn, _ in seen((going,), closed(1, tokens=10_050))] == [1, 2]
    assert [turn for _, turn, _ in seen((going,), closed(1, seconds=3.5))] == [1, 2, 3, 4]
