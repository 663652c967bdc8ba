"""Which plays of blocks count: whole pairs that nothing has voided, each with its place in time and the server start it ran on."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb
import polars as pl

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
    """Which start of the servers: changes whenever a server process of the run does."""
    left_out: str | None
    """Why it is no evidence; None when it is."""
    is_void: bool
    machine: str | None = None
    """Where the arm's server ran meanwhile."""


def plays(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[Play, ...]:
    """Read the plays of a run in order of time."""
    rows = connection.execute(
        """
        SELECT b.leg, b.arm, b.pair, b.salt, b.started_ns, b.drain_ns, b.ended_ns, b.warmup, b.void,
               coalesce(b.machine, a.machine), l.wall_ns + (b.started_ns - l.monotonic_ns) AS wall_ns
        FROM blocks AS b JOIN legs AS l USING (run_id, leg) LEFT JOIN arms AS a USING (run_id, arm)
        WHERE run_id = ? ORDER BY wall_ns, b.arm
        """,
        [run_id],
    ).fetchall()
    arms = _arms(connection, run_id)
    faults = _pair_faults(((pair, salt, arm, ended_ns, void) for _, arm, pair, salt, _, _, ended_ns, _, void, *_ in rows), arms)
    starts = _restarts(connection, run_id)
    return tuple(
        Play(
            number=number,
            leg=leg,
            arm=arm,
            pair=pair,
            started_ns=started_ns,
            drain_ns=drain_ns,
            ended_ns=ended_ns,
            start_s=(wall_ns - rows[0][-1]) / 1e9,
            restart=starts.at(leg, started_ns),
            left_out=WARM_UP if warmup else faults.get((pair, salt)),
            is_void=void is not None,
            machine=machine,
        )
        for number, (leg, arm, pair, salt, started_ns, drain_ns, ended_ns, warmup, void, machine, wall_ns) in enumerate(rows)
    )


def _arms(connection: duckdb.DuckDBPyConnection, run_id: str) -> int:
    ((count,),) = connection.execute("SELECT count(*) FROM arms WHERE run_id = ?", [run_id]).fetchall()
    return int(count)


def _pair_faults(rows: Iterable[tuple[int, str, str, int | None, str | None]], arms: int) -> dict[tuple[int, str], str]:
    """Say what is wrong with a pair as a whole: what voids one half voids the other, and a half alone compares nothing."""
    played: dict[tuple[int, str], set[str]] = defaultdict(set)
    faults: dict[tuple[int, str], str] = {}
    for pair, salt, arm, ended_ns, void in rows:
        played[pair, salt].add(arm)
        if void is not None:
            faults[pair, salt] = void
        elif ended_ns is None:
            faults.setdefault((pair, salt), "not played to its end")
    for key, on in played.items():
        if len(on) < min(arms, 2):
            faults.setdefault(key, "played on one arm alone")
    return faults


@dataclass(frozen=True, slots=True)
class _Restarts:
    instants: tuple[tuple[int, int], ...]
    """(leg, ns) of each change, in order."""

    def at(self, leg: int, started_ns: int) -> int:
        return bisect_right(self.instants, (leg, started_ns))


def _restarts(connection: duckdb.DuckDBPyConnection, run_id: str) -> _Restarts:
    rows = connection.execute(
        "SELECT leg, at_ns, arm, facts FROM fingerprints WHERE run_id = ? ORDER BY leg, at_ns, arm", [run_id]
    ).fetchall()
    known: dict[str, object] = {}
    changes = []
    for leg, at_ns, arm, facts in rows:
        start = json.loads(facts).get("process_start_s")
        if start is not None and known.setdefault(arm, start) != start:
            known[arm] = start
            changes.append((leg, at_ns))
    return _Restarts(tuple(changes))


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
