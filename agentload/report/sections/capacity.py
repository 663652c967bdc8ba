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
    for agents_at_once, draws in sorted(by_load.items()):
        rates = [found for found in map(rate, draws) if found]
        if not rates:
            continue
        mean = sum(rates) / len(rates)
        of_agent = mean / agents_at_once
        of_gpu = mean / gpus
        per_agent.append(of_agent)
        per_gpu.append(of_gpu)
        met = sum(each.within_slo for each in draws)
        turns = sum(each.turns for each in draws)
        load = f"{labels.arm(arm)}, {agents_at_once} agents, {met} of {turns} turns within the SLO"
        rates_of_both = f"{say.significant(of_gpu, 3)} per GPU, {say.significant(of_agent, 3)}"
        tips.append(f"{load}: {rates_of_both} per agent")
    return view.series(arm, "path", per_agent, per_gpu, tips=tips)


LEAST_CALLS: Final = 5
"""Of a field: fewer say nothing of their median."""
DARKEST: Final = 0.2
"""The change of a field that is drawn darkest."""
Place: TypeAlias = tuple[int, int]
"""A field of a map, by the octaves of its context and its load."""
Fields: TypeAlias = dict[Place, Floats]
Shades: TypeAlias = dict[Place, tuple[str, float, int]]
"""What is written in each field, how dark it is, and the slot of its colour."""


def _heat(view: View) -> Iterator[HeatMap]:
    """Yield the reference's time per output token by context and load, and each arm's change.

    Changes are on the same turns.
    """
    ours = view.evidence.calls_of(view.reference)
    if not ours:
        return
    opened = dict(zip(ours, open_calls(list(ours.values())), strict=True))
    for arm in view.arms:
        others = view.evidence.calls_of(arm)
        shared = [name for name in ours if name in others]
        points = [_points(ours[name], opened[name], others[name]) for name in shared]
        if points:
            context, load, values = map(np.concatenate, zip(*points, strict=True))
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


def _fields(context: Ints, load: Ints, values: Floats) -> Fields:
    """Sort values into the fields of a map; those with few calls are left out."""
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.lexsort((load[known], context[known]))]
    is_last_of_field = np.diff(context[order]) | np.diff(load[order])
    fields = {}
    for rows in np.split(order, np.flatnonzero(is_last_of_field) + 1):
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


def _map(view: View, arm: str, fields: Fields) -> Iterator[HeatMap]:
    """Yield the map of an arm: of the reference its times, of any other arm how these change."""
    if len(fields) < 2:
        return
    contexts = sorted({context for context, _ in fields})
    loads = sorted({load for _, load in fields}, reverse=True)
    shades, colours = "Stronger is slower.", _shades_of_times(fields)
    what = "time per output token"
    if arm != view.reference:
        shades = (
            f"On the same turns; in the colour of {labels.arm(arm)} where it is faster, in grey "
            "where it is slower."
        )
        colours = _shades_of_changes(fields, view.slots[arm])
        what = f"change of {what} against {view.against}"
    cells = []
    for (context, load), (text, shade, slot) in colours.items():
        lengths = f"{say.tokens(2**context)} to {say.tokens(2 ** (context + 1))} tokens"
        calls = say.plural(fields[context, load].size, "call")
        cell = Square(
            column=contexts.index(context),
            row=loads.index(load),
            value=shade,
            text=text,
            tip=f"{lengths}, {_range(load)} calls at once: {text} ({calls})",
            slot=slot,
        )
        cells.append(cell)
    yield HeatMap(
        name=f"load-{labels.slug(arm)}",
        title=f"{labels.arm(arm)}: {what}, by context and load",
        caption=f"{shades} Fields with fewer than {LEAST_CALLS} calls are empty.",
        x_label="context, tokens",
        y_label="calls open at once",
        columns=tuple(say.tokens(2**context) for context in contexts),
        rows=tuple(map(_range, loads)),
        cells=tuple(cells),
    )


def _shades_of_times(fields: Fields) -> Shades:
    """Shade each field by its median, the slowest darkest."""
    medians = {place: float(np.median(values)) for place, values in fields.items()}
    slowest = max(medians.values()) or 1.0
    return {place: (say.duration(ms), ms / slowest, 0) for place, ms in medians.items()}


def _shades_of_changes(fields: Fields, slot: int) -> Shades:
    """Shade each field by its mean change, in the colour of *slot* where that is faster."""
    shades = {}
    for place, values in fields.items():
        change = math.expm1(float(np.mean(values)))
        shade = min(1.0, abs(change) / DARKEST)
        shades[place] = (f"{say.with_sign(100 * change)}%", shade, slot if change < 0 else 0)
    return shades


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
