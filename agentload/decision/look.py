"""Name one question of a decision: its criterion,
and how much of it there is in all once it was asked.
"""

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Criterion: TypeAlias = Literal[
    "checks", "service level", "canary", "screen", "speed", "step times", "capacity", "accuracy"
]
"""Five are none of their own: checks, the service level, a canary
and a screen say whether measuring is worth it, step times where.
"""

PAIRS: Final = (4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 46, 64)
"""Block pairs in all, look by look."""
FIRST: Final = 1
"""Pair that shows what the servers are: what is known of
their version and kernel may decide before speed is looked at.
"""
ITEMS: Final = (30, 120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550, 2100)
"""Paired questions in all, look by look; the first tell whether the reference can answer at all."""
DRAWS: Final = (3, 6, 12)
"""Draws of sessions in all that every arm plays at two loads, look by look."""
REPEATS: Final = 3
"""Plays of the grid of step times, at most."""
LENGTHS: Final = (8192, 32768)
"""Where nothing tells how long contexts get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """One question: so many pairs in all, so many items in all at
    these lengths, so many plays of a grid, so many draws for capacity.
    """

    criterion: Criterion
    amount: int = 1
    lengths: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """Say what the question is."""
        match self.criterion:
            case "checks":
                return "checks, whether a comparison can work"
            case "service level":
                return "service level, whether a single session meets it"
            case "speed":
                return f"speed, {self.amount} block pair{'' if self.amount == 1 else 's'}"
            case "step times":
                return "step times, that twins of the arms are fitted to"
            case "capacity":
                return f"capacity, {self.amount} draws of sessions"
            case "canary":
                return f"canary, {self.amount} questions at the longest contexts"
            case "screen":
                return "a screen of the answers, whether they are broken"
            case "accuracy":
                return f"accuracy, {self.amount:,} paired questions"
