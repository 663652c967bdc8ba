"""Collect what an import met: malformed records, oddities, estimates and what was left out, each with a count.

Texts given to it name kinds and places, never content: the summary of an import is as private as the import.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentload.errors import TraceError

Tolerance: TypeAlias = Literal["strict", "normal", "lenient"]
"""strict: every oddity is an error; normal: malformed records are errors; lenient: they are skipped and counted."""


@dataclass(slots=True)
class Notes:
    """Count by kind, and keep the first place of each."""

    tolerance: Tolerance = "normal"
    malformed: Counter[str] = field(default_factory=Counter)
    odd: Counter[str] = field(default_factory=Counter)
    estimated: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    """The place where a malformed record or an oddity of this kind was first met."""

    def skip(self, place: str, what: str) -> None:
        """Leave a record out that cannot be read; raise `TraceError` unless lenient."""
        if self.tolerance != "lenient":
            raise TraceError(f"{place}: {what}", hint="--lenient leaves such records out and counts them")
        self.malformed[what] += 1
        self.first.setdefault(what, place)

    def meet(self, place: str, what: str, count: int = 1) -> None:
        """Import something odd as far as it is meaningful; raise `TraceError` if strict."""
        if self.tolerance == "strict":
            raise TraceError(f"{place}: {what}", hint="without --strict it is imported as far as it is meaningful, and counted")
        self.odd[what] += count
        self.first.setdefault(what, place)

    def estimate(self, what: str, count: int = 1) -> None:
        """Say that a value is not in the source and was put together."""
        self.estimated[what] += count

    def drop(self, what: str, count: int = 1) -> None:
        """Say that something of the source has no place in a trace."""
        self.dropped[what] += count

    def placed(self, counts: Mapping[str, int]) -> tuple[tuple[str, int, str | None], ...]:
        """Return (what, count, first place), most frequent first."""
        return tuple((what, count, self.first.get(what)) for what, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])))
