"""What became of each firing of a job, in order: the
one record from which alarms, trends and notices follow.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from agentload.endpoints import facts
from agentload.endpoints.facts import Facts
from agentload.watch.job import Metric

Outcome: TypeAlias = Literal[
    "running",  # or killed, when nobody holds the job's lock
    "done",
    "void",  # played, but the figures are not usable
    "dead",  # an endpoint does not answer, or cannot be used
    "failed",  # could not run, or was stopped
    "skipped",  # the execution before was still running
    "missed",  # nobody called: the machine was off
    "accepted",  # no execution: a person made a run the reference
    "muted",  # no execution: a person wants to hear nothing of a kind of alarm until a day
]
TWO_SIDED: Final = 1.96
UNUSABLE: Final[frozenset[Outcome]] = frozenset({"void", "failed", "missed"})
BY_HAND: Final[frozenset[Outcome]] = frozenset({"accepted", "muted"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """How one figure of one arm lies against the
    reference run: a mean log ratio over the same turns.
    """

    arm: str
    metric: Metric
    log_ratio: float
    error: float
    """Standard error within the run, in the same unit."""
    pairs: int
    floor: float | None = None
    """What an A/A control leaves possible between
    equals, as a relative change; None without one.
    """

    @property
    def series(self) -> str:
        """Name the series that this value belongs to."""
        return f"{self.arm}: {self.metric}"

    def relative(self, base: float = 0.0) -> tuple[float, float, float]:
        """Return it as a share, with the ends of the 95 % interval that
        the run itself gives; *base* is the reference's own log ratio.
        """
        value, low, high = (
            math.expm1(base + self.log_ratio + side * TWO_SIDED * self.error) for side in (0, -1, 1)
        )
        return value, low, high


@dataclass(frozen=True, slots=True, kw_only=True)
class Detail:
    """What an execution keeps beside its row's columns."""

    reason: str | None = None
    missed: int = 0
    """Firings that nobody answered, when the outcome is `missed`."""
    reference: str | None = None
    """Run that it was compared with; None for a reference itself."""
    changes: tuple[Change, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By arm: what the server said it is."""
    headline: str | None = None
    """The decision between the arms, when there are several."""
    usd: float | None = None
    """What the servers cost meanwhile, where their price is known."""
    kind: str | None = None
    """Of the alarms that were muted."""
    until_ns: int | None = None
    """Until when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One firing and what became of it."""

    job: str
    started_ns: int
    ended_ns: int | None = None
    due_ns: int | None = None
    """The firing that it answers; None when a person called."""
    outcome: Outcome
    run_id: str | None = None
    detail: Detail = field(default_factory=Detail)

    @property
    def late_s(self) -> float:
        """Return how long after its firing it started; 0 where a person called."""
        return (
            0.0
            if self.due_ns is None or self.outcome == "missed"
            else max(0, self.started_ns - self.due_ns) / 1e9
        )


def reference(history: Sequence[Execution], wanted: str | None) -> str | None:
    """Return the run to hold the next one against: *wanted*,
    else the one in force, or None when the next becomes it.

    *wanted* may be how the name of one of the job's runs begins.
    """
    if wanted is not None:
        begin = {
            each.run_id
            for each in history
            if each.run_id is not None and each.run_id.startswith(wanted)
        }
        return wanted if wanted in begin or len(begin) != 1 else begin.pop()
    latest = next(
        (
            each
            for each in reversed(history)
            if each.outcome in {"done", "accepted"} and each.run_id is not None
        ),
        None,
    )
    return None if latest is None else latest.detail.reference or latest.run_id


def floors(history: Sequence[Execution], reference: str) -> dict[str, float]:
    """Return the latest noise floor of each series among the runs
    compared with a reference: one that was accepted may have none itself.
    """
    held = [
        each for each in history if each.outcome == "done" and each.detail.reference == reference
    ]
    return {
        change.series: change.floor
        for each in held
        for change in each.detail.changes
        if change.floor is not None
    }


def floored(changes: Sequence[Change], known: Mapping[str, float]) -> tuple[Change, ...]:
    """Put the floor that is known beside those changes that have none."""
    return tuple(
        replace(each, floor=known.get(each.series)) if each.floor is None else each
        for each in changes
    )


def executions(history: Sequence[Execution]) -> tuple[Execution, ...]:
    """Leave out what only people did."""
    return tuple(each for each in history if each.outcome not in BY_HAND)


def expendable(history: Sequence[Execution], keep: int | None, kept: str | None) -> tuple[str, ...]:
    """List the runs whose calls need not be kept: all but the latest *keep* and the reference."""
    runs = [each.run_id for each in executions(history) if each.run_id is not None]
    return (
        ()
        if keep is None
        else tuple(run for run in runs[: -keep or None] if kept is None or not run.startswith(kept))
    )


def changed(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> tuple[str, ...]:
    """Name what changed on the arms that both know, such as `fp8: version 0.10.0 → 0.11.0`."""
    return tuple(
        sorted(
            f"{arm}: {each}"
            for arm in before.keys() & after.keys()
            for each in facts.changed(before[arm], after[arm])
        )
    )
