"""Read what starts of servers add: from an emulated server's profile, else from other runs.

The ratio of two arms differs from start to start by what both servers' starts added. Every pair of
starts gives one ratio: a run whose servers were started once, each of its replicas, each start of
those that were launched. Ratios of equal servers under an equal load are compared with each other,
within a run and across runs, and what a ratio's own scatter explains is subtracted: that of its
pairs, or of the halves of a pair that has a start of its own. What halves share and pairs do not,
such as a slow minute, cannot be told from a start: so the result is no less than a start adds. The
latest runs of the model in this database count; with fewer starts than show a scatter there is no
result, and the policy's assumption holds.
"""

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias

import duckdb
import numpy as np

from advisor.evidence import StartHistory
from advisor.statistics.starts import ENOUGH_STARTS
from agentload.evidence.plays import PlayedBlock, plays_table, valid_plays
from agentload.evidence.servers import ArmServer
from agentload.evidence.view import RunView, run_view
from agentload.model.controls import is_control
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.rows import LegRow, RunRow
from agentload.store.runs import latest_runs, latest_starts
from agentload.study.kinds import Replay, Study

EQUAL: Final = (
    "version",
    "kv_cache_dtype",
    "skip_layers",
    "attention_backend",
    "flash_version",
    "max_model_len",
)
"""Facts of a server that its pace depends on."""
LATEST: Final = 20  # runs: what servers were like years ago says little of a start today

FEWEST: Final = ENOUGH_STARTS // 2  # pairs of a run: fewer do not show their scatter

_RATIOS: Final = """
WITH own AS (
    SELECT c.arm, c.pair, c.session, c.turn, c.began_ns, ln(c.turn_ms) AS level FROM turns AS c
    JOIN plays AS p ON (p.leg, p.arm, p.pair) = (c.leg, c.arm, c.pair)
        AND c.released_ns BETWEEN p.started_ns AND coalesce(p.ended_ns, c.released_ns)
    WHERE c.run_id = $run AND p.left_out IS NULL AND c.status = 'ok' AND c.turn_ms > 0
        AND NOT c.prime
),
matched AS (
    SELECT b.arm, pair, b.level - a.level AS ratio, ntile(2) OVER (PARTITION BY b.arm, pair
        ORDER BY a.began_ns, session, turn) AS half
    FROM own AS a JOIN own AS b USING (pair, session, turn) WHERE a.arm = $first AND b.arm = $other
)
SELECT pair, avg(ratio), avg(ratio) FILTER (half = 1) - avg(ratio) FILTER (half = 2) FROM matched
    GROUP BY pair ORDER BY pair
"""

Told: TypeAlias = tuple[Hashable, Hashable]
"""Which process played, and what it was by what its pace depends on."""
_Report: TypeAlias = tuple[int, int, Mapping[str, object]]
"""Part of the run and instant at which a server told its facts, and the facts."""
_Pair: TypeAlias = tuple[int, float, float | None]
"""A pair of blocks, its mean log ratio, and how the ratios of its two halves differ."""


class _Ratio(Record):
    """What one pair of starts showed: a mean log ratio, with the variance of its own pairs."""

    run: str
    like: Hashable
    """What other ratios have to share to be held against it."""
    servers: tuple[Hashable, Hashable]
    value: float
    variance: float


def of_profile(made: Study | None, profile: ArmProfile | None) -> StartHistory | None:
    """Return what the starts of emulated servers add, as their profile draws it."""
    if profile is None:
        return None
    is_noisy = getattr(getattr(made, "servers", None), "noise", True)
    return StartHistory(
        spread=profile.noise.restart_sigma if is_noisy else 0.0,
        source=f"as profile {profile.profile} has it",
    )


def of_history(connection: duckdb.DuckDBPyConnection, run: RunRow) -> StartHistory | None:
    """Return what starts added in other runs of the model, or None where too few were made."""
    names = latest_runs(connection, model=run.model, but=run.run_id, latest=LATEST)
    several = [ratios for ratios in _groups(connection, names) if len(ratios) > 1]
    freedom = sum(len(ratios) - 1 for ratios in several)
    if freedom < ENOUGH_STARTS:
        return None
    beyond = sum((len(ratios) - 1) * _beyond(ratios) for ratios in several)
    runs = len({ratio.run for ratios in several for ratio in ratios})
    return StartHistory(
        spread=math.sqrt(max(0.0, beyond) / freedom / 2),  # a ratio has a start on each side
        source=f"{sum(map(len, several))} starts in {runs} run{'' if runs == 1 else 's'} of this "
        "database",
    )


def _groups(
    connection: duckdb.DuckDBPyConnection, names: Sequence[str]
) -> Collection[Sequence[_Ratio]]:
    """Return the ratios of these runs, grouped by what makes them comparable."""
    groups: dict[Hashable, list[_Ratio]] = defaultdict(list)
    seen: set[Hashable] = set()
    for name in names:
        for ratio in _of_run(connection, run_view(connection, name)):
            # A server that served two runs was started once.
            started = {(ratio.like, server) for server in ratio.servers}
            if seen.isdisjoint(started):
                seen |= started
                groups[ratio.like].append(ratio)
    return groups.values()


def _beyond(ratios: Sequence[_Ratio]) -> float:
    """Return by how much the variance between ratios exceeds the mean of their own variances."""
    return _spread([each.value for each in ratios]) - _mean([each.variance for each in ratios])


def _spread(values: Sequence[float]) -> float:
    return float(np.var(values, ddof=1))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def checks_ms(
    connection: duckdb.DuckDBPyConnection, run: RunRow, servers: Sequence[ArmServer]
) -> Mapping[str, tuple[float, ...]]:
    """Return by arm what a short request took after the starts of equal servers in other runs."""
    before = latest_starts(connection, model=run.model, but=run.run_id, latest=LATEST)
    return {
        server.arm: tuple(float(said["check_ms"]) for said in before if _are_equal(said, server))
        for server in servers
    }


def _are_equal(said: Mapping[str, object], server: ArmServer) -> bool:
    return all(said.get(name) == server.facts.get(name) for name in EQUAL)


def _of_run(connection: duckdb.DuckDBPyConnection, view: RunView) -> Iterator[_Ratio]:
    """Yield what each pair of starts of a run showed, of every arm against the first by name.

    A run of a few pairs yields nothing.
    """
    told = _told(view)
    first, *others = sorted({arm for arm, _ in told if not is_control(arm)}) or [""]
    with plays_table(connection, view.plays):
        for other in others:
            rows = connection.execute(
                _RATIOS, {"run": view.name, "first": first, "other": other}
            ).fetchall()
            known = [row for row in rows if (first, row[0]) in told and (other, row[0]) in told]
            if len(known) >= FEWEST:
                yield from _of_pairs(known, told, view=view, arms=(first, other))


def _of_pairs(
    rows: Sequence[_Pair],
    told: Mapping[tuple[str, int], Told],
    *,
    view: RunView,
    arms: tuple[str, str],
) -> Iterator[_Ratio]:
    units: dict[tuple[Hashable, Hashable], list[_Pair]] = defaultdict(list)
    for row in rows:
        units[told[arms[0], row[0]][0], told[arms[1], row[0]][0]].append(row)
    within = _within(rows, units.values())
    if within is None:
        return
    load = _load(view)
    for servers, own in units.items():
        yield _Ratio(
            run=view.name,
            like=(load, *((arm, told[arm, own[0][0]][1]) for arm in arms)),
            servers=servers,
            value=_mean([value for _, value, _ in own]),
            variance=within / len(own),
        )


def _within(rows: Sequence[_Pair], units: Collection[Sequence[_Pair]]) -> float | None:
    """Return the variance of pairs that share a start, else that from the halves of pairs.

    None where neither can be had.
    """
    freedom = len(rows) - len(units)
    if freedom:
        means = ((own, _mean([value for _, value, _ in own])) for own in units)
        return sum((value - mean) ** 2 for own, mean in means for _, value, _ in own) / freedom
    halves = [(half / 2) ** 2 for _, _, half in rows if half is not None]
    if len(halves) != len(rows):
        return None
    return _mean(halves)


def _told(view: RunView) -> dict[tuple[str, int], Told]:
    """Return which process played each counted pair on each arm, and its facts of `EQUAL`.

    Where a server does not report when it started, the process is this run's own.
    """
    reports: dict[str, list[_Report]] = defaultdict(list)
    for row in sorted(view.fingerprints, key=lambda each: (each.leg, each.at_ns)):
        reports[row.arm].append((row.leg, row.at_ns, json.loads(row.facts)))
    out: dict[tuple[str, int], Told] = {}
    for play in valid_plays(view.plays):
        facts = _facts(reports[play.arm], play)
        began = facts.get("process_start_s")
        own_process = (view.name, play.arm, play.restart)
        process = own_process if began is None else (play.arm, began)
        pace = json.dumps([facts.get(name) for name in EQUAL])
        out[play.arm, play.pair] = (process, pace)
    return out


def _facts(reports: Sequence[_Report], play: PlayedBlock) -> Mapping[str, object]:
    """Return the facts that held for a play: of the last report before it, else of the first."""
    began = (play.leg, play.started_ns)
    before = bisect_right(reports, began, key=lambda each: each[:2])
    if not reports:
        return {}
    return reports[max(0, before - 1)][2]


def _load(view: RunView) -> Hashable:
    """Return what a ratio depends on besides its servers: the trace and how it was played.

    A run that does not say it is like no other.
    """
    study = view.study()
    if not isinstance(study, Replay) or view.run.trace_hash is None:
        return view.name
    return (
        view.run.trace_hash,
        repr(study.load),
        study.windows,
        study.benchmark,
        study.capacity,
        study.design,
        study.cache,
    )


def pairs_by_part(legs: Sequence[LegRow]) -> dict[int, int]:
    """Return how many pairs each part of the run was to reach; a killed part has no entry."""
    said = {row.leg: json.loads(row.health).get("pairs") for row in legs if row.health}
    return {leg: pairs for leg, pairs in said.items() if pairs is not None}


def looks(
    played: Sequence[PlayedBlock],
    planned: int | None,
    wanted: Mapping[int, int] = MappingProxyType({}),
) -> int:
    """Count how often a run reached the length that was asked for.

    That is once, and once more for each part that went beyond what had been planned.
    *wanted* is how long the run was to be, by part: one command may play several.
    """
    last: dict[int, int] = {}
    for play in valid_plays(played):
        last[play.leg] = max(play.pair, last.get(play.leg, 0))
    count = 1
    reached = planned if planned is not None else max(last.values(), default=0) + 1
    for leg in sorted(last):
        if last[leg] >= reached:
            count = count + 1
            reached = max(wanted.get(leg, 0), last[leg] + 1)
    return count
