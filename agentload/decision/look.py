"""Name one question of a decision: its criterion, and its amount in all once asked."""

from typing import Final, Literal, TypeAlias

from agentload.model.record import Record

Criterion: TypeAlias = Literal[
    "checks", "service level", "canary", "screen", "speed", "step times", "capacity", "accuracy"
]
"""What a question is about.

Five are no criteria of a verdict: checks, the service level, a canary and a screen say whether
measuring is worth it, step times say where.
"""

PAIRS: Final = (4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 46, 64)
"""Block pairs in all, look by look."""
FIRST: Final = 1
"""First pairs, which show what the servers are.

What is known of their version and kernel may decide before speed is looked at.
"""
ITEMS: Final = (30, 120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550, 2100)
"""Paired questions in all, look by look; the first show whether the reference can answer."""
DRAWS: Final = (3, 6, 12)
"""Draws of sessions in all that every arm plays at two loads, look by look."""
REPEATS: Final = 3
"""Most plays of the grid of step times."""
LENGTHS: Final = (8192, 32768)
"""Lengths of questions where the lengths of contexts are unknown."""


class Look(Record):
    """Name one question and its amount in all.

    The amount counts pairs, items at these lengths, plays of a grid, or draws for capacity.
    """

    criterion: Criterion
    amount: int = 1
    lengths: tuple[int, ...] = ()

    @property
    def what(self) -> str:
        """What is asked, without its criterion."""
        if self.criterion == "step times":
            return "the step times of each arm"
        return self.title.partition(", ")[2] or self.title

    @property
    def title(self) -> str:
        """Title of the question."""
        match self.criterion:
            case "checks":
                return "checks, whether a comparison can work"
            case "service level":
                return "service level, whether a single session meets it"
            case "speed":
                return f"speed, {self.amount} block pair{'' if self.amount == 1 else 's'}"
            case "step times":
                return "step times, for simulated twins of the arms"
            case "capacity":
                return f"capacity, {self.amount} draws of sessions"
            case "canary":
                return f"canary, {self.amount} questions at the longest contexts"
            case "screen":
                return "a screen of the answers, whether they are broken"
            case "accuracy":
                return f"accuracy, {self.amount:,} paired questions"
