"""Sort rows and sessions by their starts in bounded memory.

Rows of interleaved sessions are packed into partitions by a hash of their session. Beyond the memory limit, partitions go to temporary
files; each is grouped and sorted separately, and the sorted runs are merged.
"""

import heapq
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from tempfile import TemporaryFile
from typing import IO, Final, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from agentload.model.trace import Session

_PARTITIONS: Final = 128
_MEMORY: Final = 48 << 20
"""Packed bytes in memory; unpacked rows take several times as much."""
_LENGTH: Final = struct.Struct("<I")


Grid = Literal["keep", "spread"]
"""How to treat equal start timestamps."""


class Row(Protocol):
    """One line of a log of interleaved sessions."""

    session: str
    at_s: float


R = TypeVar("R", bound=Row)
_Group: TypeAlias = list[tuple[int, R]]
"""A session's rows, numbered in source order."""


def grouped(rows: Iterable[R], kind: type[R], *, memory: int = _MEMORY) -> Iterator[list[R]]:
    """Yield each session's rows in time order, sessions in order of their first row; equal times keep source order."""
    spool = _Spool(memory)
    with spool.files:
        pack = msgspec.msgpack.Encoder().encode
        for number, row in enumerate(rows):
            spool.add(zlib.crc32(row.session.encode("utf-8", "surrogatepass")) % _PARTITIONS, pack((number, row)))
        unpack = msgspec.msgpack.Decoder(tuple[int, kind]).decode  # type: ignore[valid-type]  # the rows' type is a value here
        if not spool.has_spilled:
            groups: Iterable[_Group[R]] = _groups([unpack(packed) for part in spool.parts for packed in _items(part)])
        else:
            runs = [spool.sorted_run(part, unpack, pack) for part in range(_PARTITIONS)]
            several = msgspec.msgpack.Decoder(list[tuple[int, kind]]).decode  # type: ignore[valid-type]  # as above
            groups = heapq.merge(*(map(several, _stored(run)) for run in runs), key=_start)
        for group in groups:
            yield [row for _, row in group]


class _Spool:
    """Packed rows by partition, in memory or in files."""

    def __init__(self, memory: int) -> None:
        self.parts = [bytearray() for _ in range(_PARTITIONS)]
        self.files = ExitStack()
        self.has_spilled = False
        self._memory = memory
        self._held = 0
        self._spilled: list[IO[bytes]] = []

    def add(self, part: int, packed: bytes) -> None:
        self.parts[part] += _LENGTH.pack(len(packed)) + packed
        self._held += len(packed)
        if self._held > self._memory:
            self._spill()

    def sorted_run(self, part: int, unpack: Callable[[bytes], tuple[int, R]], pack: Callable[[object], bytes]) -> IO[bytes]:
        file = self._spilled[part]
        file.write(self.parts[part])
        self.parts[part].clear()
        file.seek(0)
        groups = _groups([unpack(packed) for packed in _stored(file)])
        file.seek(0)
        file.truncate()
        for group in groups:
            packed = pack(group)
            file.write(_LENGTH.pack(len(packed)) + packed)
        file.seek(0)
        return file

    def _spill(self) -> None:
        if not self.has_spilled:
            self._spilled = [self.files.enter_context(TemporaryFile(prefix="agentload-")) for _ in range(_PARTITIONS)]  # noqa: SIM115  # the stack closes them
            self.has_spilled = True
        for part, file in zip(self.parts, self._spilled, strict=True):
            file.write(part)
            part.clear()
        self._held = 0


def _groups(rows: list[tuple[int, R]]) -> list[_Group[R]]:
    rows.sort(key=lambda numbered: (numbered[1].at_s, numbered[0]))
    groups: dict[str, _Group[R]] = {}
    for number, row in rows:
        groups.setdefault(row.session, []).append((number, row))
    return list(groups.values())


def _start(group: _Group[R]) -> tuple[float, int]:
    number, row = group[0]
    return row.at_s, number


def _items(packed: bytearray) -> Iterator[bytes]:
    at = 0
    while at < len(packed):
        (length,) = _LENGTH.unpack_from(packed, at)
        at += _LENGTH.size + length
        yield bytes(packed[at - length : at])


def _stored(file: IO[bytes]) -> Iterator[bytes]:
    while header := file.read(_LENGTH.size):
        yield file.read(_LENGTH.unpack(header)[0])


def started(groups: Iterable[Sequence[R]], grid: Grid) -> Iterator[tuple[Sequence[R], float]]:
    """Pair each group with its start: its timestamp, or a separate time before the next one."""
    return spread(groups) if grid == "spread" else ((group, group[0].at_s) for group in groups)


def spread(groups: Iterable[Sequence[R]]) -> Iterator[tuple[Sequence[R], float]]:
    """Pair each group with a separate start: n groups with one timestamp start evenly spaced before the next one of the grid.

    The grid is the smallest distance of timestamps so far, so that nothing is moved into a pause.
    """
    step: float | None = None
    held: list[Sequence[R]] = []
    for at_s, same in groupby(groups, key=lambda group: group[0].at_s):
        if held:
            gap = at_s - held[0][0].at_s
            step = gap if step is None else min(step, gap)
        yield from _placed(held, step)
        held = list(same)
    yield from _placed(held, step)


def _placed(held: Sequence[Sequence[R]], step: float | None) -> Iterator[tuple[Sequence[R], float]]:
    for number, group in enumerate(held):
        yield group, group[0].at_s + (step or 0.0) * number / len(held)


def in_order(families: Iterable[tuple[float, Sequence[Session]]]) -> Iterator[Session]:
    """Yield families sorted by the start of their first session.

    Each comes with a time before which neither it nor any later one starts, so only overlapping ones are held.
    """
    held: list[tuple[float, int, Sequence[Session]]] = []
    for number, (not_before_s, family) in enumerate(families):
        while held and held[0][0] <= not_before_s:
            yield from heapq.heappop(held)[2]
        if family:
            heapq.heappush(held, (family[0].start_s or 0.0, number, family))
    while held:
        yield from heapq.heappop(held)[2]
