"""Bring the kernel's stamps, which are wall time, onto the monotonic axis that everything else is measured on.

Linux slews both clocks alike, so their difference is constant until somebody steps the wall clock. It is sampled all the time; a step is
counted, and calls that were in flight around it can be told.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

TRIES: Final = 5  # the narrowest of so many samples wins: an interrupt between two readings of the clocks widens it
STEP_NS: Final = 50_000  # a narrow sample is good to below a µs; a wider one than this is a step


class Clock:
    """Know how far the wall clock is ahead of the monotonic one."""

    def __init__(self, *, monotonic_ns: Callable[[], int] = time.monotonic_ns, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self.now_ns = monotonic_ns
        """The monotonic clock itself."""
        self.steps = 0
        """How often the wall clock was stepped."""
        self.largest_step_ns = 0
        self.offset_ns, self.width_ns = 0, 0
        self._wall_ns = wall_ns
        self.offset_ns, self.width_ns = self._measured()

    def sample(self) -> None:
        """Measure the offset again; adopt it and count a step when it has moved."""
        offset_ns, width_ns = self._measured()
        moved_ns = abs(offset_ns - self.offset_ns)
        if moved_ns > max(STEP_NS, width_ns):
            self.steps += 1
            self.largest_step_ns = max(self.largest_step_ns, moved_ns)
            self.offset_ns, self.width_ns = offset_ns, width_ns
        elif width_ns < self.width_ns:
            self.offset_ns, self.width_ns = offset_ns, width_ns

    def _measured(self) -> tuple[int, int]:
        best: tuple[int, int] | None = None
        for _ in range(TRIES):
            before = self.now_ns()
            wall = self._wall_ns()
            after = self.now_ns()
            if best is None or after - before < best[1]:
                best = (wall - (before + after) // 2, after - before)
        assert best is not None
        return best
