"""Fold a job's history into its alarms: each raised once, and closed when what it told of is over.

All of it follows from the history, so a killed process leaves
nothing half-done: the next one folds again and stores what differs.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

from agentload.watch.history import UNUSABLE, Change, Execution, changed
from agentload.watch.levels import (
    BASELINE,
    NOISE,
    SIGNIFICANT,
    Shift,
    is_shifted,
    looks,
    shift,
    turned,
)

Kind: TypeAlias = Literal[
    "regression", "improvement", "dead endpoint", "changed identity", "failing schedule"
]

FAILING: Final = 2  # in a row: one failure may be a reboot
VAGUE: Final = 2  # runs before it: a change of the servers there is a suspect
GATED: Final[frozenset[Kind]] = frozenset({"regression", "changed identity"})
"""Those that make an execution exit with 3."""
AMISS: Final[frozenset[Kind]] = GATED | {"dead endpoint", "failing schedule"}
"""Those that somebody has to look at: all but an improvement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One thing that went wrong, or better, from when to when."""

    kind: Kind
    metric: str | None = None
    """The series, such as `prod: turn_ms`; None where it is not about a figure."""
    raised_ns: int
    closed_ns: int | None = None
    run_id: str | None = None
    message: str
    suspects: tuple[str, ...] = ()
    """What the servers said differently just before."""
    muted_ns: int | None = None
    """Until when nobody wants to hear of it."""

    @property
    def is_open(self) -> bool:
        """Say whether it still holds."""
        return self.closed_ns is None

    def is_muted(self, at_ns: int) -> bool:
        """Say whether nobody wants to hear of it at an instant."""
        return self.muted_ns is not None and at_ns < self.muted_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What counts as a change."""

    min_change: float = 0.03
    noise: float = NOISE
    series: int = 1
    """How many are watched: they share the error rate."""


@dataclass(slots=True)
class _Series:
    """A level in force and, while an alarm is open, the runs before it."""

    before: list[float] = field(default_factory=lambda: [0.0])  # the reference against itself
    executions: list[Execution] = field(default_factory=list)
    alarm: int | None = None
    since: list[float] = field(default_factory=list)
    """The runs of the new level, while an alarm tells of it."""
    smallest: float = 0.0


class _Fold:
    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.alarms: list[Alarm] = []
        self.series: dict[str, _Series] = {}
        self.reference: str | None = None
        self.runs: dict[str | None, Execution] = {}
        self.first: Execution | None = None  # the reference's own
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
            case "skipped":
                pass
            case "accepted":
                self._accepted(each)
            case "muted":
                self.mutes[each.detail.kind] = until_ns = each.detail.until_ns
                self.alarms = [
                    replace(on, muted_ns=until_ns)
                    if on.is_open and on.kind == each.detail.kind
                    else on
                    for on in self.alarms
                ]
            case _:
                if each.outcome == "void":  # it answered
                    self._plain("dead endpoint", each, holds=False)
                self._failing(
                    each,
                    max(1, each.detail.missed)
                    if each.outcome in UNUSABLE or each.outcome == "running"
                    else 0,
                )

    def _raise(
        self,
        kind: Kind,
        each: Execution,
        message: str,
        *,
        metric: str | None = None,
        suspects: tuple[str, ...] = (),
    ) -> None:
        at_ns, until_ns = _at(each), self.mutes.get(kind)
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

    def _plain(self, kind: Kind, each: Execution, *, holds: bool) -> None:
        found = next(
            (
                place
                for place, alarm in enumerate(self.alarms)
                if alarm.kind == kind and alarm.is_open
            ),
            None,
        )
        if holds and found is None:
            self._raise(kind, each, _told(each, self.failures))
        elif not holds and found is not None:
            self._close(found, each)

    def _close(self, place: int, each: Execution) -> None:
        self.alarms[place] = replace(self.alarms[place], closed_ns=_at(each))

    def _identity(self, each: Execution) -> None:
        before, self.known = self.known, each
        if before is None:
            return
        self._plain("changed identity", each, holds=False)
        differs = changed(before.detail.facts, each.detail.facts)
        if differs:
            self._raise("changed identity", each, "; ".join(differs), suspects=differs)

    def _accepted(self, each: Execution) -> None:
        self._plain("changed identity", each, holds=False)
        self._refer(each.run_id, each)

    def _refer(self, run: str | None, each: Execution) -> None:
        """Begin anew with another reference."""
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

    def _level(self, state: _Series, change: Change, each: Execution) -> None:
        if state.alarm is not None:
            before = state.before[-BASELINE:]
            centre = sum(before) / len(before)
            sign = 1 if self.alarms[state.alarm].kind == "regression" else -1
            # Half of what matters: neither does a value near
            # the edge close and raise it again and again.
            if sign * (change.log_ratio - centre) >= math.log1p(state.smallest / 2):
                self._goes_on(state, change)
                return
            self._close(state.alarm, each)
            state.alarm = None
        smallest = max(self.rule.min_change, change.floor or 0.0)
        for found in looks(
            state.before, [change.log_ratio], error=change.error, noise=self.rule.noise
        ):
            if is_shifted(found, smallest=smallest, series=self.rule.series):
                state.smallest = smallest
                self._shifted(state, change, each, found)
                return
        values = [*state.before[-BASELINE:], change.log_ratio]
        turn = turned(values, smallest=math.log1p(smallest), level=SIGNIFICANT / self.rule.series)
        if (
            turn is not None
        ):  # smaller than the latest runs alone can tell from noise, but it has lasted
            state.smallest = smallest
            self._shifted(
                state,
                change,
                each,
                shift(values[:turn], values[turn:], error=change.error, noise=self.rule.noise),
            )
            return
        state.before.append(change.log_ratio)
        state.executions.append(each)

    def _goes_on(self, state: _Series, change: Change) -> None:
        """Say by how much all runs of the new level differ: the first ones alone knew less."""
        assert state.alarm is not None
        state.since.append(change.log_ratio)
        found = shift(
            state.before, state.since[-BASELINE:], error=change.error, noise=self.rule.noise
        )
        self.alarms[state.alarm] = replace(
            self.alarms[state.alarm], message=_shift_told(change.series, found)
        )

    def _shifted(self, state: _Series, change: Change, each: Execution, found: Shift) -> None:
        joined = found.runs - 1  # of the runs that seemed to belong to the old level
        state.since = [*(state.before[-joined:] if joined else ()), change.log_ratio]
        if joined:
            del state.before[-joined:], state.executions[-joined:]
        # Noise may move where a level seems to begin.
        known = [*([self.first] if self.first else []), *state.executions][-1 - VAGUE :]
        old = known[0].detail.facts if known else {}
        state.alarm = len(self.alarms)
        kind: Kind = "regression" if found.value > 0 else "improvement"
        message, suspects = _shift_told(change.series, found), changed(old, each.detail.facts)
        self._raise(kind, each, message, metric=change.series, suspects=suspects)


def alarms(history: Iterable[Execution], rule: Rule) -> tuple[Alarm, ...]:
    """Return every alarm that a job's history has raised, in the order in which they were."""
    fold = _Fold(rule)
    for each in history:
        fold.take(each)
    return tuple(fold.alarms)


def heard(found: Iterable[Alarm], at_ns: int) -> tuple[Alarm, ...]:
    """Return the open alarms that nobody has muted."""
    return tuple(each for each in found if each.is_open and not each.is_muted(at_ns))


def exit_code(latest: Execution, found: Sequence[Alarm]) -> int:
    """Return 0 when nothing got worse, 3 for a regression, a
    changed identity or void figures, 1 when it could not run.
    """
    match latest.outcome:
        case "failed" | "dead" | "running" | "missed":
            return 1
        case "void":
            return 3
        case "skipped" | "accepted" | "muted":
            return 0
        case "done":
            return 3 if any(alarm.kind in GATED for alarm in heard(found, _at(latest))) else 0


def _at(each: Execution) -> int:
    return each.started_ns if each.ended_ns is None else each.ended_ns


def _told(each: Execution, failures: int) -> str:
    if each.outcome == "dead":
        return each.detail.reason or "an endpoint does not answer"
    reason = each.detail.reason or each.outcome
    return (
        reason
        if each.detail.missed == failures
        else f"{failures} firings in a row gave no usable figures; the last: {reason}"
    )


def _shift_told(series: str, found: Shift) -> str:
    over = "the last run" if found.runs == 1 else f"the last {found.runs} runs"
    return (
        f"{series} {found.value:+.1%} ({found.low:+.1%} to {found.high:+.1%}), {over} against "
        f"{found.baseline} run{'' if found.baseline == 1 else 's'} before"
    )
