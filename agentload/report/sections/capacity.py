"""How much an arm carries: throughput against latency, agents within the SLO, and the pool over time."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from advisor.evidence import Calls
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Chart, Plot, Series, every
from agentload.report.parts import Cell, Group, Table, Timeline
from agentload.report.sections.view import View


def capacity(view: View) -> Group | None:
    """Show what each arm carries and how full its pool ran."""
    charts = tuple(_charts(view))
    table = _table(view)
    if not charts and not table.rows:
        return None
    return Group(title="Capacity and load", charts=charts, tables=(table,) if table.rows else ())


def _charts(view: View) -> Iterable[Chart]:
    for make in (_throughput, _agents, _usage, _preemptions):
        plot = make(view)
        if any(series.xs for series in plot.series):
            yield plot


def _throughput(view: View) -> Plot:
    slots = labels.slots(view.evidence)
    series = []
    for arm in view.arms:
        blocks = [point for name in view.workloads for point in _blocks(view.evidence.calls(name, arm), name)]
        blocks = list(every(sorted(blocks)))
        series.append(
            Series(
                label=labels.arm(arm),
                slot=slots[arm],
                mark="points",
                xs=tuple(block[0] for block in blocks),
                ys=tuple(block[1] for block in blocks),
                tips=tuple(
                    f"{labels.arm(arm)}, {name}, pair {pair}: {say.significant(rate, 3)} tokens/s, turn {say.duration(ms)}"
                    for rate, ms, name, pair in blocks
                ),
            )
        )
    return Plot(
        name="throughput",
        title="Throughput against latency",
        caption="Each mark is one block on one arm: to the right is more work done, lower is faster.",
        x=Axis(label="output tokens per second", quantity="tokens/s", low=0.0),
        y=Axis(label="median turn time", quantity="duration", low=0.0),
        series=tuple(series),
    )


def _blocks(calls: Calls | None, workload: str) -> Iterable[tuple[float, float, str, int]]:
    """Yield (output tokens a second, median turn time, workload, pair) of each block."""
    if calls is None:
        return
    ok = np.flatnonzero(calls.ok)
    if not ok.size:
        return
    order = ok[np.argsort(calls.pair[ok], kind="stable")]
    pairs, firsts = np.unique(calls.pair[order], return_index=True)
    for pair, rows in zip(pairs, np.split(order, firsts[1:]), strict=True):
        ends = calls.start_s[rows] + calls.turn_ms[rows] / 1_000
        span = float(np.nanmax(ends) - np.nanmin(calls.start_s[rows]))
        if span > 0:
            yield float(np.nansum(calls.output_tokens[rows])) / span, float(np.nanmedian(calls.turn_ms[rows])), workload, int(pair)


def _agents(view: View) -> Plot:
    slots = labels.slots(view.evidence)
    series = []
    for arm in view.arms:
        points = sorted((point for point in view.evidence.capacity if point.arm == arm and point.turns), key=lambda point: point.agents)
        series.append(
            Series(
                label=labels.arm(arm),
                slot=slots[arm],
                mark="line",
                xs=tuple(float(point.agents) for point in points),
                ys=tuple(point.within_slo / point.turns for point in points),
                tips=tuple(
                    f"{labels.arm(arm)}, {point.agents} agents: {point.within_slo} of {point.turns} turns within the SLO"
                    for point in points
                ),
            )
        )
    return Plot(
        name="agents",
        title="Turns within the SLO against agents on one replica",
        caption="An arm's capacity is the largest number of agents whose turns stay within the SLO while the pool is full.",
        x=Axis(label="agents on one replica", quantity="count"),
        y=Axis(label="turns within the SLO", quantity="share", high=1.0),
        series=tuple(series),
    )


def _usage(view: View) -> Plot:
    return Plot(
        name="kv-usage",
        title="KV pool in use over time",
        caption="100 % is a full pool. Only a pool that fills can show what a larger one is worth.",
        x=Axis(label="seconds since the run's start", quantity="seconds", low=0.0),
        y=Axis(label="share of the KV pool", quantity="share", low=0.0, high=1.0),
        series=tuple(_gauge(view, each, each.kv_usage) for each in _compared(view)),
    )


def _preemptions(view: View) -> Plot:
    return Plot(
        name="preemptions",
        title="Preemptions over time",
        caption="Counted since the run's start; a preempted call computes its prompt again.",
        x=Axis(label="seconds since the run's start", quantity="seconds", low=0.0),
        y=Axis(label="preemptions", quantity="count", low=0.0),
        series=tuple(_gauge(view, each, each.preemptions) for each in _compared(view) if any(each.preemptions)),
    )


def _compared(view: View) -> tuple[Timeline, ...]:
    """Leave out what was played as a control."""
    return tuple(each for each in view.facts.timelines if each.arm in view.arms or each.arm == view.evidence.reference)


def _gauge(view: View, timeline: Timeline, values: tuple[float, ...]) -> Series:
    kept = every(tuple(zip(timeline.seconds, values, strict=True)))
    slot = labels.slots(view.evidence)[timeline.arm]
    xs, ys = tuple(point[0] for point in kept), tuple(point[1] for point in kept)
    return Series(label=labels.arm(timeline.arm), slot=slot, mark="steps", xs=xs, ys=ys)


def _table(view: View) -> Table:
    rows = tuple(
        (
            Cell(text=labels.arm(each.arm)),
            Cell(text=each.workload or "your mix"),
            Cell(text=say.spread(each.agents_per_gpu, say.whole)),
            Cell(text=say.ABSENT if each.replicas_at_peak is None else str(each.replicas_at_peak)),
            Cell(text=say.ABSENT if each.next_replica_at_agents is None else str(each.next_replica_at_agents)),
            Cell(text=view.told(each.reason), tone="muted"),
        )
        for each in view.decision.capacity
    )
    return Table(
        title="Agents within the SLO",
        columns=("arm", "load", "agents per GPU", "replicas at the peak", "next replica due at", "how it is known"),
        rows=rows,
    )
