"""Read which plays of blocks count: whole pairs that nothing invalidated.

Theory of operation
-------------------
A run is stored as rows that nobody changes any more: its parts (legs), the blocks that were
played, the facts of its servers (fingerprints) and an attempt for each request. This module says
for each block whether it is evidence, and everything else about a block that statistics need.

Time. A run may have several parts, each with a monotonic clock of its own. The part's row holds
the same instant on both clocks, so blocks are ordered by wall time over all parts, and the time
of a block counts from the run's first one. A block of a part that is not stored has no place in
time, and is left out.

Which plays count. Warm-up blocks never count. A pair counts if at least two arms played it to its
end under one salt, and nothing invalidated one of its blocks (`model.blocks.pair_faults`). A pair
that was played again has another salt, so its first attempt is judged on its own.

Starts. Servers differ from one start to the next by more than plays do, so each play knows its
start. The starts of an arm are numbered as blocks meet them. A fingerprint with a new start time
of the process begins another start; one with a time that was seen before is the old start, whose
process was away meanwhile. Each process on each replica is a start of its own.

Attempts. An attempt belongs to the play of its part, arm and pair that was going on when it was
released. A play that was never closed ended when its pair was played again, or not at all. Only
the last attempt at a turn is evidence (`observations.last_attempts`); the earlier ones are kept,
as they are load that the server had.
"""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import duckdb
import polars as pl

from agentload.dispatch.checking import CHECK
from agentload.evidence.servers import ArmServer
from agentload.model.blocks import pair_faults
from agentload.model.controls import is_control, is_replica
from agentload.model.record import Record
from agentload.model.rows import ArmRow, BlockRow, FingerprintRow, LegRow

WARM_UP: Final = "warm-up"


class PlayedBlock(Record):
    """One block played on one arm."""

    number: int
    """Position in time over all arms and legs."""
    leg: int
    arm: str
    pair: int
    started_ns: int
    clock_ns: int
    """When its load began: in a window, after contexts were primed."""
    drain_ns: int | None
    ended_ns: int | None
    start_s: float
    """Seconds after the run's first block, across legs."""
    restart: int
    """Number of the start of this arm's server: each process on each replica has its own."""
    left_out: str | None
    """Why it is no evidence; None when it is."""
    is_void: bool
    machine: str | None = None
    """Machine of the arm's server during the play; None on a replica, which counts as a start."""


def plays(
    legs: Sequence[LegRow],
    arms: Sequence[ArmRow],
    fingerprints: Sequence[FingerprintRow],
    blocks: Sequence[BlockRow],
) -> tuple[PlayedBlock, ...]:
    """Return the plays of a run in order of time."""
    anchors = {row.leg: row.wall_ns - row.monotonic_ns for row in legs}
    # A block of a part that nobody knows has no place in time.
    placed = [(anchors[row.leg] + row.started_ns, row) for row in blocks if row.leg in anchors]
    placed.sort(key=lambda each: (each[0], each[1].arm))
    faults = pair_faults((row for _, row in placed), len(arms))
    machines = {row.arm: row.machine for row in arms}
    starts = _Starts(fingerprints)
    return tuple(
        PlayedBlock(
            number=number,
            leg=row.leg,
            arm=row.arm,
            pair=row.pair,
            started_ns=row.started_ns,
            clock_ns=row.started_ns if row.primed_ns is None else row.primed_ns,
            drain_ns=row.drain_ns,
            ended_ns=row.ended_ns,
            start_s=(wall_ns - placed[0][0]) / 1e9,
            restart=starts.number(row),
            left_out=WARM_UP if row.warmup else faults.get((row.pair, row.salt)),
            is_void=row.void is not None,
            machine=None if is_replica(row.machine) else row.machine or machines.get(row.arm),
        )
        for number, (wall_ns, row) in enumerate(placed)
    )


class _Starts:
    """Number the starts of each arm's servers as blocks meet them, the first being 0.

    A process that was away, while another one answered questions, is the same start as before. Each
    process of each replica is a start of its own.
    """

    def __init__(self, fingerprints: Sequence[FingerprintRow]) -> None:
        self._changes = _process_changes(fingerprints)
        self._replicas: dict[str, dict[tuple[str | None, int], int]] = defaultdict(dict)

    def number(self, row: BlockRow) -> int:
        """Return the start on which a block was played; ask in order of time."""
        changes = self._changes.get(row.arm, ())
        before = bisect_right(changes, (row.leg, row.started_ns), key=lambda each: each[:2])
        process = changes[before - 1][2] if before else 0
        if not is_replica(row.machine):
            return process
        known = self._replicas[row.arm]
        return known.setdefault((row.machine, process), len(known))


def _process_changes(
    fingerprints: Sequence[FingerprintRow],
) -> Mapping[str, Sequence[tuple[int, int, int]]]:
    """Return by arm each change of its server's process: (leg, ns, number of the start)."""
    known: dict[str, list[object]] = defaultdict(list)
    last: dict[str, object] = {}
    changes: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for row in fingerprints:
        start = json.loads(row.facts).get("process_start_s")
        if start is None or last.get(row.arm) == start:
            continue
        if start not in known[row.arm]:
            known[row.arm].append(start)
        if row.arm in last:
            changes[row.arm].append((row.leg, row.at_ns, known[row.arm].index(start)))
        last[row.arm] = start
    return changes


def valid_plays(plays: Iterable[PlayedBlock]) -> list[PlayedBlock]:
    """Return the plays that are evidence."""
    return [play for play in plays if play.left_out is None]


_TABLE: Final = {
    "number": pl.Int64,
    "leg": pl.Int64,
    "arm": pl.String,
    "pair": pl.Int64,
    "started_ns": pl.Int64,
    "clock_ns": pl.Int64,
    "ended_ns": pl.Int64,
    "start_s": pl.Float64,
    "restart": pl.Int64,
    "machine": pl.String,
    "left_out": pl.String,
}


@contextmanager
def plays_table(
    connection: duckdb.DuckDBPyConnection, plays: Sequence[PlayedBlock]
) -> Iterator[None]:
    """Let queries read when each arm was played from a table `plays`.

    `ended_ns` is null for a play that was never closed.
    """
    rows = [[getattr(play, name) for name in _TABLE] for play in plays]
    connection.register("plays", pl.DataFrame(rows, schema=_TABLE, orient="row"))
    try:
        yield
    finally:
        connection.unregister("plays")


# Sessions are numbered inside the database, and no list leaves it: a million calls are 200 MB.
_ATTEMPTS: Final = """
WITH own AS (SELECT session, retry_of FROM attempts WHERE run_id = $run),
sessions AS (SELECT session, row_number() OVER (ORDER BY session) - 1 AS number
    FROM (SELECT DISTINCT session FROM own)),
retried AS (SELECT DISTINCT retry_of FROM own WHERE retry_of IS NOT NULL),
checked AS (SELECT request_id, bool_and("right") AS "right" FROM graded
    WHERE run_id = $run AND starts_with(task, $check) GROUP BY request_id),
-- One that never ended was over when its pair was played again.
bounded AS (
    SELECT *, coalesce(ended_ns, lead(started_ns) OVER (PARTITION BY leg, arm, pair
        ORDER BY started_ns) - 1) AS until_ns FROM plays
)
SELECT p.number AS play, p.number IS NOT NULL AND p.left_out IS NULL AS counts, p.restart,
    p.machine,
    p.start_s + (c.began_ns - p.started_ns) / 1e9 AS start_s, c.pair,
    c.leg, c.arm, c.workload, s.number AS session, c.turn, c.status, c.http_status, c.tail, c.prime,
        r.retry_of IS NULL AS is_last,
    c.began_ns, c.sent_ns, c.first_ns, c.last_ns, c.done_ns, c.ttft_ms, c.tpot_ms, c.turn_ms,
        c.lag_ms,
    c.prompt_tokens, c.context_tokens, c.cached_tokens, c.hit_rate, c.asked_tokens,
        coalesce(c.output_tokens, c.streamed_tokens) AS tokens,
    c.coalesced_reads, c.stamp_source, c.chunk_count, c.turns_left, x."right"
FROM turns AS c
JOIN sessions AS s USING (session)
LEFT JOIN bounded AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair)
    AND c.released_ns BETWEEN p.started_ns AND coalesce(p.until_ns, c.released_ns)
LEFT JOIN retried AS r ON r.retry_of = c.request_id
LEFT JOIN checked AS x ON x.request_id = c.request_id
WHERE c.run_id = $run
"""


def attempts(
    connection: duckdb.DuckDBPyConnection, run_id: str, plays: Sequence[PlayedBlock]
) -> pl.DataFrame:
    """Read every attempt of a run as one frame of plain columns, one row an attempt.

    `play` is null for a call outside of all plays.
    """
    with plays_table(connection, plays):
        found: pl.DataFrame = connection.sql(_ATTEMPTS, params={"run": run_id, "check": CHECK}).pl()
        return found


def total(frame: pl.DataFrame, column: str) -> float:
    """Add up a column; as floats, because a sum of 32-bit token counts overflows."""
    return float(frame[column].cast(pl.Float64).sum())


class Machines(Record):
    """The machines of a run, and who ran where."""

    names: tuple[str, ...]
    """Sorted."""
    only: Mapping[str, str]
    """The machine of each arm that stayed on one."""
    is_swapped: bool
    """Every arm ran on every machine."""


def machines(arms: Sequence[ArmServer], plays: Sequence[PlayedBlock]) -> Machines:
    """Say which arm ran on which machine, by the plays that count.

    Where none was played, by what the arms were said to run on.
    """
    seen: dict[str, set[str]] = defaultdict(set)
    for play in valid_plays(plays):
        if play.machine is not None:
            seen[play.arm].add(play.machine)
    if not seen:
        seen.update({each.arm: {each.machine} for each in arms if each.machine is not None})
    names = tuple(sorted(set().union(*seen.values())))
    compared = [each.arm for each in arms if not is_control(each.arm)]
    return Machines(
        names=names,
        only={arm: next(iter(on)) for arm, on in seen.items() if len(on) == 1},
        is_swapped=len(names) > 1 and all(len(seen.get(arm, ())) == len(names) for arm in compared),
    )
