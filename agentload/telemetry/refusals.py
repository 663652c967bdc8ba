"""Pages that are refused: asked for less and less often, and never given up, for what refuses them may be a gateway's bad minute."""

from __future__ import annotations

from typing import Final

LONGEST_S: Final = 300.0


class Refusals:
    """Say which pages are worth a look."""

    def __init__(self, *, first_s: float) -> None:
        self._first_s = first_s
        self._wait_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def is_due(self, url: str, at_s: float) -> bool:
        """Tell whether to ask for a page now."""
        return at_s >= self._until_s.get(url, at_s)

    def refused(self, url: str, at_s: float) -> None:
        """Wait twice as long as the last time."""
        self._since_s.setdefault(url, at_s)
        self._wait_s[url] = wait_s = min(2 * self._wait_s[url], LONGEST_S) if url in self._wait_s else self._first_s
        self._until_s[url] = at_s + wait_s

    def answered(self, url: str, at_s: float) -> float | None:
        """Return for how long a page was refused before it answered now; None: it was not."""
        since_s = self._since_s.pop(url, None)
        self._wait_s.pop(url, None)
        self._until_s.pop(url, None)
        return None if since_s is None else at_s - since_s
