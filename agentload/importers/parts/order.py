"""Sort rows and sessions by their starts in bounded memory.

Rows of interleaved sessions go through a temporary database.
"""

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from agentload.model.record import Record
from agentload.model.trace import Session

_MEMORY: Final = 48 << 20
"""Bytes that the database keeps in memory; SQLite writes the rest to a temporary file."""
_ORDERED: Final = """
SELECT first, (SELECT packed FROM rows AS own WHERE own.number = ordered.number) FROM (
    SELECT number, at_s, first_value(at_s) OVER own AS start_s, first_value(number)
        OVER own AS first
    FROM rows WINDOW own AS (PARTITION BY session ORDER BY at_s, number)
) AS ordered ORDER BY start_s, first, at_s, number
"""

Grid = Literal["keep", "spread"]
"""How to treat equal start timestamps."""


class SessionRow(Protocol):
    """One line of a log of interleaved sessions."""

    session: str
    at_s: float


R = TypeVar("R", bound=SessionRow)
R_co = TypeVar("R_co", bound=SessionRow, covariant=True)
Starts: TypeAlias = Iterator[tuple[Sequence[R], float]]
"""The rows of each session, with its start."""


def by_session(rows: Iterable[R], kind: type[R], *, memory: int = _MEMORY) -> Iterator[list[R]]:
    """Yield each session's rows in time order, the session with the earliest row first.

    Equal times keep source order.
    """
    pack = msgspec.msgpack.Encoder().encode
    unpack = msgspec.msgpack.Decoder(kind).decode
    with closing(sqlite3.connect("")) as database:
        database.execute(f"PRAGMA cache_size = -{memory >> 10}")
        database.execute(
            "CREATE TABLE rows (session BLOB, at_s REAL, number INTEGER PRIMARY KEY, packed BLOB)"
        )
        packed = (
            (row.session.encode("utf-8", "surrogatepass"), row.at_s, number, pack(row))
            for number, row in enumerate(rows)
        )
        database.executemany("INSERT INTO rows VALUES (?, ?, ?, ?)", packed)
        for _, group in groupby(database.execute(_ORDERED), key=itemgetter(0)):
            yield [unpack(found) for _, found in group]


class CallGroup(Record, Generic[R_co]):
    """The calls of one session, with the session's name."""

    name: str
    calls: Sequence[R_co]
    at_s: float
    """Start of the session on the source's time axis."""
    origin_s: float
    """Start of the trace on the source's time axis."""

    @property
    def start_s(self) -> float:
        """Start of the session in the trace."""
        return round(self.at_s - self.origin_s, 6)


def groups(found: Iterable[Sequence[R]], grid: Grid = "keep") -> Iterator[CallGroup[R]]:
    """Name the sessions and give each a start: its timestamp, or a time of its own."""
    origin_s: float | None = None
    for number, (calls, at_s) in enumerate(_starts(found, grid)):
        origin_s = at_s if origin_s is None else origin_s
        yield CallGroup(name=f"s{number}", calls=calls, at_s=at_s, origin_s=origin_s)


def _starts(found: Iterable[Sequence[R]], grid: Grid) -> Starts[R]:
    if grid == "spread":
        return spread(found)
    return ((calls, calls[0].at_s) for calls in found)


def spread(found: Iterable[Sequence[R]]) -> Starts[R]:
    """Pair each group with a start of its own: equal timestamps are spaced evenly.

    Groups with one timestamp all start before the next point of the grid. The grid is the
    smallest distance of timestamps so far, so that nothing is moved into a pause.
    """
    step: float | None = None
    held: list[Sequence[R]] = []
    for at_s, same in groupby(found, key=lambda calls: calls[0].at_s):
        if held:
            gap = at_s - held[0][0].at_s
            step = gap if step is None else min(step, gap)
        yield from _with_starts(held, step)
        held = list(same)
    yield from _with_starts(held, step)


def _with_starts(held: Sequence[Sequence[R]], step: float | None) -> Starts[R]:
    """Pair groups of one timestamp with starts that divide the step evenly."""
    for number, calls in enumerate(held):
        yield calls, calls[0].at_s + (step or 0.0) * number / len(held)


def in_order(families: Iterable[tuple[float, Sequence[Session]]]) -> Iterator[Session]:
    """Yield families sorted by the start of their first session.

    Each comes with a time before which neither it nor any
    later one starts, so only overlapping ones are held.
    """
    held: list[tuple[float, int, Sequence[Session]]] = []
    for number, (not_before_s, family) in enumerate(families):
        while held and held[0][0] <= not_before_s:
            yield from heapq.heappop(held)[2]
        if family:
            heapq.heappush(held, (family[0].start_s or 0.0, number, family))
    while held:
        yield from heapq.heappop(held)[2]
