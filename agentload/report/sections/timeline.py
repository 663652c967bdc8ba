"""Show the run as it happened.

Blocks, starts and the KV pool of each arm over time, and one session turn by turn.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from advisor.assess.room import FULL
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import ChartAxis, Lanes, LaneSpan, LaneTrace, Look, every
from agentload.report.parts import Block, Group, Timeline, Turn, group
from agentload.report.sections.view import View

GAP: Final = 3.0
"""The line is broken between samples that are this many times as far apart as usual."""
BLOCKS: Final = 240
"""As many blocks as a chart can show apart; of more, these are spread evenly."""


def timeline(view: View) -> Group | None:
    """Show when each arm was played, and one session of it."""
    return group("The run over time", charts=(_run(view), _session(view)))


def _run(view: View) -> Lanes:
    """Draw the blocks of every arm, and its KV pool where the pool of some arm filled up."""
    lanes = {arm: index for index, arm in enumerate(view.arms)}
    slots = view.slots
    blocks = [each for each in view.facts.blocks if each.arm in lanes]
    pools = [each for each in view.facts.timelines if each.arm in lanes]
    title = "Blocks and KV pool over time"
    height = 44.0
    if not any(map(_fills, pools)):
        pools = []  # a line along the floor says nothing
        title = "Blocks over time"
        height = 24.0
    preempted: list[LaneSpan] = []
    for pool in pools:
        preempted += _preemption_marks(pool, lanes[pool.arm], slots[pool.arm])
    shown = every(blocks, BLOCKS)
    played = [_block(block, lanes[block.arm], slots[block.arm]) for block in shown]
    return Lanes(
        name="timeline",
        title=title,
        caption=_caption(blocks, pools, preempted),
        x=ChartAxis(label="seconds since the run's start", quantity="seconds", low=0.0),
        lanes=view.columns,
        spans=(*played, *preempted),
        traces=tuple(_usage(pool, lanes[pool.arm]) for pool in pools),
        height=height,
    )


def _fills(each: Timeline) -> bool:
    """Tell whether a pool was ever near full, or requests were preempted."""
    fullest = max(each.kv_usage, default=0.0)
    return fullest >= FULL or max(each.preemptions, default=0.0) > 0


def _caption(
    blocks: Sequence[Block], pools: Sequence[Timeline], preempted: Sequence[LaneSpan]
) -> str:
    """Say what is drawn of blocks, pools and preemptions."""
    invalid = sum(each.invalid is not None for each in blocks)
    line = (
        "The line is the KV pool in use, from empty (foot of a lane) to full (top); it is "
        "broken where no sample was taken."
    )
    parts = {
        "Boxes are blocks.": blocks,
        f"{say.plural(invalid, 'block')} left out (hatched).": invalid,
        line: pools,
        "Ticks are preemptions.": preempted,
    }
    return say.join_if(parts, " ")


def _block(each: Block, lane: int, slot: int) -> LaneSpan:
    look: Look = "block"
    seconds = each.end_s - each.start_s
    tip = f"{labels.arm(each.arm)}, pair {each.pair}: {say.duration(1e3 * seconds)}"
    if each.invalid is not None:
        look = "invalid"
        tip = f"{tip}, left out: {each.invalid}"
    return LaneSpan(lane=lane, look=look, low=each.start_s, high=each.end_s, slot=slot, tip=tip)


def _preemption_marks(each: Timeline, lane: int, slot: int) -> Iterator[LaneSpan]:
    """Yield a mark where the server's count of preemptions grew."""
    samples = zip(each.seconds, each.preemptions, strict=False)
    for (_, before), (second, after) in pairwise(samples):
        if after > before:
            count = say.plural(round(after - before), "preemption")
            tip = f"{labels.arm(each.arm)}: {count}"
            yield LaneSpan(lane=lane, look="mark", low=second, high=second, slot=slot, tip=tip)


def _usage(each: Timeline, lane: int) -> LaneTrace:
    """Return the pool's use, with a gap where samples are missing."""
    steps = sorted(after - before for before, after in pairwise(each.seconds))
    usual = steps[len(steps) // 2] if steps else 0.0
    xs: list[float] = []
    ys: list[float] = []
    for at in every(tuple(range(len(each.seconds)))):
        second = each.seconds[at]
        before = each.seconds[at - 1]
        if xs and usual and second - before > GAP * usual:
            xs.append(before)
            ys.append(math.nan)
        xs.append(second)
        ys.append(each.kv_usage[at])
    return LaneTrace(lane=lane, slot=None, xs=tuple(xs), ys=tuple(ys))


TURNS: Final = 12
"""Turns of the session that are shown."""


def _session(view: View) -> Lanes:
    slots = view.slots
    lanes: list[str] = []
    spans: list[LaneSpan] = []
    for arm in dict.fromkeys((view.reference, view.focus)):
        own = [each for each in view.facts.session if each.arm == arm]
        turns = sorted(own, key=lambda each: each.turn)[:TURNS]
        if turns:
            lanes.append(labels.arm(arm))
        before = None
        for each in turns:
            lanes.append(f" turn {each.turn + 1}")
            spans += _phases(before, each, len(lanes) - 1, slots[arm])
            before = each
    return Lanes(
        name="session",
        title="One session, turn by turn",
        caption="The same session on both arms: thinking and tools (pale), held back by the load's "
        "own limit (outlined), "
        "time to first token (light), answer (dark).",
        x=ChartAxis(label="seconds since the session's start", quantity="seconds", low=0.0),
        lanes=tuple(lanes),
        spans=tuple(spans),
    )


def _phases(before: Turn | None, each: Turn, lane: int, slot: int) -> Iterator[LaneSpan]:
    """Yield the phases of a turn that took any time, from the end of the turn *before* on."""
    first = each.done_s if each.first_s is None else each.first_s
    read = ""
    if each.prompt_tokens is not None:
        prompt = say.tokens(each.prompt_tokens)
        read = f", {prompt} prompt tokens, {say.tokens(each.cached_tokens)} cached"
    wrote = ""
    if each.output_tokens is not None:
        wrote = f", {say.tokens(each.output_tokens)} tokens"
    phases: tuple[tuple[Look, str, float], ...] = (
        ("wait", "thinking and tools", each.due_s),
        ("queue", "held back", each.released_s),
        ("prefill", f"time to first token{read}", first),
        ("decode", f"answer, {each.status}{wrote}", each.done_s),
    )
    low = each.due_s if before is None else before.done_s
    for look, words, high in phases:
        if high > low:
            lasted = say.duration(1e3 * (high - low))
            tip = f"{labels.arm(each.arm)}, turn {each.turn + 1}: {words}, {lasted}"
            yield LaneSpan(lane=lane, look=look, low=low, high=high, slot=slot, tip=tip)
        low = high
