"""Show how much an arm carries.

Throughput against what a user gets, agents within the SLO, and latency by context and load.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from advisor.evidence import Calls, CapacityPoint, Floats, Ints
from advisor.statistics.paired import same_turns
from advisor.steps import CapacitySearch
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import ChartAxis, HeatMap, Plot, Series, Square
from agentload.report.parts import Group, Step, Table, group, in_grey, table
from agentload.report.sections.gpus import agents
from agentload.report.sections.view import View


def capacity(view: View) -> Group | None:
    """Show what each arm carries, and how latency grows with context and load."""
    return group(
        "Capacity and load",
        charts=(*_pareto(view), *_heat(view)),
        tables=(_table(view),),
        step=_second_load(view),
    )


def _second_load(view: View) -> Step | None:
    """Return what tries a second load, where fewer than two were tried."""
    if len({point.agents for point in view.evidence.capacity if point.turns}) >= 2:
        return None
    command = view.command(CapacitySearch(limits=None, trial_s=300.0))
    if command is None:
        return None
    return Step(
        text="Throughput against what a user gets needs two loads or more:", command=command
    )


Rate: TypeAlias = Callable[[CapacityPoint], float | None]


def _tokens_per_s(point: CapacityPoint) -> float | None:
    return point.output_tokens_per_s


def _turns_per_hour(point: CapacityPoint) -> float | None:
    return 60 * point.within_slo / point.minutes if point.minutes else None


def _pareto(view: View) -> Iterator[Plot]:
    """Yield the throughput of a GPU against what one agent gets, load by load.

    In tokens, and in turns within the SLO.
    """
    rates: tuple[tuple[str, str, Rate], ...] = (
        ("tokens", "output tokens/s", _tokens_per_s),
        ("turns", "turns within the SLO per hour", _turns_per_hour),
    )
    for name, unit, rate in rates:
        series = tuple(_throughput(view, arm, rate) for arm in view.arms)
        if all(len(each.xs) < 2 for each in series):
            continue
        yield Plot(
            name=f"pareto-{name}",
            title=f"{unit[0].upper()}{unit[1:]}: per GPU against per agent",
            caption=(
                f"Each mark is one load that was tried{_tried(view)}; lines join them in that "
                "order. Further right is better for a user, further up is cheaper; up and right "
                "wins."
            ),
            x=ChartAxis(label=f"{unit}, per agent", quantity="count"),
            y=ChartAxis(label=f"{unit}, per GPU", quantity="count", low=0.0),
            series=series,
        )


def _tried(view: View) -> str:
    """Say from which load to which one was tried."""
    loads = [point.agents for point in view.evidence.capacity if point.turns]
    return f", from {min(loads)} agents to {max(loads)}" if loads else ""


def _throughput(view: View, arm: str, rate: Rate) -> Series:
    """Return what each load of an arm gives, the mean over its draws."""
    gpus = view.evidence.gpus(arm) * view.evidence.deployment.replicas
    by_load: dict[int, list[CapacityPoint]] = {}
    for point in view.evidence.capacity:
        if point.arm == arm and point.turns:
            by_load.setdefault(point.agents, []).append(point)
    per_agent, per_gpu, tips = [], [], []
    for agents_at_once, points in sorted(by_load.items()):
        rates = [found for found in map(rate, points) if found]
        if not rates:
            continue
        found = sum(rates) / len(rates)
        per_agent.append(found / agents_at_once)
        per_gpu.append(found / gpus)
        met, turns = sum(each.within_slo for each in points), sum(each.turns for each in points)
        ours, theirs = (say.significant(each[-1], 3) for each in (per_gpu, per_agent))
        load = f"{labels.arm(arm)}, {agents_at_once} agents, {met} of {turns} turns within the SLO"
        tips.append(f"{load}: {ours} per GPU, {theirs} per agent")
    return view.series(arm, "path", per_agent, per_gpu, tips=tips)


LEAST_CALLS: Final = 5
"""Of a field: fewer say nothing of their median."""
DARKEST: Final = 0.2
"""The change of a field that is drawn darkest."""


def _heat(view: View) -> Iterator[HeatMap]:
    """Yield the reference's time per output token by context and load, and each arm's change.

    Changes are on the same turns.
    """
    found = {name: view.evidence.calls(name, view.reference) for name in view.workloads}
    ours = {name: calls for name, calls in found.items() if calls is not None}
    if not ours:
        return
    opened = dict(zip(ours, open_calls(list(ours.values())), strict=True))
    for arm in view.arms:
        others = {name: view.evidence.calls(name, arm) for name in ours}
        pieces = [
            _points(ours[name], opened[name], other)
            for name, other in others.items()
            if other is not None
        ]
        if pieces:
            context, load, values = map(np.concatenate, zip(*pieces, strict=True))
            yield from _map(view, arm, _fields(context, load, values))


def _points(ours: Calls, opened: Ints, other: Calls) -> tuple[Ints, Ints, Floats]:
    """Return the octaves of context and load of shared turns, and how their TPOT compares.

    For the reference against itself the values are its times, else log ratios.
    """
    left, right = same_turns(ours, other)
    times = other.tpot_ms[right]
    if other is not ours:
        with np.errstate(invalid="ignore", divide="ignore"):  # what has no figure is left out
            times = np.log(times / ours.tpot_ms[left])
    return _octave(ours.prompt_tokens[left]), _octave(opened[left]), times


def _fields(context: Ints, load: Ints, values: Floats) -> dict[tuple[int, int], Floats]:
    """Sort values into the fields of a map; those with few calls are left out."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.lexsort((load[known], context[known]))]
    ends = np.flatnonzero(np.diff(context[order]) | np.diff(load[order])) + 1
    return {
        (int(context[rows[0]]), int(load[rows[0]])): values[rows]
        for rows in np.split(order, ends)
        if rows.size >= LEAST_CALLS
    }


def _octave(values: Floats | Ints) -> Ints:
    """Return the power of two at or below each value; what is not known is 0."""
    return np.floor(np.log2(np.maximum(np.nan_to_num(values), 1.0))).astype(np.int64)


def open_calls(calls: list[Calls]) -> list[Ints]:
    """Return for each call how many calls of all classes were open when it started.

    One column for each class.
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
    if len(fields) < 2:
        return
    contexts, loads = (sorted({place[axis] for place in fields}) for axis in (0, 1))
    slowest = max(float(np.median(values)) for values in fields.values())
    name, slot = labels.arm(arm), view.slots[arm]
    told, what = "Stronger is slower.", "time per output token"
    if arm != view.reference:
        told = (
            f"On the same turns; in the colour of {name} where it is faster, in grey where "
            "it is slower."
        )
        what = f"change of {what} against {view.against}"
    cells = []
    for (context, load), values in fields.items():
        if arm == view.reference:
            middle = float(np.median(values))
            text, shade = say.duration(middle), middle / slowest if slowest else 0.0
        else:
            middle = math.expm1(float(np.mean(values)))
            text, shade = f"{say.with_sign(100 * middle)}%", min(1.0, abs(middle) / DARKEST)
        lengths = f"{say.tokens(2**context)} to {say.tokens(2 ** (context + 1))} tokens"
        calls = say.plural(values.size, "call")
        cells.append(
            Square(
                column=contexts.index(context),
                row=len(loads) - 1 - loads.index(load),
                value=shade,
                text=text,
                tip=f"{lengths}, {_range(load)} calls at once: {text} ({calls})",
                slot=slot if middle < 0 else 0,
            )
        )
    yield HeatMap(
        name=f"load-{labels.slug(arm)}",
        title=f"{name}: {what}, by context and load",
        caption=f"{told} Fields with fewer than {LEAST_CALLS} calls are empty.",
        x_label="context, tokens",
        y_label="calls open at once",
        columns=tuple(say.tokens(2**context) for context in contexts),
        rows=tuple(map(_range, reversed(loads))),
        cells=tuple(cells),
    )


def _range(octave: int) -> str:
    return str(2**octave) if octave == 0 else f"{2**octave}–{2 ** (octave + 1) - 1}"


def _table(view: View) -> Table:
    columns = (
        "arm",
        "load",
        "agents per GPU",
        "replicas at the peak",
        "next replica due at",
        "how it is known",
    )
    rows = (
        (
            labels.arm(each.arm),
            each.workload or "your mix",
            agents(view, each),
            each.replicas_at_peak,
            each.next_replica_at_agents,
            in_grey(view.typeset(each.reason)),
        )
        for each in view.decision.capacity
    )
    return table("Agents within the SLO", columns, rows)
