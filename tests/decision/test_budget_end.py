"""A decision ends with its budget, whatever its servers do, in the time of a virtual clock."""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest

from agentload.decision.budget import BudgetSpentError
from agentload.decision.forecast import LookPrice
from agentload.decision.look import Look
from agentload.decision.play import Deciding
from agentload.errors import InterruptError
from agentload.run import door
from agentload.run.ask import Evaluated
from agentload.run.audience import Audience, ending, finish
from agentload.run.place import StudyPlace
from agentload.run.record import Stored
from agentload.study.kinds import Ask, Decide, Probe, Search
from agentload.study.parts import Live, Load, Slo, TraceRef

T = TypeVar("T")
BUDGET_S = 180.0
URLS = Live(endpoints="bf16=http://127.0.0.1:9/v1,fp8=http://127.0.0.1:8/v1")
STUDY = Decide(
    traces=(TraceRef(path="demo-chat"),),
    servers=URLS,
    load=Load(sessions=4),
    slo=Slo(ttft_ms=2000.0),
    budget_s=BUDGET_S,
)


@dataclass
class Clock:
    """Hold the time of a loop that never waits: it jumps to what is due next."""

    now_s: float = 1000.0

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine to its end in this time."""
        with asyncio.Runner(loop_factory=partial(VirtualLoop, self)) as runner:
            return runner.run(work)


class Jumping(selectors.DefaultSelector):
    """Advance the clock where a loop would wait."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Look what is ready now."""
        found = super().select(0)
        assert found or timeout is not None, "a loop that waits for ever"
        if not found:
            self._clock.now_s += timeout or 0.0
        return found


class VirtualLoop(asyncio.SelectorEventLoop):
    """Run in the time of a clock."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(Jumping(clock))
        self._clock = clock

    def time(self) -> float:
        """Return the time of the clock."""
        return self._clock.now_s


@dataclass
class Part:
    """Play what ends at the second stop alone, as answers that never end."""

    stops: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """Hear a stop."""
        self.stops += 1
        if self.stops == 2:
            self.over.set()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Return the clock that everything goes by."""
    made = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(asyncio, "run", made.run)
    return made


async def for_ever() -> None:
    """Wait for a server that never answers."""
    await asyncio.sleep(1e9)


async def until_cancelled(audience: Audience) -> None:
    """Play calls that never end."""
    part = Part()
    with ending(part.stop, audience):
        await part.over.wait()


def endless(study: object, _: object, audience: Audience, **__: object) -> object:
    """Carry out a study whose servers never answer, as the door does for its kind."""
    match study:
        case Probe() | Search():
            return finish(for_ever(), audience)
        case Ask(screen=True):
            stops = asyncio.Event()

            async def asking() -> None:
                with audience.stopping(stops.set):
                    await stops.wait()

            asyncio.run(asking())
            return Stored(run_id="r", was_stopped=stops.is_set())
        case Ask():
            asyncio.run(until_cancelled(audience))
            return Evaluated(run_id="r", was_stopped=True, left=12, answered=0, failed=0)
        case _:
            try:
                asyncio.run(until_cancelled(audience))
            finally:
                raise InterruptError("stopped before anything was sent")


def deciding(folder: Path) -> Deciding:
    """Return a decision between servers that are there."""
    place = StudyPlace(database=folder / "x.duckdb", run="r")
    return Deciding(study=STUDY, place=place, audience=Audience())


@pytest.mark.parametrize(
    "look",
    [
        Look(criterion="checks"),
        Look(criterion="service level"),
        Look(criterion="canary", amount=12, lengths=(8192,)),
        Look(criterion="screen"),
        Look(criterion="speed", amount=1),
        Look(criterion="capacity", amount=3),
        Look(criterion="accuracy", amount=30, lengths=(8192,)),
    ],
    ids=lambda look: look.criterion,
)
@pytest.mark.parametrize("computed_s", [0.0, 60.0, 300.0])
def test_a_question_that_never_ends_ends_with_the_budget_however_late_it_is_asked(
    look: Look, computed_s: float, tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "carry_out", endless)
    made = deciding(tmp_path)
    made._agenda.twins.aside = "a search is what takes longest"
    began_s = clock.now_s
    clock.now_s += computed_s  # verdicts and twins
    with pytest.raises(BudgetSpentError):
        made._ask(look, LookPrice(minutes=0.5))
    assert clock.now_s - began_s <= max(computed_s, 1.1 * BUDGET_S) + 0.04 * BUDGET_S + 1e-6


def test_what_was_computed_since_the_last_question_is_not_left_for_the_next(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Look(criterion="accuracy", amount=30, lengths=(8192,))
    made = deciding(tmp_path)
    monkeypatch.setattr(Deciding, "_know", lambda _: setattr(clock, "now_s", clock.now_s + 150))
    monkeypatch.setattr(Deciding, "_offers", lambda _: [(asked, LookPrice(minutes=1.0))])
    monkeypatch.setattr(Deciding, "_is_first", lambda _: False)
    outcome = made._under_one_load()
    assert (outcome.ending, outcome.wants and outcome.wants[0]) == ("budget", asked)
    assert outcome.left_minutes == BUDGET_S / 60, "what is resumed does not compute it again"
