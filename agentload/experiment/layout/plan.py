"""Lay out a comparison: the same blocks on every arm, in an order that drift cannot turn into a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

from agentload.errors import PlanError
from agentload.experiment.layout.blocks import cut
from agentload.experiment.layout.swap import check_swap, placed, stays
from agentload.model.commands import Limits
from agentload.model.controls import is_control
from agentload.model.plan import Cache, Design, Load, Plan, Play, Round
from agentload.model.trace import Trace
from agentload.replay.arrivals import seeded


def plan(
    trace: Trace,
    arms: Sequence[str],
    *,
    run: str,
    seed: int = 0,
    pairs: int = 6,
    warmup: bool = False,
    design: Design = "interleaved",
    cache: Cache = "cold",
    load: Load | None = None,
    limits: Limits | None = None,
    machines: Sequence[str] = (),
    swap: bool = False,
    whole: bool = False,
    blocks: int | None = None,
) -> Plan:
    """Plan *pairs* plays of the trace's blocks on each arm; with fewer blocks than pairs, blocks repeat under another salt.

    With *warmup* every arm first plays the first block once more, to be left out. *machines* say where each arm begins; with *swap* the
    two arms change places for the second half of the pairs, and warm up once more. *whole*: every pair plays all of the trace. *blocks*:
    into how many the trace is cut, where a run is given more pairs than it began with: that number of pairs.
    """
    if not arms:
        raise PlanError("no arm to play on", hint="agentload replay TRACE --endpoints NAME=URL,NAME=URL")
    if len(set(arms)) < len(arms):
        raise PlanError(f"arm names are not unique: {', '.join(arms)}", hint="give each endpoint its own name: --endpoints a=URL,b=URL")
    if pairs < 1:
        raise PlanError(f"'pairs' must be >= 1, got {pairs}", hint="agentload replay --help")
    if design == "parallel" and any(map(is_control, arms)):
        raise PlanError(
            "--aa plays one server twice, which --design parallel would do at the same time", hint="--design interleaved --aa ARM"
        )
    if swap:
        check_swap(arms, machines, pairs=pairs, began=blocks or pairs, design=design)
    parts = cut(trace.sessions, 1 if whole else blocks or pairs)
    orders = balanced_orders(arms, pairs, seeded(seed, "order"))
    rounds: list[tuple[Play, ...]] = []
    for changes, own in enumerate(stays(pairs, blocks or pairs) if swap else (range(pairs),)):
        play = partial(_play, run=run, cache=cache, machines=placed(arms, machines, changes=changes))
        if warmup:
            rounds += [(play(parts[0].index, -1 - changes, arm, warmup=True),) for arm in arms]
        plays = {pair: {arm: play(parts[pair % len(parts)].index, pair, arm) for arm in arms} for pair in own}
        match design:
            case "interleaved":
                rounds += [(plays[pair][arm],) for pair in own for arm in orders[pair]]
            case "parallel":
                rounds += [tuple(plays[pair][arm] for arm in arms) for pair in own]
            case "sequential":
                rounds += [(plays[pair][arm],) for arm in arms for pair in own]
    return Plan(
        run=run,
        seed=seed,
        header=trace.header,
        arms=tuple(arms),
        blocks=parts,
        rounds=tuple(Round(index=i, plays=r) for i, r in enumerate(rounds)),
        load=load or Load(),
        limits=limits or Limits(),
        design=design,
        cache=cache,
    )


def balanced_orders(arms: Sequence[str], pairs: int, rng: Random) -> list[tuple[str, ...]]:
    """Draw the order of the arms for each pair; every second pair mirrors the one before it, so that linear drift cancels."""
    orders: list[tuple[str, ...]] = []
    while len(orders) < pairs:
        drawn = sorted(arms, key=lambda _: rng.random())
        orders += [tuple(drawn), tuple(reversed(drawn))]
    return orders[:pairs]


def _play(block: int, pair: int, arm: str, *, run: str, cache: Cache, machines: Mapping[str, str], warmup: bool = False) -> Play:
    mark = arm if is_control(arm) else ""
    return Play(block=block, arm=arm, pair=pair, salt=_salt(run, pair, cache), mark=mark, warmup=warmup, machine=machines.get(arm))


def _salt(run: str, pair: int, cache: Cache) -> str:
    return f"{run}/{pair}" if cache == "cold" else f"{run}/warm"
