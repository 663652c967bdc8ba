"""Record what became of each firing of a job, in order.

Alarms, trends and notices follow from this record alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from msgspec import field

from agentload.endpoints import facts
from agentload.endpoints.facts import Facts
from agentload.model.record import Record
from agentload.watch.job import Metric
from agentload.watch.schedule import CORRECTED_NS

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


class RunChange(Record):
    """State how one figure of one arm compares with the reference run.

    The figure is a mean log ratio over the same turns.
    """

    arm: str
    metric: Metric
    log_ratio: float
    error: float
    """Standard error within the run, in the same unit."""
    pairs: int
    floor: float | None = None
    """Change that an A/A control leaves possible between equals, relative; None without one."""

    @property
    def series(self) -> str:
        """Name of the series that this value belongs to."""
        return f"{self.arm}: {self.metric}"

    def relative(self, base: float = 0.0) -> tuple[float, float, float]:
        """Return the change as a share, with the ends of its 95% interval within the run.

        *base* is the log ratio of the reference itself.
        """
        value = base + self.log_ratio
        reach = TWO_SIDED * self.error
        return math.expm1(value), math.expm1(value - reach), math.expm1(value + reach)


class Detail(Record):
    """Hold what an execution keeps besides the columns of its row."""

    reason: str | None = None
    missed: int = 0
    """Firings that nobody answered, when the outcome is `missed`."""
    reference: str | None = None
    """Run that it was compared with; None for a reference itself."""
    changes: tuple[RunChange, ...] = ()
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What the server said it is, by arm."""
    headline: str | None = None
    """Decision between the arms, when there are several."""
    usd: float | None = None
    """Cost of the servers meanwhile, where their price is known."""
    kind: str | None = None
    """Kind of the alarms that were muted."""
    until_ns: int | None = None
    """Instant until which they are muted."""


class Execution(Record):
    """Record one firing and what became of it."""

    job: str
    started_ns: int
    ended_ns: int | None = None
    due_ns: int | None = None
    """Firing that the execution answers; None when a person started it."""
    outcome: Outcome
    run_id: str | None = None
    detail: Detail = field(default_factory=Detail)

    @property
    def settled_ns(self) -> int:
        """When the execution ended; if it still runs, when it started."""
        if self.ended_ns is None:
            return self.started_ns
        return self.ended_ns

    @property
    def took_ms(self) -> float | None:
        """Return how long the execution took; None while it runs."""
        return None if self.ended_ns is None else (self.ended_ns - self.started_ns) / 1e6

    @property
    def late_s(self) -> float:
        """Seconds from the firing to the start; 0 where a person started it."""
        if self.due_ns is None or self.outcome == "missed":
            return 0.0
        return max(0, self.started_ns - self.due_ns) / 1e9


def reference(history: Sequence[Execution], wanted: str | None) -> str | None:
    """Return the run to compare the next one with; None when the next one becomes it.

    The run is *wanted*, else the reference in force. *wanted* may be the beginning of the name of
    one of the job's runs.
    """
    runs = {each.run_id for each in history if each.run_id is not None}
    if wanted is not None:
        named = [run for run in runs if run.startswith(wanted)]
        if len(named) == 1 and wanted not in runs:
            return named[0]
        return wanted
    for each in reversed(history):
        if each.outcome in {"done", "accepted"} and each.run_id is not None:
            return each.detail.reference or each.run_id
    return None


def floors(history: Sequence[Execution], reference: str) -> dict[str, float]:
    """Return the latest noise floor of each series among the runs compared with a reference.

    A reference that was accepted may have none itself.
    """
    found = {}
    for each in history:
        if each.outcome == "done" and each.detail.reference == reference:
            for change in each.detail.changes:
                if change.floor is not None:
                    found[change.series] = change.floor
    return found


def with_floors(changes: Sequence[RunChange], known: Mapping[str, float]) -> tuple[RunChange, ...]:
    """Return the changes, with the known floor for those that have none."""
    return tuple(
        replace(each, floor=known.get(each.series)) if each.floor is None else each
        for each in changes
    )


def executions(history: Sequence[Execution]) -> tuple[Execution, ...]:
    """Return the executions, without what only people did."""
    return tuple(each for each in history if each.outcome not in BY_HAND)


def latest_ns(past: tuple[Execution, ...], *, now_ns: int) -> int | None:
    """Return when a job was last executed; ignore instants far ahead, from a wrong clock."""
    starts = (each.started_ns for each in executions(past))
    return max((at_ns for at_ns in starts if at_ns <= now_ns + CORRECTED_NS), default=None)


def expendable(history: Sequence[Execution], keep: int | None, kept: str | None) -> tuple[str, ...]:
    """List the runs whose calls may be deleted: all but the latest *keep* and the reference."""
    if keep is None:
        return ()
    runs = [each.run_id for each in executions(history) if each.run_id is not None]
    old = runs[: -keep or None]
    return tuple(run for run in old if kept is None or not run.startswith(kept))


def differences(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> tuple[str, ...]:
    """Name what changed on the arms that both know, such as `fp8: version 0.10.0 → 0.11.0`."""
    return tuple(
        sorted(
            f"{arm}: {each}"
            for arm in before.keys() & after.keys()
            for each in facts.changes(before[arm], after[arm])
        )
    )
