"""Which plays of blocks count: whole pairs that nothing has voided, each with its place in time and the server start it ran on."""

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb
import polars as pl

from agentload.model.rows import ArmRow, BlockRow, FingerprintRow, LegRow
from agentload.store import tables

WARM_UP: Final = "warm-up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Play:
    """One block played on one arm."""

    number: int
    """Position in time over all arms and legs."""
    leg: int
    arm: str
    pair: int
    started_ns: int
    drain_ns: int | None
    ended_ns: int | None
    start_s: float
    """Seconds after the run's first block, across legs."""
    restart: int
    """Which start of this arm's server: changes whenever its process does."""
    left_out: str | None
    """Why it is no evidence; None when it is."""
    is_void: bool
    machine: str | None = None
    """Where the arm's server ran meanwhile."""


def plays(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Play, ...]:
    """Read the plays of a run in order of time."""
    anchors = {row.leg: row.wall_ns - row.monotonic_ns for row in tables.rows(connection, LegRow, run_id=run_id)}
    machines = {row.arm: row.machine for row in tables.rows(connection, ArmRow, run_id=run_id)}
    played = [(anchors[row.leg] + row.started_ns, row) for row in tables.rows(connection, BlockRow, run_id=run_id) if row.leg in anchors]
    played.sort(key=lambda each: (each[0], each[1].arm))
    faults = _pair_faults((row for _, row in played), len(machines))
    starts = _restarts(connection, run_id)
    return tuple(
        Play(
            number=number,
            leg=row.leg,
            arm=row.arm,
            pair=row.pair,
            started_ns=row.started_ns,
            drain_ns=row.drain_ns,
            ended_ns=row.ended_ns,
            start_s=(wall_ns - played[0][0]) / 1e9,
            restart=starts.at(row.arm, row.leg, row.started_ns),
            left_out=WARM_UP if row.warmup else faults.get((row.pair, row.salt)),
            is_void=row.void is not None,
            machine=row.machine or machines.get(row.arm),
        )
        for number, (wall_ns, row) in enumerate(played)
    )


def _pair_faults(blocks: Iterable[BlockRow], arms: int) -> dict[tuple[int, str], str]:
    """Say what is wrong with a pair as a whole: what voids one half voids the other, and a half alone compares nothing."""
    played: dict[tuple[int, str], set[str]] = defaultdict(set)
    faults: dict[tuple[int, str], str] = {}
    for row in blocks:
        played[row.pair, row.salt].add(row.arm)
        if row.void is not None:
            faults[row.pair, row.salt] = row.void
        elif row.ended_ns is None:
            faults.setdefault((row.pair, row.salt), "not played to its end")
    for key, on in played.items():
        if len(on) < min(arms, 2):
            faults.setdefault(key, "played on one arm alone")
    return faults


@dataclass(frozen=True, slots=True)
class _Restarts:
    instants: Mapping[str, Sequence[tuple[int, int]]]
    """By arm (leg, ns) of each change, in order."""

    def at(self, arm: str, leg: int, started_ns: int) -> int:
        return bisect_right(self.instants.get(arm, ()), (leg, started_ns))


def _restarts(connection: duckdb.DuckDBPyConnection, run_id: str) -> _Restarts:
    known: dict[str, object] = {}
    changes: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in tables.rows(connection, FingerprintRow, run_id=run_id):
        start = json.loads(row.facts).get("process_start_s")
        if start is not None and known.setdefault(row.arm, start) != start:
            known[row.arm] = start
            changes[row.arm].append((row.leg, row.at_ns))
    return _Restarts(changes)


def counted(plays: Iterable[Play]) -> list[Play]:
    """Return the plays that are evidence."""
    return [play for play in plays if play.left_out is None]


@contextmanager
def tabled(connection: duckdb.DuckDBPyConnection, plays: Sequence[Play]) -> Iterator[None]:
    """Let queries read when each arm was played from a table `plays`."""
    table = pl.DataFrame(
        [(play.leg, play.arm, play.pair, play.started_ns, play.ended_ns) for play in plays],
        schema={"leg": pl.Int64, "arm": pl.String, "pair": pl.Int64, "started_ns": pl.Int64, "until_ns": pl.Int64},
        orient="row",
    )
    connection.register("plays", table)
    try:
        yield
    finally:
        connection.unregister("plays")
