"""Steps of a capacity search, as they were stored beside a run."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

import duckdb

from advisor.assess.capacity import SHARE, limits
from advisor.evidence import CapacityPoint, Probe
from advisor.statistics.crossing import Crossing, Tried, crossing
from agentload.model.apart import ISOLATION
from agentload.model.rows import ProbeRow
from agentload.store import tables

PROBE: Final = "capacity"
VOID: Final = "void"
"""Outcome of a step that says nothing of the server."""
FULL: Final = 0.95  # a pool this full evicts for every prompt that comes
EVICTED: Final = 0.02  # of what later turns could find again: more than the share moves from one load to the next while everything fits
OF_THE_TURNS: Final = frozenset({None, "errors", "slo"})
"""Trouble that the share of turns within the service level tells by itself."""

Step: TypeAlias = tuple[float, int, int, str | None, float | None]
"""A trial's load, its turns, those within the service level, its trouble, and what each of its sessions is worth."""
_Scope: TypeAlias = tuple[str, str | None]
"""An arm, and the workload that its sessions were of; None: all that the run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a search for concurrency ended with: the most sessions that hold, and the fewest that surely do not. None: its own bound."""

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
    detail: dict[str, Any]


def held(connection: duckdb.DuckDBPyConnection, run_id: str, workloads: Collection[str]) -> tuple[Held, ...]:
    """Read what the searches beside a run found; *workloads* are the run's classes."""
    together: dict[tuple[str | None, float], dict[str, tuple[CapacityPoint, ...]]] = defaultdict(dict)
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
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str], workloads: Collection[str]
) -> tuple[CapacityPoint, ...]:
    """Read the steps of a run's arms; *workloads* are the run's classes."""
    searches = _searches(connection, run_id, workloads)
    return tuple(point for scope, steps in searches.items() if scope[0] in arms for point in _points(*scope, steps))


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
    return max((row.at_ns for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=PROBE)), default=-1) + 1


def _searches(connection: duckdb.DuckDBPyConnection, run_id: str, workloads: Collection[str]) -> Mapping[_Scope, tuple[_Step, ...]]:
    """Return the last search of each scope: one that was made again, of a changed server or with other limits, is another search."""
    found: dict[_Scope, list[_Step]] = defaultdict(list)
    tried = [
        (row, json.loads(row.settings)) for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=PROBE) if row.outcome != VOID
    ]
    for row, settings in sorted(tried, key=lambda each: (each[0].arm, each[1]["agents"])):
        classes = settings.get("classes", ())
        scope = row.arm, None if set(workloads) <= set(classes) or not classes else " + ".join(classes)
        step = _Step(at_ns=row.at_ns, agents=settings["agents"], share=settings.get("share", SHARE), detail=json.loads(row.detail or "{}"))
        found[scope].append(step)
    newest = {scope: max(step.at_ns for step in steps) for scope, steps in found.items()}
    return {scope: tuple(step for step in steps if step.at_ns == newest[scope]) for scope, steps in found.items()}


def _points(arm: str, workload: str | None, steps: Collection[_Step]) -> Iterator[CapacityPoint]:
    best = max((found for step in steps if (found := step.detail.get("found_again")) is not None), default=0.0)
    for step in steps:
        detail = step.detail
        peak, preemptions, found_again = detail["peak_kv_usage"], detail["preemptions"], detail.get("found_again")
        # Servers count cached pages that nobody uses as free; that they were evicted shows in contexts that are no longer found.
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
            pool_filled=None if peak is None and found_again is None else (peak or 0.0) >= FULL or bool(preemptions) or evicted,
            preemptions=preemptions,
            hit_rate=detail["hit_rate"],
            output_tokens_per_s=detail["output_tokens_per_s"],
            worth=detail.get("worth"),
            error=detail.get("error", 0.0),
        )


def isolation(connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str]) -> tuple[Probe, ...]:
    """Read the cells of a run's arms; of one that was tried again, the last counts."""
    found: dict[tuple[str, str], Probe] = {}
    for row in tables.rows(connection, ProbeRow, run_id=run_id, probe=ISOLATION):
        if row.arm in arms:
            found.pop((row.arm, row.settings), None)
            detail = json.loads(row.detail or "{}").get("detail", "")
            found[row.arm, row.settings] = Probe(arm=row.arm, **json.loads(row.settings), outcome=cast(Any, row.outcome), detail=detail)
    return tuple(found.values())
