"""Sessions of equal turns, and when their calls went."""

from __future__ import annotations

from dataclasses import replace

from agentload.model.trace import Session, Turn
from tests.dispatch.playing import Log, S, said


def talk(
    name: str, turns: int, *, start_s: float | None = 0.0, wait_s: float = 1.0, **first: object
) -> Session:
    def turn(i: int) -> Turn:
        made = Turn(
            add=(said("user", 5, f"{name}.{i}"),),
            output=4,
            wait="user" if i else None,
            wait_s=wait_s if i else 0.0,
        )
        return replace(made, **first) if i == 0 else made  # type: ignore[arg-type]

    return Session(
        session=name,
        workload="chat",
        start_s=start_s,
        prefix="P",
        turns=tuple(turn(i) for i in range(turns)),
    )


def instants(log: Log) -> list[tuple[str, int, float]]:
    return [(d.send.call.session, d.send.call.turn, d.sent_ns / S) for d in log.done]
