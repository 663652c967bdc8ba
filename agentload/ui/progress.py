"""Fold the progress of a run from its journal's rows as they come, and draw its chart."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from agentload.model.metrics import NOT_OUTCOMES, Clock, ttft_ms
from agentload.model.record import Record
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, CallRow, LegRow, Row, RunRow
from agentload.report import labels
from agentload.report.charts.spec import ChartAxis, Plot, Series
from agentload.report.labels import SLOTS
from agentload.run.latest import SECOND, Latest, LatestSpread, is_shown, share
from agentload.study.stored import clock_start_of, notes, study_of

DRAWN: Final = 300
"""Marks of an arm in the chart; above this every second one is dropped."""
TOLD: Final = 5
IN_SECONDS: Final = 300.0
"""Longer runs are drawn in minutes."""
ENOUGH_SHARE: Final = 0.02  # share of the run that must be done before the rest is estimated


class ArmProgress(Record):
    """One arm so far."""

    arm: str
    done: int
    """Finished calls, and answers of an eval."""
    expected: int | None
    failed: tuple[tuple[str, int], ...]
    """Failed calls by status, the most frequent first."""
    ttft_ms: LatestSpread | None
    tpot_ms: LatestSpread | None
    tokens_per_s: float | None
    """In its current or latest block."""
    marks: tuple[tuple[float, float], ...]
    """Seconds since the process started, time to first token in ms."""


class Failure(Record):
    """One call that failed."""

    arm: str
    session: str
    turn: int
    status: str
    error: str | None


class RunProgress(Record):
    """Say how far a run is."""

    run_id: str
    kind: str
    name: str
    model: str | None
    job: str | None
    """The job that it is an execution of."""
    leg: int
    started_ns: int | None
    """Wall clock at which this process started."""
    heard_ns: int | None
    """Wall clock at the end of the latest call."""
    rounds: int | None
    round: int | None
    """The current round, from 1."""
    void_blocks: int
    share: float | None
    arms: tuple[ArmProgress, ...]
    failures: tuple[Failure, ...]
    began_share: float = 0.0
    """Share done before the run was resumed."""

    def left_minutes(self, now_ns: int) -> float | None:
        """Estimate the remaining minutes from those that passed.

        None while there is too little to go by.
        """
        if self.share is None or self.started_ns is None:
            return None
        done = self.share - self.began_share
        if done < ENOUGH_SHARE:
            return None
        passed = (now_ns - self.started_ns) / SECOND / 60
        return passed * (1 - self.share) / done


@dataclass(slots=True)
class _Arm:
    latest: Latest = field(default_factory=Latest)
    marks: list[tuple[float, float]] = field(default_factory=list)
    every: int = 1
    drawn: int = 0

    def begin(self) -> None:
        """Forget what was measured on another process's clock."""
        self.latest.begin()
        self.marks = []
        self.every = 1
        self.drawn = 0


class Fold:
    """Fold rows in order; `progress` may be called at any time."""

    def __init__(self) -> None:
        self._run: RunRow | None = None
        self._leg: LegRow | None = None
        self._arms: dict[str, _Arm] = {}
        self._clock = Clock()
        self._expected: Mapping[str, int] = {}
        self._job: str | None = None
        self._rounds: int | None = None
        self._round: int | None = None
        self._void = 0
        self._heard_ns: int | None = None
        self._failures: deque[Failure] = deque(maxlen=TOLD)
        self._began_share = 0.0

    def take(self, rows: Iterable[Row]) -> None:
        """Add rows."""
        for row in rows:
            match row:
                case CallRow():
                    self._call(row)
                case BlockRow():
                    self._block(row)
                case AnswerRow():
                    self._answer(row)
                case RunRow():
                    self._opened(row)
                case ArmRow():
                    self._arms.setdefault(row.arm, _Arm())
                case LegRow():
                    self._began(row)
                case _:
                    pass

    def progress(self) -> RunProgress | None:
        """Return the progress; None before the journal describes the run."""
        run = self._run
        leg = self._leg
        if run is None:
            return None
        return RunProgress(
            run_id=run.run_id,
            kind=run.kind,
            name=run.name,
            model=run.model,
            job=self._job,
            leg=1 if leg is None else leg.leg,
            started_ns=None if leg is None else leg.wall_ns,
            heard_ns=self._heard(),
            rounds=self._rounds,
            round=self._playing(),
            void_blocks=self._void,
            share=self._share(),
            arms=tuple(self._arm(name, each) for name, each in self._arms.items()),
            failures=tuple(reversed(self._failures)),
            began_share=self._began_share,
        )

    def _heard(self) -> int | None:
        if self._leg is None or self._heard_ns is None:
            return None
        return self._leg.wall_ns + self._heard_ns - self._leg.monotonic_ns

    def _opened(self, row: RunRow) -> None:
        self._run = row
        noted = notes(row.options)
        self._job = noted.job
        self._clock = Clock(clock_start_of(study_of(row)))
        self._rounds = noted.rounds
        self._expected = noted.calls

    def _began(self, row: LegRow) -> None:
        if self._leg is None or row.leg != self._leg.leg:
            self._began_share = self._share() or 0.0
            self._heard_ns = None  # the new part has a clock of its own
            for arm in self._arms.values():
                arm.begin()
        self._leg = row

    def _block(self, row: BlockRow) -> None:
        self._void += row.void is not None
        self._round = max(self._round or 0, row.round)

    def _answer(self, row: AnswerRow) -> None:
        if row.request_id is not None and self._rounds is not None:
            return  # a check inside a replay: its call also has a row
        arm = self._arms.setdefault(row.arm, _Arm())
        arm.latest.done += 1
        arm.latest.statuses["ok" if row.right is not None else "failed"] += 1

    def _call(self, row: CallRow) -> None:
        arm = self._arms.setdefault(row.arm, _Arm())
        since_ns = self._clock.since_ns(row)
        arm.latest.take(row, since_ns)
        if row.status not in {"ok", "not_sent", *NOT_OUTCOMES}:
            failure = Failure(
                arm=row.arm, session=row.session, turn=row.turn, status=row.status, error=row.error
            )
            self._failures.append(failure)
        if row.done_ns is not None:
            self._heard_ns = max(self._heard_ns or 0, row.done_ns)
        took_ms = ttft_ms(row, since_ns)
        if row.first_ns is not None and took_ms is not None and is_shown(row):
            self._mark(arm, row.first_ns, took_ms)

    def _mark(self, arm: _Arm, first_ns: int, ttft_ms: float) -> None:
        arm.drawn += 1
        if self._leg is None or arm.drawn % arm.every:
            return
        second = (first_ns - self._leg.monotonic_ns) / SECOND
        arm.marks.append((second, ttft_ms))
        if len(arm.marks) > DRAWN:
            arm.marks = arm.marks[::2]
            arm.every *= 2

    def _playing(self) -> int | None:
        if self._rounds is None:
            return None
        return min(self._rounds, 1 if self._round is None else self._round + 2)

    def _share(self) -> float | None:
        arms = {name: arm.latest for name, arm in self._arms.items()}
        found = share(arms, self._expected)
        if found is not None or not self._rounds:
            return found
        ended = 0 if self._round is None else self._round + 1
        return min(1.0, ended / self._rounds)

    def _arm(self, name: str, each: _Arm) -> ArmProgress:
        latest = each.latest
        return ArmProgress(
            arm=name,
            done=latest.done,
            expected=latest.total(self._expected.get(name)),
            failed=latest.failed,
            ttft_ms=latest.ttft_ms,
            tpot_ms=latest.tpot_ms,
            tokens_per_s=latest.tokens_per_s,
            marks=tuple(each.marks),
        )


def chart(progress: RunProgress) -> Plot | None:
    """Draw time to first token over the run so far; None before there is anything to draw."""
    marks = list(chain.from_iterable(arm.marks for arm in progress.arms))
    if len(marks) < 2:
        return None
    latest_s, _ = max(marks)
    unit, size = ("seconds", 1.0) if latest_s < IN_SECONDS else ("minutes", 60.0)
    series = []
    for place, arm in enumerate(progress.arms):
        if not arm.marks:
            continue
        seconds, waits_ms = zip(*arm.marks, strict=True)
        own = Series(
            label=labels.arm(arm.arm),
            slot=place % SLOTS,
            mark="points",
            xs=tuple(second / size for second in seconds),
            ys=waits_ms,
        )
        series.append(own)
    return Plot(
        name="so-far",
        title="Time to first token so far",
        caption="One mark for each answered call at its first token; long runs are thinned evenly.",
        x=ChartAxis(label=f"{unit} since the run started or resumed", quantity="count"),
        y=ChartAxis(label="ms", quantity="ms", low=0.0),
        series=tuple(series),
    )
