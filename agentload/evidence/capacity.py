"""Steps of a capacity search, as they were stored beside a run."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import duckdb

from advisor.evidence import CapacityPoint
from agentload.model.rows import ProbeRow
from agentload.store import tables

PROBE: Final = "capacity"
VOID: Final = "void"
"""Outcome of a step that says nothing of the server."""
FULL: Final = 0.95  # a pool this full evicts for every prompt that comes
EVICTED: Final = 0.02  # of what later turns could find again: more than the share moves from one load to the next while everything fits
OF_THE_TURNS: Final = frozenset({None, "errors", "slo"})
"""Trouble that the share of turns within the service level tells by itself."""

_Scope: TypeAlias = tuple[str, str | None]
"""An arm, and the workload that its sessions were of; None: all that the run has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a search for concurrency ended with: the most sessions without trouble, and the fewest with it. None: its own bound."""

    arm: str
    workload: str | None
    holds: int | None
    breaks: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    at_ns: int
    agents: int
    detail: dict[str, Any]


def held(connection: duckdb.DuckDBPyConnection, run_id: str, workloads: Collection[str]) -> tuple[Held, ...]:
    """Read what the searches beside a run found; *workloads* are the run's classes."""
    return tuple(_held(*scope, steps) for scope, steps in _searches(connection, run_id, workloads).items())


def capacity(
    connection: duckdb.DuckDBPyConnection, run_id: str, arms: Collection[str], workloads: Collection[str]
) -> tuple[CapacityPoint, ...]:
    """Read the steps of a run's arms; *workloads* are the run's classes."""
    searches = _searches(connection, run_id, workloads)
    return tuple(point for scope, steps in searches.items() if scope[0] in arms for point in _points(*scope, steps))


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
        scope = row.arm, _workload(settings.get("classes", ()), workloads)
        found[scope].append(_Step(at_ns=row.at_ns, agents=settings["agents"], detail=json.loads(row.detail or "{}")))
    newest = {scope: max(step.at_ns for step in steps) for scope, steps in found.items()}
    return {scope: tuple(step for step in steps if step.at_ns == newest[scope]) for scope, steps in found.items()}


def _workload(classes: Collection[str], workloads: Collection[str]) -> str | None:
    return None if set(workloads) <= set(classes) or not classes else " + ".join(classes)


def _held(arm: str, workload: str | None, steps: Iterable[_Step]) -> Held:
    agents: dict[bool, list[int]] = {True: [], False: []}
    for step in steps:
        agents[step.detail["held"]].append(step.agents)
    return Held(arm=arm, workload=workload, holds=max(agents[True], default=None), breaks=min(agents[False], default=None))


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
        )
