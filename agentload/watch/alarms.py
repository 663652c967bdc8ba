"""Fold a job's history into its alarms: each raised once, and closed when it no longer holds.

Alarms follow from the history alone, so a killed process leaves nothing half-done: the next one
folds again and stores what differs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, assert_never, get_args

from agentload.model.record import Record
from agentload.watch.history import Execution, RunChange, differences
from agentload.watch.job import Job
from agentload.watch.levels import (
    BASELINE,
    NOISE,
    SIGNIFICANT,
    Shift,
    is_shifted,
    level_start,
    looks,
    shift,
)

AlarmKind: TypeAlias = Literal[
    "regression", "improvement", "dead endpoint", "changed identity", "failing schedule"
]

KINDS: Final[tuple[AlarmKind, ...]] = get_args(AlarmKind)
FAILING: Final = 2  # failures in a row: a single one may be a reboot
VAGUE: Final = 2  # runs before an alarm in which a change of the servers is a suspect
GATED: Final[frozenset[AlarmKind]] = frozenset({"regression", "changed identity"})
"""Kinds that make an execution exit with 3."""
AMISS: Final[frozenset[AlarmKind]] = GATED | {"dead endpoint", "failing schedule"}
"""Kinds that somebody has to look at: all but an improvement."""


class Alarm(Record):
    """State one thing that got worse, or better, from when to when."""

    kind: AlarmKind
    metric: str | None = None
    """Series, such as `prod: turn_ms`; None where no figure is concerned."""
    raised_ns: int
    closed_ns: int | None = None
    run_id: str | None = None
    message: str
    suspects: tuple[str, ...] = ()
    """What the servers said differently just before."""
    muted_ns: int | None = None
    """Instant until which the alarm is muted."""

    @property
    def key(self) -> tuple[AlarmKind, str | None, int]:
        """Key of the alarm among those of the job."""
        return (self.kind, self.metric, self.raised_ns)

    @property
    def is_open(self) -> bool:
        """Whether the alarm still holds."""
        return self.closed_ns is None

    def is_muted(self, at_ns: int) -> bool:
        """Tell whether the alarm is muted at an instant."""
        return self.muted_ns is not None and at_ns < self.muted_ns


class ChangeRule(Record):
    """Define what counts as a change."""

    min_change: float = 0.03
    noise: float = NOISE
    series: int = 1
    """Number of series that are watched: they share the error rate."""


@dataclass(slots=True)
class _Series:
    """Hold a series at its level in force and, while an alarm is open, the runs before that."""

    before: list[float] = field(default_factory=lambda: [0.0])  # the reference against itself
    executions: list[Execution] = field(default_factory=list)
    """Executions of `before`, without that of the reference."""
    alarm: int | None = None
    """Place of the open alarm."""
    since: list[float] = field(default_factory=list)
    """Runs of the new level, while an alarm is open about it."""
    smallest: float = 0.0
    """Change that counted when the alarm was raised."""


class _Fold:
    """Take the executions of a job one by one, and keep the alarms that follow from them."""

    def __init__(self, rule: ChangeRule) -> None:
        self.rule = rule
        self.alarms: list[Alarm] = []
        self.series: dict[str, _Series] = {}
        self.reference: str | None = None
        self.first: Execution | None = None  # the execution of the reference
        self.runs: dict[str | None, Execution] = {}
        self.latest: Execution | None = None  # with usable figures
        self.failures = 0
        self.muted_ns: dict[str | None, int | None] = {}

    def take(self, each: Execution) -> None:
        """Take the next execution."""
        match each.outcome:
            case "done":
                self._set("dead endpoint", each, holds=False)
                self._count_failures(each, 0)
                self._compare_identity(each)
                self._compare_figures(each)
            case "dead":
                self._set("dead endpoint", each, holds=True)
            case "accepted":
                self._set("changed identity", each, holds=False)
                self._refer_to(each.run_id, each)
            case "muted":
                self._mute(each)
            case "void":  # the endpoint answered
                self._set("dead endpoint", each, holds=False)
                self._count_failures(each, 1)
            case "failed" | "missed" | "running":
                self._count_failures(each, max(1, each.detail.missed))
            case "skipped":
                pass
            case _:
                assert_never(each.outcome)

    # --- one alarm ---

    def _set(self, kind: AlarmKind, each: Execution, *, holds: bool) -> None:
        """Raise the alarm of a kind that has one at most, or close it."""
        places = (
            place for place, alarm in enumerate(self.alarms) if alarm.kind == kind and alarm.is_open
        )
        place = next(places, None)
        if holds and place is None:
            self._raise(kind, each, _reason(each, self.failures))
        elif not holds and place is not None:
            self._close(place, each)

    def _raise(
        self,
        kind: AlarmKind,
        each: Execution,
        message: str,
        *,
        metric: str | None = None,
        suspects: tuple[str, ...] = (),
    ) -> None:
        at_ns = each.settled_ns
        muted_ns = self.muted_ns.get(kind)
        alarm = Alarm(
            kind=kind,
            metric=metric,
            raised_ns=at_ns,
            run_id=each.run_id,
            message=message,
            suspects=suspects,
            muted_ns=muted_ns,
        )
        self.alarms.append(alarm if alarm.is_muted(at_ns) else replace(alarm, muted_ns=None))

    def _close(self, place: int, each: Execution) -> None:
        self.alarms[place] = replace(self.alarms[place], closed_ns=each.settled_ns)

    def _mute(self, each: Execution) -> None:
        """Mute the open alarms of a kind, and those that are raised before the instant."""
        kind = each.detail.kind
        until_ns = each.detail.until_ns
        self.muted_ns[kind] = until_ns
        for place, alarm in enumerate(self.alarms):
            if alarm.is_open and alarm.kind == kind:
                self.alarms[place] = replace(alarm, muted_ns=until_ns)

    def _count_failures(self, each: Execution, failures: int) -> None:
        """Count *failures* in a row; none ends the row."""
        self.failures = self.failures + failures if failures else 0
        self._set("failing schedule", each, holds=self.failures >= FAILING)

    def _compare_identity(self, each: Execution) -> None:
        """Raise an alarm where servers are not what they were in the usable run before."""
        before = self.latest
        self.latest = each
        if before is None:
            return
        self._set("changed identity", each, holds=False)
        changed = differences(before.detail.facts, each.detail.facts)
        if changed:
            self._raise("changed identity", each, "; ".join(changed), suspects=changed)

    # --- levels of the series ---

    def _compare_figures(self, each: Execution) -> None:
        """Compare each figure of a run with the runs of the same reference before it."""
        self.runs[each.run_id] = each
        reference = each.detail.reference or each.run_id
        if reference != self.reference:
            self._refer_to(reference, each)
        for change in each.detail.changes:
            state = self.series.setdefault(change.series, _Series())
            if not self._stays_open(state, change, each):
                self._look(state, change, each)

    def _refer_to(self, run: str | None, each: Execution) -> None:
        """Start again with another reference; close the alarms about the old one."""
        for state in self.series.values():
            if state.alarm is not None:
                self._close(state.alarm, each)
        self.series = {}
        self.reference = run
        self.first = self.runs.get(run)

    def _stays_open(self, state: _Series, change: RunChange, each: Execution) -> bool:
        """Update the alarm that is open about a series, or close it; tell whether one is open."""
        if state.alarm is None:
            return False
        alarm = self.alarms[state.alarm]
        before = state.before[-BASELINE:]
        step = change.log_ratio - sum(before) / len(before)
        if alarm.kind == "improvement":
            step = -step
        # Half of what matters keeps the alarm open: a value near
        # the edge must not close and raise it again and again.
        if step < math.log1p(state.smallest / 2):
            self._close(state.alarm, each)
            state.alarm = None
            return False
        # All runs of the new level: the first ones alone knew less.
        state.since.append(change.log_ratio)
        latest = state.since[-BASELINE:]
        found = shift(state.before, latest, error=change.error, noise=self.rule.noise)
        self.alarms[state.alarm] = replace(alarm, message=_shift_words(change.series, found))
        return True

    def _look(self, state: _Series, change: RunChange, each: Execution) -> None:
        """Raise an alarm where a run shows another level; else it joins the runs before."""
        smallest = max(self.rule.min_change, change.floor or 0.0)
        found = self._shift(state.before, change, smallest)
        if found is None:
            state.before.append(change.log_ratio)
            state.executions.append(each)
            return
        state.smallest = smallest
        state.since = [change.log_ratio]
        joined = found.runs - 1  # runs that seemed to belong to the old level
        if joined:
            state.since[:0] = state.before[-joined:]
            del state.before[-joined:]
            del state.executions[-joined:]
        # Noise may move the run at which a level seems to begin: look at some runs before, too.
        before = state.executions if self.first is None else [self.first, *state.executions]
        near = before[-1 - VAGUE :]
        facts = near[0].detail.facts if near else {}
        state.alarm = len(self.alarms)
        self._raise(
            "regression" if found.value > 0 else "improvement",
            each,
            _shift_words(change.series, found),
            metric=change.series,
            suspects=differences(facts, each.detail.facts),
        )

    def _shift(self, before: list[float], change: RunChange, smallest: float) -> Shift | None:
        """Return how far the latest runs are from those before; None if at the same level."""
        error = change.error
        noise = self.rule.noise
        for found in looks(before, [change.log_ratio], error=error, noise=noise):
            if is_shifted(found, smallest=smallest, series=self.rule.series):
                return found
        values = [*before[-BASELINE:], change.log_ratio]
        level = SIGNIFICANT / self.rule.series
        start = level_start(values, smallest=math.log1p(smallest), level=level)
        if start is None:
            return None
        # Too small to separate from noise by the latest runs alone, but it has lasted.
        return shift(values[:start], values[start:], error=error, noise=noise)


def alarms(history: Iterable[Execution], rule: ChangeRule) -> tuple[Alarm, ...]:
    """Return every alarm that a job's history has raised, in that order."""
    fold = _Fold(rule)
    for each in history:
        fold.take(each)
    return tuple(fold.alarms)


def alarms_of(job: Job, past: tuple[Execution, ...]) -> tuple[Alarm, ...]:
    """Fold a job's history into its alarms, on the metrics that it watches."""
    arms = {change.arm for each in past for change in each.detail.changes}
    rule = ChangeRule(
        min_change=job.setting.policy.min_change,
        noise=job.noise,
        series=max(1, len(arms) * len(job.metrics)),
    )
    return alarms((_only(each, job) for each in past), rule)


def _only(each: Execution, job: Job) -> Execution:
    """Return an execution without the changes of metrics that the job does not watch."""
    kept = tuple(change for change in each.detail.changes if change.metric in job.metrics)
    return replace(each, detail=replace(each.detail, changes=kept))


def loud_alarms(found: Iterable[Alarm], at_ns: int) -> tuple[Alarm, ...]:
    """Return the open alarms that nobody has muted."""
    return tuple(each for each in found if each.is_open and not each.is_muted(at_ns))


def exit_code(latest: Execution, found: Sequence[Alarm]) -> int:
    """Return the exit code of an execution.

    0 when nothing got worse, 3 for a regression, a changed identity or invalid figures, 1 when the
    job could not run.
    """
    match latest.outcome:
        case "failed" | "dead" | "running" | "missed":
            return 1
        case "void":
            return 3
        case "skipped" | "accepted" | "muted":
            return 0
        case "done":
            loud = loud_alarms(found, latest.settled_ns)
            return 3 if any(alarm.kind in GATED for alarm in loud) else 0


def _reason(each: Execution, failures: int) -> str:
    if each.outcome == "dead":
        return each.detail.reason or "an endpoint does not answer"
    reason = each.detail.reason or each.outcome
    if each.detail.missed == failures:
        return reason
    return f"{failures} firings in a row gave no usable figures; the last: {reason}"


def _shift_words(series: str, found: Shift) -> str:
    over = "the last run" if found.runs == 1 else f"the level of the last {found.runs} runs"
    before = "the run before" if found.baseline == 1 else f"the level of {found.baseline} before"
    return (
        f"{series} {found.value:+.1%} ({found.low:+.1%} to {found.high:+.1%}), {over} against "
        f"{before}"
    )
