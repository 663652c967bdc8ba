"""Histories for tests: a reference run, then one run a day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentload.watch.history import Detail, Execution, Outcome, RunChange

DAY_NS = 86_400_000_000_000
FACTS: Mapping[str, Mapping[str, Any]] = {
    "prod": {"version": "0.10.0", "models": ["m"], "process_start_s": 1.0}
}


def execution(
    day: int, outcome: Outcome = "done", *, change: float | None = None, **told: Any
) -> Execution:
    changes = (
        ()
        if change is None
        else (RunChange(arm="prod", metric="turn_ms", log_ratio=change, error=0.001, pairs=6),)
    )
    detail = {
        "facts": FACTS if outcome == "done" else {},
        "reference": None if change is None else "r0",
        "changes": changes,
        **told,
    }
    return Execution(
        job="nightly",
        started_ns=day * DAY_NS,
        ended_ns=day * DAY_NS + 60_000_000_000,
        due_ns=day * DAY_NS,
        outcome=outcome,
        run_id=f"r{day}",
        detail=Detail(**detail),
    )


def history(*changes: float) -> tuple[Execution, ...]:
    """Return the reference and a run for each log ratio against it."""
    return (
        execution(0),
        *(execution(day, change=change) for day, change in enumerate(changes, start=1)),
    )
