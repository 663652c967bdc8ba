"""Fold the calls of a running run into the figures that the terminal and the page draw."""

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from agentload.model import metrics
from agentload.model.metrics import NOT_OUTCOMES
from agentload.model.record import Record
from agentload.model.rows import CallRow

SECOND: Final = 1_000_000_000
WINDOW: Final = 512
"""Latest calls of an arm that the quantiles are taken from."""


class LatestSpread(Record):
    """Two quantiles of the latest calls."""

    p50: float
    p95: float


def is_shown(row: CallRow) -> bool:
    """Tell whether a call's times are shown: answered and no priming, as in a run's summary."""
    return row.status == "ok" and not row.prime


@dataclass(slots=True, kw_only=True)
class _Output:
    """Hold the tokens that an arm wrote in one block, and when."""

    block: tuple[int, int]
    """Part of the run, and pair."""
    from_ns: int
    until_ns: int
    tokens: int = 0


@dataclass(slots=True)
class Latest:
    """Hold the calls of one arm, folded as they end."""

    done: int = 0
    """Ended calls of the plan; a call that is tried again counts once."""
    statuses: Counter[str] = field(default_factory=Counter)
    """Number of attempts by status."""
    _ttft_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _tpot_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _late_ms: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    _output: _Output | None = None

    def take(self, row: CallRow, since_ns: int) -> None:
        """Add a call, whose turn's clock started at *since_ns*.

        A priming call counts for its tokens alone.
        """
        if row.first_ns is not None:
            self._wrote(row, row.done_ns or row.first_ns)
        if row.prime:
            return
        self.done += row.retry_of is None
        if (late_ms := metrics.lag_ms(row)) is not None:
            self._late_ms.append(late_ms)
        self.statuses[row.status] += 1
        if not is_shown(row):
            return
        if (ttft_ms := metrics.ttft_ms(row, since_ns)) is not None:
            self._ttft_ms.append(ttft_ms)
        if (tpot_ms := metrics.tpot_ms(row)) is not None:
            self._tpot_ms.append(tpot_ms)

    def _wrote(self, row: CallRow, until_ns: int) -> None:
        block = (row.leg, row.pair)
        if self._output is None or block != self._output.block:
            if self._output is not None and row.released_ns < self._output.from_ns:
                return  # a call of an earlier block: workers report one after the other
            self._output = _Output(block=block, from_ns=row.released_ns, until_ns=row.released_ns)
        self._output.tokens += row.output_tokens or 0
        self._output.from_ns = min(self._output.from_ns, row.released_ns)
        self._output.until_ns = max(self._output.until_ns, until_ns)

    def total(self, expected: int | None) -> int | None:
        """Return how many calls are planned; None once more are done, as then it was a guess.

        It is one with a time budget, and where invalid pairs are played again.
        """
        return None if expected is None or self.done > expected else expected

    def begin(self) -> None:
        """Forget the output so far, whose times are of an earlier process's clock."""
        self._output = None

    @property
    def tokens_per_s(self) -> float | None:
        """Return the rate of output tokens in the current or latest block.

        None before it lasted a second.
        """
        if self._output is None:
            return None
        seconds = (self._output.until_ns - self._output.from_ns) / SECOND
        if seconds > 1:
            return self._output.tokens / seconds
        return None

    @property
    def failed(self) -> tuple[tuple[str, int], ...]:
        """Number of attempts that failed by status; the most frequent first."""
        return tuple(
            (status, count)
            for status, count in self.statuses.most_common()
            if status not in {"ok", *NOT_OUTCOMES}
        )

    @property
    def ttft_ms(self) -> LatestSpread | None:
        """Return the spread of times to first token; None where there are none."""
        return _spread(self._ttft_ms)

    @property
    def late_ms(self) -> float | None:
        """Return the 99th percentile of how late requests left; None where none left."""
        return metrics.p99(self._late_ms)

    @property
    def tpot_ms(self) -> LatestSpread | None:
        """Return the spread of times per output token; None where there are none."""
        return _spread(self._tpot_ms)


def share(arms: Mapping[str, Latest], expected: Mapping[str, int]) -> float | None:
    """Return the share of the expected calls of all arms that are done.

    None where none are expected, or an arm has done more: then nobody knows the share.
    """
    total = sum(expected.values())
    if any(arms[name].total(count) is None for name, count in expected.items() if name in arms):
        return None
    done = sum(arms[name].done for name in expected if name in arms)
    return done / total if total else None


def _spread(values: Iterable[float]) -> LatestSpread | None:
    """Return the quantiles by their ranks, as a run's summary and a report do."""
    ordered = sorted(values)
    if not ordered:
        return None
    p50, p95 = (ordered[math.ceil(share * len(ordered)) - 1] for share in (0.5, 0.95))
    return LatestSpread(p50=p50, p95=p95)
