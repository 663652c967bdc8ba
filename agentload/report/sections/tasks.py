"""Show what tasks take and cost, and how many sessions a cache serves.

A task is a session, all turns together.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from advisor.estimate import Estimate, present
from advisor.loads import CapacityPoint
from advisor.verdict import HitCliff, TaskFigures
from agentload.report import format as say
from agentload.report import labels
from agentload.report.lookup import first
from agentload.report.parts import Field, Group, Table, group, table
from agentload.report.sections.view import View

WHAT: Final = (
    "A task is a session; its latency is the sum of its turns' latencies, waits of users and tools "
    "left out. A user's hour has the trace's waits for tools as well: the next task begins when "
    "the last one is done."
)
ESTIMATED: Final = (
    "Windows cut tasks: latencies are estimated, as the sum of expected turn latencies over the "
    "places of a task."
)
HITS: Final = "What was found in the cache, of what a cache finds that loses nothing of a session."
TaskFigure: TypeAlias = Callable[[TaskFigures], Estimate | None]
_ROWS: Final[tuple[tuple[str, TaskFigure], ...]] = (
    ("task latency, mean", lambda each: each.latency_ms),
    ("task latency p95", lambda each: each.p95_ms),
    ("tasks per hour and user ↑", lambda each: each.per_user_hour),
    ("tasks per GPU-hour ↑", lambda each: each.per_gpu_hour),
    ("cost of a task, USD", lambda each: each.usd),
    ("tasks with all checks passed ↑", lambda each: each.success),
    ("cost of a successful task, USD", lambda each: each.usd_successful),
)


def tasks(view: View) -> Group | None:
    """Compare the tasks of every arm, the whole server first, then class by class."""
    names = dict.fromkeys(each.workload for each in view.decision.tasks)
    tables = (*(_table(view, name) for name in names), _hits(view))
    return group("Tasks", tables=tables)


def _table(view: View, workload: str | None) -> Table:
    found = [first(view.decision.tasks, arm=arm, workload=workload) for arm in view.arms]
    title = f"Tasks of {workload}" if workload else "Tasks, whole server"
    notes = say.join(_notes(present(found)), " ")
    return table(title, ("", *view.columns), _rows(view, found), notes)


def _rows(view: View, found: Sequence[TaskFigures | None]) -> Iterator[Sequence[Field]]:
    for name, figure in _ROWS:
        values = [_value(each, figure) for each in found]
        if any(values):
            yield (name, *(say.estimate(value, among=values) for value in values))
    changes = list(map(_change, found))
    if any(changes):
        yield (f"task latency against {view.against}", *changes)
    if any(each is not None and each.are_whole for each in found):
        yield ("tasks done, of those played", *map(_tasks_done, found))


def _value(found: TaskFigures | None, figure: TaskFigure) -> Estimate | None:
    """Return a figure without a unit that the name of its row says."""
    value = None if found is None else figure(found)
    if value is None or value.unit in ("ms", "share"):
        return value
    return replace(value, unit="")


def _change(found: TaskFigures | None) -> str:
    if found is None or found.change is None:
        return ""
    return say.change(found.change.relative)


def _tasks_done(found: TaskFigures | None) -> str | None:
    """Say how many tasks of those played were done."""
    if found is None:
        return None
    return f"{say.number(found.done)} of {say.number(found.tasks)}"


def _notes(known: Sequence[TaskFigures]) -> Iterator[str]:
    yield WHAT
    if any(each.latency_ms is not None and not each.are_whole for each in known):
        yield ESTIMATED
    for each in known:
        if each.unknown:
            yield f"No latency of {labels.arm(each.arm)}: {each.unknown}."
    yield from dict.fromkeys(
        f"Success is not graded: {each.ungraded}." for each in known if each.ungraded
    )


def _hits(view: View) -> Table:
    """Set the hit rate of every arm next to what it could hit, load by load."""
    tried: dict[int, dict[str, list[CapacityPoint]]] = defaultdict(lambda: defaultdict(list))
    for each in view.evidence.capacity:
        if each.hit_rate is not None and each.ideal_hit_rate is not None:
            tried[each.agents][each.arm].append(each)
    rows = (
        (say.number(agents), *(_hit(of_arm.get(arm, ())) for arm in view.arms))
        for agents, of_arm in sorted(tried.items())
    )
    notes = [HITS, *map(_cliff, view.decision.hit_cliffs)]
    columns = ("sessions at once", *view.columns)
    return table("Cache hit rate by sessions at once", columns, rows, say.join(notes, " "))


def _hit(tried: Sequence[CapacityPoint]) -> str | None:
    if not tried:
        return None
    found = sum(each.hit_rate or 0.0 for each in tried) / len(tried)
    ideal = sum(each.ideal_hit_rate or 0.0 for each in tried) / len(tried)
    return f"{say.percent(found)} of {say.percent(ideal)}"


def _cliff(each: HitCliff) -> str:
    of = f" of {each.workload}" if each.workload else ""
    return (
        f"{labels.arm(each.arm)}: the hit rate falls off at {say.number(each.agents)} "
        f"sessions{of}, to {say.percent(each.hit_rate)} of a possible "
        f"{say.percent(each.ideal_hit_rate)}; {say.number(each.kept_at)} fit."
    )
