"""What the latest calls of an arm took, while a
run is on: the terminal and the page show the same.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from agentload.model import metrics
from agentload.model.rows import CallRow

WINDOW: Final = 512
"""Calls that the quantiles are taken from: the latest of an arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Two quantiles of the latest calls."""

    p50: float
    p95: float


def is_shown(row: CallRow) -> bool:
    """Tell whether a call is one of those whose times are shown:
    it is answered, and no priming call, as in a run's summary.
    """
    return row.status == "ok" and not row.prime


@dataclass(slots=True)
class Latest:
    """The calls of one arm, folded as they end."""

    done: int = 0
    """Those of the plan: one that is tried again is counted once."""
    statuses: Counter[str] = field(default_factory=Counter)
    _ttft_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _tpot_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def take(self, row: CallRow, since_ns: int) -> None:
        """Add a call, whose turn's clock started at
        *since_ns*; one that counts for nothing is passed over.
        """
        if row.prime:
            return
        self.done += row.retry_of is None
        self.statuses[row.status] += 1
        if not is_shown(row):
            return
        if (ttft_ms := metrics.ttft_ms(row, since_ns)) is not None:
            self._ttft_ms.append(ttft_ms)
        if (tpot_ms := metrics.tpot_ms(row)) is not None:
            self._tpot_ms.append(tpot_ms)

    @property
    def failed(self) -> tuple[tuple[str, int], ...]:
        """Return how many calls ended how, without those that are ok; the most frequent first."""
        return tuple(
            (status, count) for status, count in self.statuses.most_common() if status != "ok"
        )

    @property
    def ttft_ms(self) -> Spread | None:
        """Return the spread of times to first token; None where there are none."""
        return _spread(self._ttft_ms)

    @property
    def tpot_ms(self) -> Spread | None:
        """Return the spread of times per output token; None where there are none."""
        return _spread(self._tpot_ms)


def _spread(values: Iterable[float]) -> Spread | None:
    ordered = sorted(values)
    return (
        Spread(p50=ordered[(len(ordered) - 1) // 2], p95=ordered[int(0.95 * (len(ordered) - 1))])
        if ordered
        else None
    )
