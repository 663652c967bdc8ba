"""What starts of servers add: by the profile that an
emulated one follows, else by other runs of this database.

The ratio of two arms differs from start to start by what both servers' starts added. Every pair of
starts tells one ratio: a run whose servers were started once, each of its replicas, each start of
those that were launched. Ratios of equal servers under an equal load are held against each other,
within a run and across runs, and what a ratio's own scatter explains is taken off: that of its
pairs, or of the halves of a pair that has a start of its own. What halves share and pairs do not,
a slow minute, is not told from a start: so this is no less than a start adds. The latest runs of
the model count; fewer starts than tell a scatter tell nothing, and the policy's assumption holds.
"""

import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

import duckdb
import numpy as np

from advisor.evidence import StartHistory
from advisor.statistics.starts import ENOUGH_STARTS
from agentload.evidence import plays
from agentload.evidence.servers import Server
from agentload.model.controls import is_control
from agentload.model.profile import ArmProfile
from agentload.model.rows import FingerprintRow, LegRow, RunRow
from agentload.store import tables
from agentload.store.runs import measured, starts
from agentload.study.kinds import Replay, Study
from agentload.study.stored import study_of

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

FEWEST: Final = ENOUGH_STARTS // 2  # pairs of a run: fewer do not tell what they scatter by

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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratio:
    """What one pair of starts showed: a mean log
    ratio, with the variance of its own that it has.
    """

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
    names = measured(connection, model=run.model, but=run.run_id, latest=LATEST)
    groups: dict[Hashable, list[_Ratio]] = defaultdict(list)
    seen: set[Hashable] = set()
    runs: dict[Hashable, set[str]] = defaultdict(set)
    for name in names:
        for ratio in _of_run(connection, name):
            # A server that served two runs was started once.
            if seen.isdisjoint((ratio.like, server) for server in ratio.servers):
                seen.update((ratio.like, server) for server in ratio.servers)
                groups[ratio.like].append(ratio)
                runs[ratio.like].add(name)
    several = {like: ratios for like, ratios in groups.items() if len(ratios) > 1}
    freedom = sum(len(ratios) - 1 for ratios in several.values())
    if freedom < ENOUGH_STARTS:
        return None
    beyond = sum(
        (len(ratios) - 1)
        * (_spread([r.value for r in ratios]) - _mean([r.variance for r in ratios]))
        for ratios in several.values()
    )
    told = len(frozenset[str]().union(*(runs[like] for like in several)))
    source = (
        f"{sum(map(len, several.values()))} starts in {told} run{'' if told == 1 else 's'} of "
        "this database"
    )
    return StartHistory(
        spread=math.sqrt(max(0.0, beyond) / freedom / 2), source=source
    )  # a ratio has a start on each side


def _spread(values: Sequence[float]) -> float:
    return float(np.var(values, ddof=1))


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def checks_ms(
    connection: duckdb.DuckDBPyConnection, run: RunRow, server: Server
) -> tuple[float, ...]:
    """Return what a short request took after the starts of equal servers in other runs."""
    before = starts(connection, model=run.model, but=run.run_id, latest=LATEST)
    return tuple(
        float(said["check_ms"])
        for said in before
        if all(said.get(name) == server.facts.get(name) for name in EQUAL)
    )


def _of_run(connection: duckdb.DuckDBPyConnection, run_id: str) -> Iterator[_Ratio]:
    """Yield what each pair of starts of a run showed, of every arm
    against the first by name; nothing of a run of a few pairs.
    """
    (run,) = tables.rows(connection, RunRow, run_id=run_id)
    played = plays.plays(connection, run_id)
    told = _told(connection, run_id, played)
    first, *others = sorted({arm for arm, _ in told if not is_control(arm)}) or [""]
    with plays.tabled(connection, played):
        for other in others:
            rows = connection.execute(
                _RATIOS, {"run": run_id, "first": first, "other": other}
            ).fetchall()
            known = [row for row in rows if (first, row[0]) in told and (other, row[0]) in told]
            if len(known) >= FEWEST:
                yield from _of_pairs(known, told, load=_load(run), arms=(first, other))


def _of_pairs(
    rows: Sequence[tuple[int, float, float | None]],
    told: Mapping[tuple[str, int], Told],
    *,
    load: Hashable,
    arms: tuple[str, str],
) -> Iterator[_Ratio]:
    units: dict[tuple[Hashable, Hashable], list[tuple[int, float, float | None]]] = defaultdict(
        list
    )
    for row in rows:
        units[told[arms[0], row[0]][0], told[arms[1], row[0]][0]].append(row)
    left = len(rows) - len(units)
    halves = [(half / 2) ** 2 for _, _, half in rows if half is not None]
    if left:
        squares = sum(
            (ratio - _mean([value for _, value, _ in own])) ** 2
            for own in units.values()
            for _, ratio, _ in own
        )
        within = squares / left
    elif len(halves) == len(rows):
        within = _mean(halves)
    else:
        return
    for servers, own in units.items():
        like = (load, *((arm, told[arm, own[0][0]][1]) for arm in arms))
        yield _Ratio(
            like=like,
            servers=servers,
            value=_mean([value for _, value, _ in own]),
            variance=within / len(own),
        )


def _told(
    connection: duckdb.DuckDBPyConnection, run_id: str, played: Sequence[plays.Play]
) -> dict[tuple[str, int], Told]:
    """Return which process played each pair that counts on each arm,
    and what it was; where nobody told when it began, it is this run's.
    """
    said: dict[str, list[tuple[int, int, dict[str, object]]]] = defaultdict(list)
    for row in tables.rows(connection, FingerprintRow, run_id=run_id):
        said[row.arm].append((row.leg, row.at_ns, json.loads(row.facts)))
    out: dict[tuple[str, int], Told] = {}
    for play in plays.counted(played):
        own = sorted(said[play.arm], key=lambda each: each[:2])
        before = bisect_right(own, (play.leg, play.started_ns), key=lambda each: each[:2])
        facts = own[max(0, before - 1)][2] if own else {}
        began = facts.get("process_start_s")
        process = (run_id, play.arm, play.restart) if began is None else (play.arm, began)
        out[play.arm, play.pair] = process, json.dumps([facts.get(name) for name in EQUAL])
    return out


def _load(run: RunRow) -> Hashable:
    """Return what a ratio depends on beside its servers: the trace and how it was played.

    A run that does not say it is like no other.
    """
    study = study_of(run)
    if not isinstance(study, Replay) or run.trace_hash is None:
        return run.run_id
    return (
        run.trace_hash,
        repr(study.load),
        study.windows,
        study.capacity,
        study.design,
        study.cache,
    )


def asked(connection: duckdb.DuckDBPyConnection, run_id: str) -> dict[int, int]:
    """Return how many pairs the run was to have, by part; none of a part that was killed."""
    said = {
        row.leg: json.loads(row.health).get("pairs")
        for row in tables.rows(connection, LegRow, run_id=run_id)
        if row.health
    }
    return {leg: pairs for leg, pairs in said.items() if pairs is not None}


def looks(
    played: Sequence[plays.Play],
    planned: int | None,
    wanted: Mapping[int, int] = MappingProxyType({}),
) -> int:
    """Count how often a run was as long as it was asked to be: once,
    and once more for each part that went beyond what had been planned.

    *wanted* is how long the run was to be, by part: one command may play several.
    """
    last: dict[int, int] = {}
    for play in plays.counted(played):
        last[play.leg] = max(play.pair, last.get(play.leg, 0))
    count, reached = 1, planned if planned is not None else max(last.values(), default=0) + 1
    for leg in sorted(last):
        if last[leg] >= reached:
            count, reached = count + 1, max(wanted.get(leg, 0), last[leg] + 1)
    return count
