"""Read what was tried next to a run: searches for capacity, trials of one session, twins.

The rooms that play trials stand above this one and never import the advisor. So its fit of
trials, and the types that the fit takes, are named here again: `fit`, `carried_loads`, `Tried`,
`TwinReplay`.
"""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import duckdb

from advisor.assess.capacity import SHARE, limits
from advisor.estimate import Estimate
from advisor.loads import CapacityPoint, TwinChange
from advisor.loads import TwinReplay as TwinReplay  # noqa: PLC0414  # for those who play
from advisor.policy import ServiceLimits
from advisor.statistics import carried_loads as estimates
from advisor.statistics.crossing import CarriedLoad, Crossing, crossing
from advisor.statistics.crossing import Tried as Tried  # noqa: PLC0414  # for those who play
from agentload.evidence.view import RunView
from agentload.model.record import Record
from agentload.model.rows import ProbeRow
from agentload.store import tables
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
# share of what later turns could find in the cache: more than
# it moves from one load to the next while everything fits
EVICTED: Final = 0.02
OF_THE_TURNS: Final = frozenset({None, "errors", "slo"})
"""Trouble that the share of turns within the service level tells by itself."""

_Scope: TypeAlias = tuple[str, str | None]
"""An arm, and the workload that its sessions were of; None: all that the run has."""


class Concurrency(Record):
    """The most sessions that hold in a search, and the fewest that surely do not.

    *holds* is None where the smallest load tried failed, *breaks* where the largest held.
    """

    arm: str
    workload: str | None
    holds: int | None
    breaks: int | None


class _Step(Record):
    at_ns: int
    agents: int
    share: float
    """Of the turns that had to hold the service level."""
    limits: str
    """Those of the service level, as they are typed."""
    detail: dict[str, Any]


def concurrency(view: RunView, workloads: Collection[str]) -> tuple[Concurrency, ...]:
    """Return the concurrency that each search next to a run ended with.

    *workloads* are the run's classes.
    """
    # One curve is fitted to the trials of all arms that were searched under equal conditions.
    together: dict[tuple[str | None, float], dict[str, tuple[CapacityPoint, ...]]] = {}
    for (arm, workload), steps in _searches(view, PROBE, workloads).items():
        arms = together.setdefault((workload, steps[0].share), {})
        arms[arm] = tuple(_points(arm, workload, steps))
    found = []
    for (workload, share), arms in together.items():
        for arm, limit in limits(arms, share=share).items():
            found.append(_held(arm, workload, limit))
    return tuple(found)


def _held(arm: str, workload: str | None, limit: CarriedLoad) -> Concurrency:
    breaks = None if limit.high is None else math.floor(limit.high) + 1
    return Concurrency(
        arm=arm, workload=workload, holds=math.floor(limit.value) or None, breaks=breaks
    )


def capacity(
    view: RunView, arms: Collection[str], workloads: Collection[str]
) -> tuple[CapacityPoint, ...]:
    """Return the steps of the searches for these arms; *workloads* are the run's classes."""
    searches = _searches(view, PROBE, workloads)
    return tuple(
        point
        for (arm, workload), steps in searches.items()
        if arm in arms
        for point in _points(arm, workload, steps)
    )


def single_sessions(view: RunView, arms: Collection[str]) -> tuple[CapacityPoint, ...]:
    """Return the trials of a single session on these arms, from the last search for them."""
    searches = _searches(view, ALONE, ())  # no classes: a trial is of the whole run
    return tuple(
        point
        for (arm, _), steps in searches.items()
        if arm in arms
        for point in _points(arm, None, steps)
    )


def twin_changes(view: RunView) -> tuple[TwinChange, ...]:
    """Return how turn latencies compare on the twins of a run: the last result of each load."""
    found: dict[tuple[str, str], TwinChange] = {}
    for row in view.probes_of(TWINS):
        relative = Estimate(**json.loads(row.detail or "{}"))
        found[row.arm, row.settings] = TwinChange(
            arm=row.arm, relative=relative, **json.loads(row.settings)
        )
    return tuple(found.values())


def fit(trials: Mapping[str, Sequence[Tried]], *, share: float) -> Crossing:
    """Regress the load that each arm carries on its trials."""
    return crossing(trials, share=share)


def carried_loads(trials: Mapping[str, Sequence[Tried]], *, share: float) -> dict[str, CarriedLoad]:
    """Return the load that each arm carries, by its twin where that explains the trials."""
    return estimates.carried_loads(trials, share=share)


def replay_of(detail: Mapping[str, Any]) -> TwinReplay | None:
    """Read what a twin does with the sessions of a trial; None where none played them."""
    kept = detail.get("replay")
    if kept is None:
        return None
    return TwinReplay(**{**kept, "expected": tuple(kept["expected"])})


def next_search(connection: duckdb.DuckDBPyConnection, run_id: str) -> int:
    """Return a number above those of all searches next to a run: a simulated one has no date."""
    before = tables.rows(connection, ProbeRow, run_id=run_id, probe=PROBE)
    return max((row.at_ns for row in before), default=-1) + 1


def _searches(
    view: RunView, probe: str, workloads: Collection[str]
) -> Mapping[_Scope, tuple[_Step, ...]]:
    """Return the last search of each scope: a search made again replaces the one before it."""
    tried = [
        (row, json.loads(row.settings)) for row in view.probes_of(probe) if row.outcome != VOID
    ]
    tried.sort(key=lambda each: (each[0].arm, each[1]["agents"]))
    found: dict[_Scope, list[_Step]] = defaultdict(list)
    for row, settings in tried:
        step = _Step(
            at_ns=row.at_ns,
            agents=settings["agents"],
            share=settings.get("share", SHARE),
            limits=settings.get("slo") or "",
            detail=json.loads(row.detail or "{}"),
        )
        found[row.arm, _workload(settings, workloads)].append(step)
    return {scope: _latest(steps) for scope, steps in found.items()}


def _workload(settings: Mapping[str, Any], workloads: Collection[str]) -> str | None:
    """Name the workload of a trial's sessions; None: all that the run has."""
    classes = settings.get("classes", ())
    is_whole = not classes or set(workloads) <= set(classes)
    return None if is_whole else " + ".join(classes)


def _latest(steps: Sequence[_Step]) -> tuple[_Step, ...]:
    newest = max(step.at_ns for step in steps)
    return tuple(step for step in steps if step.at_ns == newest)


def _points(arm: str, workload: str | None, steps: Collection[_Step]) -> Iterator[CapacityPoint]:
    found_again = [step.detail.get("found_again") for step in steps]
    best = max((share for share in found_again if share is not None), default=0.0)
    for step in steps:
        detail = step.detail
        trouble = detail.get("trouble")
        yield CapacityPoint(
            arm=arm,
            workload=workload,
            agents=step.agents,
            turns=detail["turns"],
            within_slo=detail["within"],
            minutes=detail["minutes"],
            trouble=None if trouble in OF_THE_TURNS else trouble,
            pool_filled=_filled(detail, best=best),
            preemptions=detail["preemptions"],
            hit_rate=detail["hit_rate"],
            ideal_hit_rate=detail.get("ideal_hit_rate"),
            output_tokens_per_s=detail["output_tokens_per_s"],
            worth=detail.get("worth"),
            error=detail.get("error", 0.0),
            replay=replay_of(detail),
            slo=_level(step),
            ttft_ms=detail.get("ttft_ms"),
            tpot_ms=detail.get("tpot_ms"),
            turn_ms=detail.get("turn_ms"),
        )


def _filled(detail: Mapping[str, Any], *, best: float) -> bool | None:
    """Tell whether a trial filled the pool; None: nobody could tell.

    *best* is the largest share that any trial found again in the cache.
    """
    peak = detail["peak_kv_usage"]
    found_again = detail.get("found_again")
    if peak is None and found_again is None:
        return None
    # Servers count cached pages that nobody uses as free; that
    # they were evicted shows in contexts that are no longer found.
    evicted = found_again is not None and found_again < best - EVICTED
    return (peak or 0.0) >= FULL or bool(detail["preemptions"]) or evicted


def _level(step: _Step) -> ServiceLimits | None:
    if not step.limits:
        return None
    limit = stated(step.limits, "slo").get
    return ServiceLimits(
        ttft_ms=limit("ttft_ms"),
        tpot_ms=limit("tpot_ms"),
        turn_ms=limit("turn_ms"),
        share=step.share,
    )
