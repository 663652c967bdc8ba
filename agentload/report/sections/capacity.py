"""How much an arm carries: throughput against what a user
gets, agents within the SLO, and latency by context and load.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from advisor.evidence import Calls, CapacityPoint, Floats, Ints
from advisor.statistics.paired import same_turns
from advisor.steps import Search
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, HeatMap, Plot
from agentload.report.charts.spec import Cell as Field
from agentload.report.parts import Cell, Group, Table, group, table
from agentload.report.sections.view import View


def capacity(view: View) -> Group | None:
    """Show what each arm carries, and how latency grows with context and load."""
    loads = {(point.arm, point.agents) for point in view.evidence.capacity if point.turns}
    note = ""
    if (
        len({agents for _, agents in loads}) < 2
        and (command := view.command(Search(limits=None, trial_s=300.0))) is not None
    ):
        note = f"Throughput against what a user gets needs two loads or more: {command}"
    return group(
        "Capacity and load",
        charts=(*_pareto(view), *_heat(view)),
        tables=(_table(view),),
        note=note,
    )


def _pareto(view: View) -> Iterator[Plot]:
    """Yield the throughput of a GPU against what one agent gets
    of it, load by load: in tokens, and in turns within the SLO.
    """
    rates: tuple[tuple[str, str, Callable[[CapacityPoint], float | None]], ...] = (
        ("tokens", "output tokens/s", lambda point: point.output_tokens_per_s),
        (
            "turns",
            "turns within the SLO per hour",
            lambda point: 60 * point.within_slo / point.minutes if point.minutes else None,
        ),
    )
    for name, unit, rate in rates:
        series = []
        for arm in view.arms:
            gpus = view.evidence.gpus(arm) * view.evidence.deployment.replicas
            tried = sorted(
                (point for point in view.evidence.capacity if point.arm == arm and point.turns),
                key=lambda each: each.agents,
            )
            points = [(each, found) for each in tried if (found := rate(each))]
            tips = (
                f"{labels.arm(arm)}, {each.agents} agents, {each.within_slo} of "
                f"{each.turns} turns within the SLO: "
                f"{say.significant(found / gpus, 3)} per GPU, "
                f"{say.significant(found / each.agents, 3)} per agent"
                for each, found in points
            )
            xs, ys = (
                [found / each.agents for each, found in points],
                [found / gpus for _, found in points],
            )
            series.append(view.series(arm, "line", xs, ys, tips=tips))
        if all(len(each.xs) < 2 for each in series):
            continue
        yield Plot(
            name=f"pareto-{name}",
            title=f"{unit[0].upper()}{unit[1:]}: per GPU against per agent",
            caption="Each mark is one load that was tried. Further right is better for a user, "
            "further up is cheaper; up and right wins.",
            x=Axis(label=f"{unit}, per agent", quantity="count", low=0.0),
            y=Axis(label=f"{unit}, per GPU", quantity="count", low=0.0),
            series=tuple(series),
        )


LEAST_CALLS: Final = 5
"""Of a field: fewer say nothing of their median."""
DARKEST: Final = 0.2
"""The change of a field that is drawn darkest."""


def _heat(view: View) -> Iterator[HeatMap]:
    """Yield the time per output token of the reference by context
    and load, and how each arm changes it on the same turns.
    """
    reference = view.evidence.reference
    ours = [
        (name, calls)
        for name in view.workloads
        if (calls := view.evidence.calls(name, reference)) is not None
    ]
    if not ours:
        return
    opened = open_calls([calls for _, calls in ours])
    for arm in view.arms:
        pieces = []
        for (name, calls), at_once in zip(ours, opened, strict=True):
            other = calls if arm == reference else view.evidence.calls(name, arm)
            if other is not None:
                left, right = same_turns(calls, other)
                with np.errstate(
                    invalid="ignore", divide="ignore"
                ):  # what has no figure is left out below
                    values = (
                        other.tpot_ms[right]
                        if arm == reference
                        else np.log(other.tpot_ms[right] / calls.tpot_ms[left])
                    )
                pieces.append((_octave(calls.prompt_tokens[left]), _octave(at_once[left]), values))
        if not pieces:
            continue
        context, load, values = (np.concatenate(columns) for columns in zip(*pieces, strict=True))
        known = np.flatnonzero(np.isfinite(values))
        order = known[np.lexsort((load[known], context[known]))]
        ends = np.flatnonzero(np.diff(context[order]) | np.diff(load[order])) + 1
        fields = {
            (int(context[rows[0]]), int(load[rows[0]])): values[rows]
            for rows in np.split(order, ends)
            if rows.size >= LEAST_CALLS
        }
        yield from _map(view, arm, fields)


def _octave(values: Floats | Ints) -> Ints:
    """Return the power of two at or below each value; what is not known is 0."""
    return np.floor(np.log2(np.maximum(np.nan_to_num(values), 1.0))).astype(np.int64)


def open_calls(calls: list[Calls]) -> list[Ints]:
    """Return, for each class, how many calls of all classes
    were open on the server when each of its own began.
    """
    starts = np.sort(np.concatenate([each.start_s for each in calls]))
    ends = np.sort(
        np.concatenate([each.start_s + np.nan_to_num(each.turn_ms) / 1e3 for each in calls])
    )
    return [
        np.searchsorted(starts, each.start_s, "right")
        - np.searchsorted(ends, each.start_s, "right")
        for each in calls
    ]


def _map(view: View, arm: str, fields: dict[tuple[int, int], Floats]) -> Iterator[HeatMap]:
    contexts, loads = (sorted({place[axis] for place in fields}) for axis in (0, 1))
    if len(fields) < 2:
        return
    reference, slot = view.evidence.reference, labels.slots(view.evidence)[arm]
    slowest = max(float(np.median(values)) for values in fields.values())
    cells = []
    for (context, load), values in fields.items():
        if arm == reference:
            middle = float(np.median(values))
            text, shade = say.duration(middle), middle / slowest if slowest else 0.0
        else:
            middle = math.expm1(float(np.mean(values)))
            text, shade = f"{say.signed(100 * middle)}%", min(1.0, abs(middle) / DARKEST)
        where = (
            f"{say.tokens(2**context)} to {say.tokens(2 ** (context + 1))} tokens, "
            f"{_range(load)} calls at once"
        )
        cells.append(
            Field(
                column=contexts.index(context),
                row=len(loads) - 1 - loads.index(load),
                value=shade,
                text=text,
                tip=f"{where}: {text} ({say.plural(values.size, 'call')})",
                slot=slot if middle < 0 else 0,
            )
        )
    name = labels.arm(arm)
    told = (
        "Stronger is slower."
        if arm == reference
        else (
            f"On the same turns; in the colour of {name} where it is faster, in grey where it "
            "is slower."
        )
    )
    what = (
        "time per output token"
        if arm == reference
        else f"change of time per output token against {labels.arm(reference)}"
    )
    yield HeatMap(
        name=f"load-{labels.slug(arm)}",
        title=f"{name}: {what}, by context and load",
        caption=f"{told} Fields with fewer than {LEAST_CALLS} calls are empty.",
        x_label="context, tokens",
        y_label="calls open at once",
        columns=tuple(say.tokens(2**context) for context in contexts),
        rows=tuple(_range(load) for load in reversed(loads)),
        cells=tuple(cells),
    )


def _range(octave: int) -> str:
    return str(2**octave) if octave == 0 else f"{2**octave}–{2 ** (octave + 1) - 1}"


def _table(view: View) -> Table:
    rows = (
        (
            labels.arm(each.arm),
            each.workload or "your mix",
            say.ABSENT if each.agents_per_gpu is None else say.agents(each.agents_per_gpu),
            say.ABSENT if each.replicas_at_peak is None else str(each.replicas_at_peak),
            say.ABSENT if each.next_replica_at_agents is None else str(each.next_replica_at_agents),
            Cell(text=view.typeset(each.reason), tone="muted"),
        )
        for each in view.decision.capacity
    )
    columns = (
        "arm",
        "load",
        "agents per GPU",
        "replicas at the peak",
        "next replica due at",
        "how it is known",
    )
    return table("Agents within the SLO", columns, rows)
