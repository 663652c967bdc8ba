"""How long a matrix still takes, and how much of its time a step may have."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from agentload.matrix.parts import Part
from agentload.matrix.steps import Step

FOREVER: Final = float("inf")


class Pace:
    """Know what was expected and what was spent."""

    def __init__(self, *, minutes: float | None, is_done: Callable[[Step], bool]) -> None:
        """Begin now; None: there is all the time in the world."""
        self._until = FOREVER if minutes is None else time.monotonic() + 60 * minutes
        self._is_done = is_done
        self._spent_s = self._expected_s = 0.0

    def spent(self, seconds: float, *, expected_minutes: float) -> None:
        """Note what a step took."""
        self._spent_s += seconds
        self._expected_s += 60 * expected_minutes

    def minutes_left(self, parts: Sequence[Part], step: Step) -> float:
        """Return how long this step and all behind it take, by how long the others took."""
        expected = sum(minutes for _, minutes in self._ahead(parts, step))
        return expected * self._spent_s / self._expected_s if self._expected_s > 0 else expected

    def until(self, parts: Sequence[Part], step: Step) -> float:
        """Return the instant at which a step's share of the time is over; what was measured is always reported."""
        if self._until == FOREVER or step.kind == "report":
            return FOREVER
        ahead = {each.key: minutes for each, minutes in self._ahead(parts, step)}
        now, whole = time.monotonic(), sum(ahead.values())
        return now + max(0.0, self._until - now) * (ahead[step.key] / whole if whole else 1.0)

    def _ahead(self, parts: Sequence[Part], step: Step) -> Iterator[tuple[Step, float]]:
        """Yield this step and those that are to come, with the minutes that each was expected to take."""
        steps = [(each, part.estimates[each.name].minutes) for part in parts for each in part.steps]
        place = next(place for place, (each, _) in enumerate(steps) if each.key == step.key)
        yield from ((each, minutes) for each, minutes in steps[place:] if each.key == step.key or not self._is_done(each))
