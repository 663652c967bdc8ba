"""Compare a run with the reference run, arm by arm, and read what its servers said."""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import advisor.verdict
from agentload.model.controls import is_control
from agentload.model.rows import ArmRow, FingerprintRow, RunRow
from agentload.report.advise import advise, keep
from agentload.store import tables
from agentload.store.database import reading
from agentload.verdict.comparison import comparison
from agentload.verdict.verdict import verdict
from agentload.watch.history import TWO_SIDED, RunChange
from agentload.watch.job import METRICS, Job, Metric


def changes_since(
    database: Path, run: str, reference: str, *, arms: Sequence[str], job: Job
) -> tuple[tuple[RunChange, ...], str | None]:
    """Return every arm's changes since the reference run, and why they are not usable, or None.

    Raises `EvidenceError` if the runs cannot be compared.
    """
    changes: list[RunChange] = []
    failed: list[str] = []
    # The spread between starts is left out here: the history
    # of the job shows it from run to run, and counts it once.
    setting = replace(job.setting, policy=replace(job.setting.policy, start_spread=0.0))
    both = comparison(database, reference, run, setting=setting)
    # Alarms follow how long the same windows take, and need an interval:
    # it does not matter that hours of load would show another size.
    both = replace(both, before=replace(both.before, pair_load=None))
    for arm in arms:
        decision = both.verdict(both.arm(arm)).decision
        failed += _failed(decision)
        found = {
            each.metric: each
            for each in decision.changes
            if each.arm == run and each.workload is None
        }
        changes += [_change(arm, metric, found[metric]) for metric in METRICS if metric in found]
    return tuple(changes), "; ".join(dict.fromkeys(failed)) or None


def fault(database: Path, run: str, *, job: Job) -> str | None:
    """Return why nothing can be compared with a run, or None.

    Raises `EvidenceError` when the run has too little in it.
    """
    return "; ".join(_failed(verdict(database, run, setting=job.setting).decision)) or None


def _failed(decision: advisor.verdict.Decision) -> list[str]:
    return [
        f"{gate.name}: {gate.message}"
        for gate in decision.gates
        if gate.status == "fail" and "turn" in gate.spoils
    ]


def facts(database: Path, run: str) -> dict[str, dict[str, Any]]:
    """Read what each arm's server said it is when the run ended, and our version then."""
    with reading(database) as connection:
        said = {
            row.arm: json.loads(row.facts)
            for row in tables.rows(connection, FingerprintRow, run_id=run)
        }
        (made,) = tables.rows(connection, RunRow, run_id=run)
    return {
        **{arm: said[arm] for arm in sorted(said) if not is_control(arm)},
        "agentload": {"version": made.version},
    }


def has_control(database: Path, run: str) -> bool:
    """Tell whether a run played an arm against itself."""
    with reading(database) as connection:
        return any(is_control(row.arm) for row in tables.rows(connection, ArmRow, run_id=run))


def headline(database: Path, run: str, *, job: Job) -> str:
    """Decide between the arms of a run, store the decision and return it in one line."""
    document = advise(database, run, setting=job.setting)
    keep(document, database, setting=job.setting)
    return document.headline


def _change(arm: str, metric: Metric, each: advisor.verdict.Change) -> RunChange:
    low, high = each.relative.low, each.relative.high
    assert low is not None, each
    assert high is not None, each  # a ratio of paired turns has both ends
    error = (math.log1p(high) - math.log1p(low)) / (2 * TWO_SIDED)
    return RunChange(
        arm=arm,
        metric=metric,
        log_ratio=math.log1p(each.relative.value),
        error=error,
        pairs=each.pairs,
        floor=each.floor,
    )
