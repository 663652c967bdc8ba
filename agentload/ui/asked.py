"""What a browser asked for, as a value that answers can be kept by."""

from __future__ import annotations

from dataclasses import dataclass

from agentload.errors import AgentloadError


class NotFoundError(AgentloadError):
    """Report a page, run or job that there is none of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A page, whom it is about, and the words of its query."""

    page: str
    name: str = ""
    """The run or job in the path."""
    other: str = ""
    """The second run of a comparison."""
    words: tuple[tuple[str, str], ...] = ()
    journalled: tuple[str, ...] = ()
    """Runs that have a journal and are not on: the database may not have them yet."""

    def word(self, key: str) -> str:
        """Return a word of the query, empty where it is not there."""
        return next((value for name, value in self.words if name == key), "").strip()

    def number(self, key: str) -> int:
        """Return a number of the query from 1 on; 1 where it is none."""
        text = self.word(key)
        return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 10 else 1
