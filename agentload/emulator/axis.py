"""Two axes of time: the shell's ns, and the engine's ps since its first request."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.steptime import PS_PER_NS


class Axis:
    """Turn instants of one axis into those of the other."""

    __slots__ = ("is_started", "origin_ns")

    def __init__(self) -> None:
        self.origin_ns = 0
        self.is_started = False

    def start(self, at_ns: int) -> None:
        """Let the engine's axis begin here, unless it has begun."""
        if not self.is_started:
            self.origin_ns, self.is_started = at_ns, True

    def ps(self, at_ns: int) -> int:
        """Return an instant of the shell on the engine's axis."""
        return (at_ns - self.origin_ns) * PS_PER_NS

    def ns(self, at_ps: int) -> int:
        """Return an instant of the engine on the shell's axis, upwards: a shell that advances to it gets what happens at it."""
        return self.origin_ns - (-at_ps // PS_PER_NS)

    def stamps(self, ends_ps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return many instants of the engine on the shell's axis."""
        return -(-ends_ps // PS_PER_NS) + self.origin_ns
