"""What a run says of capacity: steps of searches stored next to it,
combinations of features, and a long primed run as a step of its own.

A pool is full once as many tokens as it holds were written: what was not found
in the cache, and what was answered. Servers count pages that are kept for later
readers as free, so their gauge alone does not see it.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import duckdb
import polars as pl

from advisor.assess.capacity import SHARE, limits
from advisor.estimate import Estimate
from advisor.evidence import Arm, CapacityPoint, Probe, Telemetry, TwinChange
from advisor.policy import Slo
from advisor.statistics.crossing import Crossing, Tried, crossing
from agentload.evidence.plays import Play
from agentload.evidence.telemetry import hit_rate
from agentload.model.apart import ISOLATION
from agentload.model.rows import ProbeRow
from agentload.store import tables
from agentload.study.kinds import Replay
from agentload.study.quantity import limits as stated

PROBE: Final = "capacity"
ALONE: Final = "service level"
"""Trials of a single session, whose waits are cut
short: is an arm within the service level at all?
"""
TWINS: Final = "twins"
"""Changes of turn latency in long runs of both arms' twins."""
VOID: Final = "void"
"""Outcome of a step that says nothing of the server."""
FULL: Final = 0.95  # a pool this full evicts for every prompt that comes
# of what later turns could find again: more than the share
# moves from one load to the next while everything fits
EVICTED: Final = 0.02
OF_THE_TURNS: Final = frozenset({None, "errors", "slo"})
"""Trouble that the share of turns within the service level tells by itself."""

Step: TypeAlias = tuple[float, int, int, str | None, float | None]
"""A trial's load, its turns, those within the service
level, its trouble, and what each of its sessions is worth.
"""
_Scope: TypeAlias = tuple[str, str | None]
"""An arm, and the workload that its sessions were of; None: all that the run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a search for concurrency ended with: the most sessions
    that hold, and the fewest that surely do not. None: its own bound.
    """

    arm: str
    workload: str | None
    holds: int | None
    breaks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    at_ns: int
    agents: int
    share: float
    """Of the turns that had to hold the service level."""
    limits: str
    """Those of the service level, as they are typed."""
    detail: dict[str, Any]


def held(
    connection: duckdb.DuckDBPyConnection, run_id: str, workloads: Collection[str]
) -> tuple[Held, ...]:
    """Read what the searches beside a run found; *workloads* are the run's classes."""
    together: dict[tuple[str | None, float], dict[str, tuple[CapacityPoint, ...]]] = defaultdict(
        dict
    )
    for (arm, workload), steps in _searches(connection, run_id, workloads).items():
        together[workload, steps[0].share][arm] = tuple(_points(arm, workload, steps))
    return tuple(
        Held(
            arm=arm,
            workload=workload,
            holds=math.floor(limit.value) or None,
            breaks=None if limit.high is None else math.floor(limit.high) + 1,
        )
        for (workload, share), points in together.items()
        for arm, limit in limits(points, share=share).items()
    )


def capacity(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    arms: Collection[str],
    workloads: Collection[str],
) -> tuple[CapacityPoint, ...]:
    """Read the steps of a run's arms; *workloads* are the run's classes."""
    searches = _searches(connection, run_id, workloads)
    return tuple(
        point
        for scope, steps in searches.items()
        if scope[0] in arms
        for point in _points(*scope, steps)
    )


def alone(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]
) -> tuple[CapacityPoint, ...]:
    """Read the trials of a single session of a run's
    arms, of the last time that it was asked for.
    """
    searches = _searches(connection, run_id, (), probe=ALONE)
    known = {scope: steps for scope, steps in searches.items() if scope[0] in arms}
    return tuple(
        point for scope, steps in known.items() for point in _points(scope[0], None, steps)
    )


def twin_changes(connection: duckdb.DuckDBPyConnection, run_id: str) -> tuple[TwinChange, ...]:
    """Read how turn latencies compare on the twins
    of a run, under each load as it was said last.
    """
    found: dict[tuple[str, str], TwinChange] = {}
    for row in sorted(
        tables.rows(connection, ProbeRow, run_id=run_id, probe=TWINS), key=lambda row: row.at_ns
    ):
        relative = Estimate(**json.loads(row.detail or "{}"))
        found[row.arm, row.settings] = TwinChange(
            arm=row.arm, relative=relative, **json.loads(row.settings)
        )
    return tuple(found.values())


def fit(trials: Mapping[str, Sequence[Step]], *, share: float) -> Crossing:
    """Regress what trials say of the load that each arm carries."""
    tried = {
        arm: [
            Tried.of(load, turns, within, None if trouble in OF_THE_TURNS else trouble, worth=worth)
            for load, turns, within, trouble, worth in own
        ]
        for arm, own in trials.items()
    }
    return crossing(tried, share=share)


def next_search(connection: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Return a number behind those of all searches beside a run, for one that has no date."""
    return (
        max(
            (row.at_ns for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=PROBE)),
            default=-1,
        )
        + 1
    )


def _searches(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    workloads: Collection[str],
    *,
    probe: str = PROBE,
) -> Mapping[_Scope, tuple[_Step, ...]]:
    """Return the last search of each scope: one that was made again,
    of a changed server or with other limits, is another search.
    """
    found: dict[_Scope, list[_Step]] = defaultdict(list)
    kept = tables.rows(connection, ProbeRow, run_id=run_id, probe=probe)
    tried = [(row, json.loads(row.settings)) for row in kept if row.outcome != VOID]
    for row, settings in sorted(tried, key=lambda each: (each[0].arm, each[1]["agents"])):
        classes = settings.get("classes", ())
        scope = (
            row.arm,
            None if set(workloads) <= set(classes) or not classes else " + ".join(classes),
        )
        step = _Step(
            at_ns=row.at_ns,
            agents=settings["agents"],
            share=settings.get("share", SHARE),
            limits=settings.get("slo") or "",
            detail=json.loads(row.detail or "{}"),
        )
        found[scope].append(step)
    newest = {scope: max(step.at_ns for step in steps) for scope, steps in found.items()}
    return {
        scope: tuple(step for step in steps if step.at_ns == newest[scope])
        for scope, steps in found.items()
    }


def _points(arm: str, workload: str | None, steps: Collection[_Step]) -> Iterator[CapacityPoint]:
    best = max(
        (found for step in steps if (found := step.detail.get("found_again")) is not None),
        default=0.0,
    )
    for step in steps:
        detail = step.detail
        peak, preemptions, found_again = (
            detail["peak_kv_usage"],
            detail["preemptions"],
            detail.get("found_again"),
        )
        # Servers count cached pages that nobody uses as free; that
        # they were evicted shows in contexts that are no longer found.
        evicted = found_again is not None and found_again < best - EVICTED
        trouble = detail.get("trouble")
        yield CapacityPoint(
            arm=arm,
            workload=workload,
            agents=step.agents,
            turns=detail["turns"],
            within_slo=detail["within"],
            minutes=detail["minutes"],
            trouble=None if trouble in OF_THE_TURNS else trouble,
            pool_filled=None
            if peak is None and found_again is None
            else (peak or 0.0) >= FULL or bool(preemptions) or evicted,
            preemptions=preemptions,
            hit_rate=detail["hit_rate"],
            output_tokens_per_s=detail["output_tokens_per_s"],
            worth=detail.get("worth"),
            error=detail.get("error", 0.0),
            slo=_level(step),
            ttft_ms=detail.get("ttft_ms"),
            tpot_ms=detail.get("tpot_ms"),
            turn_ms=detail.get("turn_ms"),
        )


def _level(step: _Step) -> Slo | None:
    if not step.limits:
        return None
    limit = stated(step.limits, "slo").get
    return Slo(
        ttft_ms=limit("ttft_ms"),
        tpot_ms=limit("tpot_ms"),
        turn_ms=limit("turn_ms"),
        share=step.share,
    )


def isolation(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]
) -> tuple[Probe, ...]:
    """Read the cells of a run's arms; of one that was tried again, the last counts."""
    found: dict[tuple[str, str], Probe] = {}
    for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=ISOLATION):
        if row.arm in arms:
            found.pop((row.arm, row.settings), None)
            detail = json.loads(row.detail or "{}").get("detail", "")
            found[row.arm, row.settings] = Probe(
                arm=row.arm,
                **json.loads(row.settings),
                outcome=cast(Any, row.outcome),
                detail=detail,
            )
    return tuple(found.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """How far one arm's pool filled in its plays."""

    tokens: float | None
    written: float | None
    """In the play that wrote least; None where the
    server does not say what it found in its cache.
    """
    full_from_s: Mapping[int, float]
    """By play that filled it: how long after its begin."""
    share: float
    """Of the time of all plays, with the pool full."""
    is_full: bool | None
    """In every play; None: nobody could tell."""


def pool(arm: Arm, frame: pl.DataFrame, plays: Sequence[Play], figures: Telemetry) -> Pool:
    """Say how far an arm's pool filled; *frame* has all attempts, priming ones included."""
    own = [
        play
        for play in plays
        if play.arm == arm.name and play.left_out is None and play.ended_ns is not None
    ]
    tokens = arm.pool_tokens or arm.expected_pool_tokens
    seconds = {
        play.number: ((play.ended_ns or play.started_ns) - play.started_ns) / 1e9 for play in own
    }
    written = {
        play.number: _written(frame.filter(pl.col("play") == play.number), play) for play in own
    }
    known = {number: found for number, found in written.items() if found is not None}
    full_from = (
        {}
        if tokens is None
        else {
            number: at
            for number, found in known.items()
            if (at := _full_from(found, tokens)) is not None
        }
    )
    by_tokens = sum(seconds[number] - at for number, at in full_from.items()) / (
        sum(seconds.values()) or 1.0
    )
    by_gauge = figures.pool_filled_share or 0.0
    is_seen = bool(figures.preemptions) or by_gauge > 0
    is_told = tokens is not None and len(known) == len(own) > 0
    return Pool(
        tokens=tokens,
        written=min(
            # a float column
            (float(found["written"].max() or 0.0) for found in known.values()),  # type: ignore[arg-type]
            default=None,
        ),
        full_from_s=full_from,
        share=max(by_tokens, by_gauge),
        is_full=True if is_seen else len(full_from) == len(own) if is_told else None,
    )


def point(
    study: Replay,
    arm: str,
    rows: pl.DataFrame,
    plays: Sequence[Play],
    *,
    figures: Telemetry,
    found: Pool,
) -> CapacityPoint:
    """Return a long run as one step of a search for capacity: of turns
    that were released while the pool was full, where it ever was.

    *rows* are the counted ones.
    """
    begins = {play.number: play.start_s + found.full_from_s.get(play.number, 0.0) for play in plays}
    own = rows.filter(pl.col("arm") == arm).with_columns(
        full_s=pl.col("play").replace_strict(begins, return_dtype=pl.Float64)
    )
    kept = own.filter(pl.col("start_s") >= pl.col("full_s"))
    return CapacityPoint(
        arm=arm,
        agents=study.capacity or 0,
        turns=kept.height,
        within_slo=sum(
            study.slo.holds(*each)
            for each in kept.select("status", "ttft_ms", "tpot_ms", "turn_ms").iter_rows()
        ),
        minutes=figures.minutes or 0.0,
        pool_filled=found.is_full,
        preemptions=figures.preemptions,
        hit_rate=hit_rate(kept),
    )


def notes(pools: Mapping[str, Pool]) -> Iterator[str]:
    """Say where capacity is not tested, and why."""
    for arm, found in pools.items():
        if found.is_full is None:
            yield f"{arm}: nobody could tell whether the KV pool filled: capacity is not tested"
        elif not found.is_full:
            share = (
                ""
                if not found.tokens or found.written is None
                else f" ({found.written / found.tokens:.0%} of {found.tokens:,.0f} tokens)"
            )
            yield (
                f"{arm}: the KV pool never filled{share}: capacity is not tested; play longer, "
                "or with more sessions"
            )


def _written(rows: pl.DataFrame, play: Play) -> pl.DataFrame | None:
    """Return how many tokens were written after how many seconds
    of a play; None where the server says nothing of its cache.
    """
    answered = rows.filter(pl.col("done_ns").is_not_null() & pl.col("prompt_tokens").is_not_null())
    if not answered.height or answered["cached_tokens"].null_count() == answered.height:
        return None
    asked, cached, wrote = (
        pl.col(name).cast(pl.Float64) for name in ("prompt_tokens", "cached_tokens", "tokens")
    )
    new = asked - cached.fill_null(asked) + wrote.fill_null(0)
    at_s = (pl.col("done_ns") - play.started_ns).cast(pl.Float64) / 1e9
    return (
        answered.select(at_s=at_s, new=new)
        .sort("at_s")
        .select("at_s", written=pl.col("new").cum_sum())
    )


def _full_from(written: pl.DataFrame, tokens: float) -> float | None:
    full = written.filter(pl.col("written") >= tokens)
    return float(full["at_s"][0]) if full.height else None
