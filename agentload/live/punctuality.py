"""Measure how late requests left and how many chunks shared a stamp, of the calls that count.

All figures are by arm. The evidence of a run is the last attempt of every turn of its valid
pairs (`evidence.plays`, `evidence.observations`). A part of a run judges itself by the same calls
before they are stored, so that it and the report never give two figures for one quantity. A call
is noted when it ends; its block tells later whether it counted.
"""

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from agentload.model import metrics
from agentload.model.blocks import pair_faults
from agentload.model.controls import is_control
from agentload.model.rows import BlockRow, CallRow


@dataclass(slots=True)
class Punctuality:
    """Collect how punctual calls of one arm were."""

    lags_ns: "array[int]" = field(default_factory=lambda: array("q"))
    reads: int = 0
    coalesced: int = 0

    def add(self, row: CallRow, chunks: int) -> None:
        """Count an attempt whose answer came in *chunks* chunks."""
        lag_ns = metrics.lag_ns(row)
        if lag_ns is not None:
            self.lags_ns.append(lag_ns)
        if chunks and row.coalesced_reads is not None:
            self.reads += chunks
            self.coalesced += row.coalesced_reads

    def join(self, other: "Punctuality") -> None:
        """Add the counts of another object."""
        self.lags_ns.extend(other.lags_ns)
        self.reads += other.reads
        self.coalesced += other.coalesced

    @property
    def lag_p99_ms(self) -> float | None:
        """99th percentile of how late requests left."""
        lag_ns = metrics.p99(self.lags_ns)
        if lag_ns is None:
            return None
        return lag_ns / metrics.MS

    @property
    def lag_p50_ms(self) -> float | None:
        """Median of how late requests left."""
        middle = (len(self.lags_ns) - 1) // 2
        if not self.lags_ns:
            return None
        return sorted(self.lags_ns)[middle] / metrics.MS

    @property
    def coalesced_share(self) -> float | None:
        """Share of chunks that came in the same read as the chunk before them."""
        if not self.reads:
            return None
        return self.coalesced / self.reads


@dataclass(slots=True)
class _Block:
    sure: Punctuality = field(default_factory=Punctuality)
    failed: dict[str, tuple[CallRow, int]] = field(default_factory=dict)
    """Failed attempts; if a retry follows, it counts instead."""


class Attendance:
    """Collect calls and blocks of one part of a run, and sum up the calls that count."""

    def __init__(self, *, arms: int = 1) -> None:
        """Start empty; a pair has one block on each of *arms* arms."""
        self._arms = arms
        self._open: dict[tuple[int, str], _Block] = {}
        self._closed: list[tuple[BlockRow, _Block]] = []

    def ended(self, row: CallRow, chunks: int) -> None:
        """Note an attempt that is over."""
        block = self._open.get((row.pair, row.arm))
        if block is None:
            block = self._open[row.pair, row.arm] = _Block()
        if row.retry_of is not None:
            block.failed.pop(row.retry_of, None)
        if not metrics.is_outcome(row):
            return
        if row.status == "ok":
            block.sure.add(row, chunks)
        else:
            block.failed[row.request_id] = row, chunks

    def closed(self, row: BlockRow) -> None:
        """Note that a block is over, and whether it is valid."""
        self._closed.append((row, self._open.pop((row.pair, row.arm), _Block())))

    def by_arm(self) -> dict[str, Punctuality]:
        """Return the sums of each arm except controls, with blocks that are not over yet."""
        found: dict[str, Punctuality] = {}
        for arm, block in self._counted():
            if is_control(arm):
                continue
            own = found.setdefault(arm, Punctuality())
            own.join(block.sure)
            for row, chunks in block.failed.values():
                own.add(row, chunks)
        return found

    def _counted(self) -> Iterator[tuple[str, _Block]]:
        faults = pair_faults([row for row, _ in self._closed], self._arms)
        for row, block in self._closed:
            if not row.warmup and (row.pair, row.salt) not in faults:
                yield row.arm, block
        for (_, arm), block in self._open.items():
            yield arm, block
