"""Turn a job's history into series to look at.

Each figure is a series over its runs, with where it changed and what servers said differently then.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from agentload.model.record import Record
from agentload.watch.alarms import Alarm
from agentload.watch.history import Execution, RunChange, differences
from agentload.watch.job import Metric
from agentload.watch.levels import change_points

VAGUE: Final = 1  # runs by which the beginning of a level may be wrong


class Point(Record):
    """State one run's figure, as a relative change from the first reference run.

    0.05 is 5% slower.
    """

    execution: int
    """Place in the executions of the job."""
    run_id: str
    at_ns: int
    """When the execution started."""
    value: float
    low: float | None
    """Lower end of the 95% interval within the run; runs differ by more.

    None for a reference run, which is not compared with itself.
    """
    high: float | None
    reference: str
    """Run that this run was compared with; a reference run has its own name."""


class LevelChange(Record):
    """State from which run on a series has another level."""

    point: int
    """Place of the first point of the new level in its series."""
    run_id: str
    at_ns: int
    change: float
    """Relative change of the mean, from the stretch before to the stretch after."""
    p: float
    suspects: tuple[str, ...]
    """What the servers said differently at that run, or within one run of it."""


class Trend(Record):
    """Hold one figure of one arm over all usable runs."""

    arm: str
    metric: Metric
    points: tuple[Point, ...]
    change_points: tuple[LevelChange, ...]
    alarms: tuple[Alarm, ...]

    @property
    def name(self) -> str:
        """Name of the series, as in alarms."""
        return f"{self.arm}: {self.metric}"


class IdentityChange(Record):
    """State what the servers said differently at a run than at the usable run before."""

    run_id: str
    at_ns: int
    differences: tuple[str, ...]


class Trends(Record):
    """Hold all that there is to see of a job."""

    job: str
    executions: tuple[Execution, ...]
    series: tuple[Trend, ...]
    identities: tuple[IdentityChange, ...]
    alarms: tuple[Alarm, ...]
    """Alarms in the order in which they were raised."""


def trends(job: str, executions: Sequence[Execution], alarms: Sequence[Alarm]) -> Trends:
    """Turn a history into trends."""
    found: dict[tuple[str, Metric], list[Point]] = {}
    places = {
        each.run_id: place
        for place, each in enumerate(executions)
        if each.outcome == "done" and each.run_id is not None
    }
    for place in places.values():
        each = executions[place]
        for change in each.detail.changes:
            points = found.setdefault((change.arm, change.metric), [])
            reference = each.detail.reference
            if not points and reference in places:
                points.append(_reference(executions, places[reference]))
            points.append(_point(change, each, place, points))
    return Trends(
        job=job,
        executions=tuple(executions),
        series=tuple(
            _series(arm, metric, points, executions, alarms)
            for (arm, metric), points in found.items()
        ),
        identities=tuple(_identities([executions[place] for place in places.values()])),
        alarms=tuple(alarms),
    )


def _reference(executions: Sequence[Execution], place: int) -> Point:
    each = executions[place]
    assert each.run_id is not None
    return Point(
        execution=place,
        run_id=each.run_id,
        at_ns=each.started_ns,
        value=0.0,
        low=None,
        high=None,
        reference=each.run_id,
    )


def _point(change: RunChange, each: Execution, place: int, before: Sequence[Point]) -> Point:
    run, reference = each.run_id, each.detail.reference
    assert run is not None
    assert reference is not None, each  # changes are relative to a reference
    # A later reference keeps the value that it had, so the series continues from there.
    base = next((math.log1p(point.value) for point in before if point.run_id == reference), 0.0)
    value, low, high = change.relative(base)
    return Point(
        execution=place,
        run_id=run,
        at_ns=each.started_ns,
        value=value,
        low=low,
        high=high,
        reference=reference,
    )


def _series(
    arm: str,
    metric: Metric,
    points: list[Point],
    executions: Sequence[Execution],
    alarms: Sequence[Alarm],
) -> Trend:
    played = [executions[point.execution] for point in points]
    changes = []
    for each in change_points([math.log1p(point.value) for point in points]):
        first = points[each.at]
        level = LevelChange(
            point=each.at,
            run_id=first.run_id,
            at_ns=first.at_ns,
            change=each.value,
            p=each.p,
            suspects=suspects(played, each.at),
        )
        changes.append(level)
    return Trend(
        arm=arm,
        metric=metric,
        points=tuple(points),
        change_points=tuple(changes),
        alarms=tuple(alarm for alarm in alarms if alarm.metric == f"{arm}: {metric}"),
    )


def suspects(executions: Sequence[Execution], at: int) -> tuple[str, ...]:
    """Name what changed just before a run, or within one run of it."""
    found = differences(_facts(executions, at - 1), _facts(executions, at))
    if found:
        return found
    return differences(_facts(executions, at - 1 - VAGUE), _facts(executions, at + VAGUE))


def _facts(executions: Sequence[Execution], place: int) -> Mapping[str, Mapping[str, object]]:
    last = len(executions) - 1
    return executions[min(max(place, 0), last)].detail.facts


def _identities(executions: Sequence[Execution]) -> Iterator[IdentityChange]:
    for before, after in pairwise(executions):
        found = differences(before.detail.facts, after.detail.facts)
        if found:
            assert after.run_id is not None
            yield IdentityChange(run_id=after.run_id, at_ns=after.started_ns, differences=found)
