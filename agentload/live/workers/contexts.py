"""Tell a context by what is new in it: it grows by a few segments a turn and may have hundreds.

Both ends keep the last context of each session that is being played on an arm. What is left of it is told as a number of leading segments.
"""

from __future__ import annotations

from agentload.model.trace import Segment

Key = tuple[str, str]
"""Arm and session."""


class Contexts:
    """One end's memory of what was told or heard last."""

    def __init__(self) -> None:
        self._last: dict[Key, tuple[Segment, ...]] = {}

    def new(self, key: Key, context: tuple[Segment, ...]) -> tuple[int, tuple[Segment, ...]]:
        """Return how many leading segments the other end has, and those behind them."""
        last = self._last.get(key, ())
        self._last[key] = context
        if last is context:
            return len(context), ()
        kept = 0
        for mine, told in zip(context, last, strict=False):
            if mine is not told:  # as good as equal, and compared at once: a context shares its segments with the one before
                break
            kept += 1
        return kept, context[kept:]

    def whole(self, key: Key, kept: int, new: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return the context that the other end means."""
        context = self._last.get(key, ())
        if kept < len(context) or new:
            context = context[:kept] + new
            self._last[key] = context
        return context

    def forget(self, key: Key) -> None:
        """Drop a session whose play is over."""
        self._last.pop(key, None)
