"""Show how much an arm carries.

Throughput against what a user gets, agents within the SLO, and latency by context and load.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

import numpy as np

from advisor.evidence import Calls, Floats, Ints
from advisor.loads import CapacityPoint
from advisor.statistics.paired import same_turns
from advisor.steps import CapacitySearch
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import ChartAxis, HeatMap, Plot, Series, Square
from agentload.report.lookup import by_key
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
    if not point.minutes:
        return None
    return 60 * point.within_slo / point.minutes


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
            title=f"{say.capital(unit)}: per GPU against per agent",
            caption=(
                f"Each mark is one load that was tried{_range_of_loads(view)}; lines join them in "
                "that order. Further right is better for a user, further up is cheaper; up and "
                "right wins."
            ),
            x=ChartAxis(label=f"{unit}, per agent", quantity="count"),
            y=ChartAxis(label=f"{unit}, per GPU", quantity="count", low=0.0),
            series=series,
        )


def _range_of_loads(view: View) -> str:
    """Say from which load to which one was tried."""
    loads = [point.agents for point in view.evidence.capacity if point.turns]
    if not loads:
        return ""
    return f", from {min(loads)} agents to {max(loads)}"


def _throughput(view: View, arm: str, rate: Rate) -> Series:
    """Return what each load of an arm gives, the mean over its draws."""
    gpus = view.evidence.gpus(arm) * view.evidence.deployment.replicas
    tried = (each for each in view.evidence.capacity if each.arm == arm and each.turns)
    by_load = by_key((point.agents, point) for point in tried)
    per_agent, per_gpu, tips = [], [], []
    for agents_at_once, points in sorted(by_load.items()):
        rates = [found for found in map(rate, points) if found]
        if not rates:
            continue
        found = sum(rates) / len(rates)
        per_agent.append(found / agents_at_once)
        per_gpu.append(found / gpus)
        met = sum(each.within_slo for each in points)
        turns = sum(each.turns for each in points)
        by_gpu = say.significant(per_gpu[-1], 3)
        by_agent = say.significant(per_agent[-1], 3)
        load = f"{labels.arm(arm)}, {agents_at_once} agents, {met} of {turns} turns within the SLO"
        tips.append(f"{load}: {by_gpu} per GPU, {by_agent} per agent")
    return view.series(arm, "path", per_agent, per_gpu, tips=tips)


LEAST_CALLS: Final = 5
"""Of a field: fewer say nothing of their median."""
DARKEST: Final = 0.2
"""The change of a field that is drawn darkest."""


def _heat(view: View) -> Iterator[HeatMap]:
    """Yield the reference's time per output token by context and load, and each arm's change.

    Changes are on the same turns.
    """
    ours = {}
    for name in view.workloads:
        calls = view.evidence.calls(name, view.reference)
        if calls is not None:
            ours[name] = calls
    if not ours:
        return
    opened = dict(zip(ours, open_calls(list(ours.values())), strict=True))
    for arm in view.arms:
        pieces = []
        for name, calls in ours.items():
            other = view.evidence.calls(name, arm)
            if other is not None:
                pieces.append(_points(calls, opened[name], other))
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
    is_last = np.diff(context[order]) | np.diff(load[order])
    fields = {}
    for rows in np.split(order, np.flatnonzero(is_last) + 1):
        if rows.size >= LEAST_CALLS:
            place = (int(context[rows[0]]), int(load[rows[0]]))
            fields[place] = values[rows]
    return fields


def _octave(values: Floats | Ints) -> Ints:
    """Return the power of two at or below each value; what is not known is 0."""
    known = np.maximum(np.nan_to_num(values), 1.0)
    octaves = np.floor(np.log2(known))
    return octaves.astype(np.int64)


def open_calls(calls: list[Calls]) -> list[Ints]:
    """Return for each call how many calls of all classes were open when it started.

    One column for each class.
    """
    starts = np.sort(np.concatenate([each.start_s for each in calls]))
    ends = np.sort(np.concatenate([each.end_s for each in calls]))
    counts = []
    for each in calls:
        started = np.searchsorted(starts, each.start_s, "right")
        ended = np.searchsorted(ends, each.start_s, "right")
        counts.append(started - ended)
    return counts


def _map(view: View, arm: str, fields: dict[tuple[int, int], Floats]) -> Iterator[HeatMap]:
    if len(fields) < 2:
        return
    contexts = sorted({context for context, _ in fields})
    loads = sorted({load for _, load in fields})
    slowest = max(float(np.median(values)) for values in fields.values())
    name = labels.arm(arm)
    slot = view.slots[arm]
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
            text = say.duration(middle)
            shade = middle / slowest if slowest else 0.0
        else:
            middle = math.expm1(float(np.mean(values)))
            text = f"{say.with_sign(100 * middle)}%"
            shade = min(1.0, abs(middle) / DARKEST)
        lengths = f"{say.tokens(2**context)} to {say.tokens(2 ** (context + 1))} tokens"
        calls = say.plural(values.size, "call")
        cell = Square(
            column=contexts.index(context),
            row=len(loads) - 1 - loads.index(load),
            value=shade,
            text=text,
            tip=f"{lengths}, {_range(load)} calls at once: {text} ({calls})",
            slot=slot if middle < 0 else 0,
        )
        cells.append(cell)
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
    if octave == 0:
        return str(2**octave)
    return f"{2**octave}–{2 ** (octave + 1) - 1}"


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
