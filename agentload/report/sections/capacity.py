"""How much an arm carries: throughput against latency, agents within the SLO, and the pool over time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np

from advisor.evidence import Calls
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Axis, Plot, Series, every
from agentload.report.parts import Cell, Group, Table, Timeline, group, table
from agentload.report.sections.view import View

SECONDS: Final = Axis(label="seconds since the run's start", quantity="seconds", low=0.0)


def capacity(view: View) -> Group | None:
    """Show what each arm carries and how full its pool ran."""
    charts = (make(view) for make in (_throughput, _agents, _usage, _preemptions))
    return group("Capacity and load", charts=charts, tables=(_table(view),))


def _throughput(view: View) -> Plot:
    series = []
    for arm in view.arms:
        blocks = every(sorted(block for name in view.workloads for block in _blocks(view.evidence.calls(name, arm), name)))
        tips = (
            f"{labels.arm(arm)}, {name}, pair {pair}: {say.significant(rate, 3)} tokens/s, turn {say.duration(ms)}"
            for rate, ms, name, pair in blocks
        )
        series.append(view.series(arm, "points", (block[0] for block in blocks), (block[1] for block in blocks), tips=tips))
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
    series = []
    for arm in view.arms:
        points = sorted((point for point in view.evidence.capacity if point.arm == arm and point.turns), key=lambda point: point.agents)
        tips = (f"{labels.arm(arm)}, {each.agents} agents: {each.within_slo} of {each.turns} turns within the SLO" for each in points)
        series.append(
            view.series(arm, "line", (each.agents for each in points), (each.within_slo / each.turns for each in points), tips=tips)
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
        x=SECONDS,
        y=Axis(label="share of the KV pool", quantity="share", low=0.0, high=1.0),
        series=tuple(_gauge(view, each, each.kv_usage) for each in _compared(view)),
    )


def _preemptions(view: View) -> Plot:
    return Plot(
        name="preemptions",
        title="Preemptions over time",
        caption="Counted since the run's start; a preempted call computes its prompt again.",
        x=SECONDS,
        y=Axis(label="preemptions", quantity="count", low=0.0),
        series=tuple(_gauge(view, each, each.preemptions) for each in _compared(view) if any(each.preemptions)),
    )


def _compared(view: View) -> tuple[Timeline, ...]:
    """Leave out what was played as a control."""
    return tuple(each for each in view.facts.timelines if each.arm in view.arms)


def _gauge(view: View, timeline: Timeline, values: tuple[float, ...]) -> Series:
    return view.series(timeline.arm, "steps", every(timeline.seconds), every(values))


def _table(view: View) -> Table:
    rows = (
        (
            labels.arm(each.arm),
            each.workload or "your mix",
            say.spread(each.agents_per_gpu, say.carried),
            say.ABSENT if each.replicas_at_peak is None else str(each.replicas_at_peak),
            say.ABSENT if each.next_replica_at_agents is None else str(each.next_replica_at_agents),
            Cell(text=view.told(each.reason), tone="muted"),
        )
        for each in view.decision.capacity
    )
    columns = ("arm", "load", "agents per GPU", "replicas at the peak", "next replica due at", "how it is known")
    return table("Agents within the SLO", columns, rows)
