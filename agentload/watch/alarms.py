"""Fold a job's history into its alarms: each raised once, and closed when it no longer holds.

Alarms follow from the history alone, so a killed process leaves nothing half-done: the next one
folds again and stores what differs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias, assert_never, get_args

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRule:
    """Define what counts as a change."""

    min_change: float = 0.03
    noise: float = NOISE
    series: int = 1
    """Number of series that are watched: they share the error rate."""


@dataclass(slots=True)
class _Series:
    """Hold a level in force and, while an alarm is open, the runs before it."""

    before: list[float] = field(default_factory=lambda: [0.0])  # the reference against itself
    executions: list[Execution] = field(default_factory=list)
    alarm: int | None = None
    since: list[float] = field(default_factory=list)
    """Runs of the new level, while an alarm is open about it."""
    smallest: float = 0.0


class _Fold:
    def __init__(self, rule: ChangeRule) -> None:
        self.rule = rule
        self.alarms: list[Alarm] = []
        self.series: dict[str, _Series] = {}
        self.reference: str | None = None
        self.runs: dict[str | None, Execution] = {}
        self.first: Execution | None = None  # the execution of the reference
        self.known: Execution | None = None
        self.failures = 0
        self.mutes: dict[str | None, int | None] = {}

    def take(self, each: Execution) -> None:
        match each.outcome:
            case "done":
                self._plain("dead endpoint", each, holds=False)
                self._failing(each, 0)
                self._identity(each)
                self._levels(each)
            case "dead":
                self._plain("dead endpoint", each, holds=True)
            case "accepted":
                self._accepted(each)
            case "muted":
                self._muted(each)
            case "void":  # the endpoint answered
                self._plain("dead endpoint", each, holds=False)
                self._failing(each, 1)
            case "failed" | "missed" | "running":
                self._failing(each, max(1, each.detail.missed))
            case "skipped":
                pass
            case _:
                assert_never(each.outcome)

    def _muted(self, each: Execution) -> None:
        kind, until_ns = each.detail.kind, each.detail.until_ns
        self.mutes[kind] = until_ns
        for place, alarm in enumerate(self.alarms):
            if alarm.is_open and alarm.kind == kind:
                self.alarms[place] = replace(alarm, muted_ns=until_ns)

    def _raise(
        self,
        kind: AlarmKind,
        each: Execution,
        message: str,
        *,
        metric: str | None = None,
        suspects: tuple[str, ...] = (),
    ) -> None:
        at_ns, until_ns = each.settled_ns, self.mutes.get(kind)
        self.alarms.append(
            Alarm(
                kind=kind,
                metric=metric,
                raised_ns=at_ns,
                run_id=each.run_id,
                message=message,
                suspects=suspects,
                muted_ns=until_ns if until_ns is not None and at_ns < until_ns else None,
            )
        )

    def _failing(self, each: Execution, failures: int) -> None:
        self.failures = self.failures + failures if failures else 0
        self._plain("failing schedule", each, holds=self.failures >= FAILING)

    def _plain(self, kind: AlarmKind, each: Execution, *, holds: bool) -> None:
        found = next(
            (
                place
                for place, alarm in enumerate(self.alarms)
                if alarm.kind == kind and alarm.is_open
            ),
            None,
        )
        if holds and found is None:
            self._raise(kind, each, _reason(each, self.failures))
        elif not holds and found is not None:
            self._close(found, each)

    def _close(self, place: int, each: Execution) -> None:
        self.alarms[place] = replace(self.alarms[place], closed_ns=each.settled_ns)

    def _identity(self, each: Execution) -> None:
        before, self.known = self.known, each
        if before is None:
            return
        self._plain("changed identity", each, holds=False)
        differs = differences(before.detail.facts, each.detail.facts)
        if differs:
            self._raise("changed identity", each, "; ".join(differs), suspects=differs)

    def _accepted(self, each: Execution) -> None:
        self._plain("changed identity", each, holds=False)
        self._refer(each.run_id, each)

    def _refer(self, run: str | None, each: Execution) -> None:
        """Start again with another reference; close the alarms about the old one."""
        for state in self.series.values():
            if state.alarm is not None:
                self._close(state.alarm, each)
        self.series, self.reference = {}, run
        self.first = self.runs.get(run)

    def _levels(self, each: Execution) -> None:
        self.runs[each.run_id] = each
        reference = each.detail.reference or each.run_id
        if reference != self.reference:
            self._refer(reference, each)
        for change in each.detail.changes:
            self._level(self.series.setdefault(change.series, _Series()), change, each)

    def _level(self, state: _Series, change: RunChange, each: Execution) -> None:
        if state.alarm is not None:
            before = state.before[-BASELINE:]
            centre = sum(before) / len(before)
            sign = 1 if self.alarms[state.alarm].kind == "regression" else -1
            # Half of what matters keeps the alarm open: a value near
            # the edge must not close and raise it again and again.
            if sign * (change.log_ratio - centre) >= math.log1p(state.smallest / 2):
                self._goes_on(state, change)
                return
            self._close(state.alarm, each)
            state.alarm = None
        smallest = max(self.rule.min_change, change.floor or 0.0)
        found = self._shift(state, change, smallest)
        if found is None:
            state.before.append(change.log_ratio)
            state.executions.append(each)
            return
        state.smallest = smallest
        self._shifted(state, change, each, found)

    def _shift(self, state: _Series, change: RunChange, smallest: float) -> Shift | None:
        """Return how far the latest runs are from those before; None if at the same level."""
        error, noise = change.error, self.rule.noise
        for found in looks(state.before, [change.log_ratio], error=error, noise=noise):
            if is_shifted(found, smallest=smallest, series=self.rule.series):
                return found
        values = [*state.before[-BASELINE:], change.log_ratio]
        level = SIGNIFICANT / self.rule.series
        start = level_start(values, smallest=math.log1p(smallest), level=level)
        if start is None:
            return None
        # Too small to separate from noise by the latest runs alone, but it has lasted.
        return shift(values[:start], values[start:], error=error, noise=noise)

    def _goes_on(self, state: _Series, change: RunChange) -> None:
        """Update the alarm to all runs of the new level: the first ones alone knew less."""
        assert state.alarm is not None
        state.since.append(change.log_ratio)
        found = shift(
            state.before, state.since[-BASELINE:], error=change.error, noise=self.rule.noise
        )
        self.alarms[state.alarm] = replace(
            self.alarms[state.alarm], message=_shift_words(change.series, found)
        )

    def _shifted(self, state: _Series, change: RunChange, each: Execution, found: Shift) -> None:
        joined = found.runs - 1  # runs that seemed to belong to the old level
        state.since = [*(state.before[-joined:] if joined else ()), change.log_ratio]
        if joined:
            del state.before[-joined:], state.executions[-joined:]
        # Noise may move the run at which a level seems to begin: look at some runs before, too.
        known = [*([self.first] if self.first else []), *state.executions][-1 - VAGUE :]
        old = known[0].detail.facts if known else {}
        state.alarm = len(self.alarms)
        kind: AlarmKind = "regression" if found.value > 0 else "improvement"
        message, suspects = _shift_words(change.series, found), differences(old, each.detail.facts)
        self._raise(kind, each, message, metric=change.series, suspects=suspects)


def alarms(history: Iterable[Execution], rule: ChangeRule) -> tuple[Alarm, ...]:
    """Return every alarm that a job's history has raised, in that order."""
    fold = _Fold(rule)
    for each in history:
        fold.take(each)
    return tuple(fold.alarms)


def _rule(job: Job, past: tuple[Execution, ...]) -> ChangeRule:
    """Return what counts as a change for a job."""
    arms = {change.arm for each in past for change in each.detail.changes}
    return ChangeRule(
        min_change=job.setting.policy.min_change,
        noise=job.noise,
        series=max(1, len(arms) * len(job.metrics)),
    )


def alarms_of(job: Job, past: tuple[Execution, ...]) -> tuple[Alarm, ...]:
    """Fold a job's history into its alarms, on the metrics that it watches."""
    return alarms((_only(each, job) for each in past), _rule(job, past))


def _only(each: Execution, job: Job) -> Execution:
    detail = each.detail
    kept = tuple(change for change in detail.changes if change.metric in job.metrics)
    return replace(each, detail=replace(detail, changes=kept))


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
