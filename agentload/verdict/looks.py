"""Hold what each look at the block pairs of a decision found, and read it from a run."""

import json
import math
from collections.abc import Iterable

import msgspec

from advisor.verdict import Word
from agentload.model.record import Record
from agentload.model.rows import ProbeRow


class SpeedInterval(Record):
    """State the change of one arm's turn latency as one look at the pairs found it."""

    arm: str
    pairs: int
    value: float
    low: float
    """Minus infinity where the interval is open."""
    high: float
    margin: float
    """A smaller change does not count."""
    is_open: bool
    """The arm has no verdict yet."""

    @property
    def possible(self) -> tuple[Word, ...]:
        """Verdicts that the interval does not rule out."""
        within = abs(math.expm1(2 * math.log1p(self.margin)))
        claims: tuple[tuple[Word, bool], ...] = (
            ("use", self.low < -self.margin),
            ("no difference", self.low < within and self.high > -within),
            ("avoid", self.high > self.margin),
        )
        return tuple(word for word, is_possible in claims if is_possible)


def speed_looks(asked: Iterable[ProbeRow]) -> tuple[SpeedInterval, ...]:
    """Read what the looks of a decision found from the questions that it wrote down."""
    found = (json.loads(row.detail or "{}") for row in asked if row.outcome == "asked")
    return tuple(
        msgspec.convert(interval, SpeedInterval)
        for each in found
        for interval in each.get("intervals", ())
    )
