"""Lay out a comparison: the same blocks on every arm, in an order that drift cannot turn into a difference."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from agentload.errors import PlanError
from agentload.evidence.controls import is_control
from agentload.experiment.blocks import cut
from agentload.model.commands import Limits
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
) -> Plan:
    """Plan *pairs* plays of the trace's blocks on each arm; with fewer blocks than pairs, blocks repeat under another salt.

    With *warmup* every arm first plays the first block once more, to be left out.
    """
    if not arms:
        raise PlanError("no arm to play on", hint="agentload replay TRACE --endpoints NAME=URL,NAME=URL")
    if len(set(arms)) < len(arms):
        raise PlanError(f"arm names are not unique: {', '.join(arms)}", hint="give each endpoint its own name: --endpoints a=URL,b=URL")
    if pairs < 1:
        raise PlanError(f"'pairs' must be >= 1, got {pairs}", hint="agentload replay --help")
    blocks = cut(trace.sessions, pairs)
    rng = seeded(seed, "order")
    plays = [
        {
            arm: Play(block=blocks[pair % len(blocks)].index, arm=arm, pair=pair, salt=_salt(run, pair, cache), mark=_mark(arm))
            for arm in arms
        }
        for pair in range(pairs)
    ]
    orders = balanced_orders(arms, pairs, rng)
    rounds: list[tuple[Play, ...]]
    match design:
        case "interleaved":
            rounds = [(plays[pair][arm],) for pair, order in enumerate(orders) for arm in order]
        case "parallel":
            rounds = [tuple(plays[pair][arm] for arm in arms) for pair in range(pairs)]
        case "sequential":
            rounds = [(plays[pair][arm],) for arm in arms for pair in range(pairs)]
    if warmup:
        first = blocks[0].index
        rounds = [
            (Play(block=first, arm=arm, pair=pairs, salt=_salt(run, pairs, cache), mark=_mark(arm), warmup=True),) for arm in arms
        ] + rounds
    return Plan(
        run=run,
        seed=seed,
        header=trace.header,
        arms=tuple(arms),
        blocks=blocks,
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


def _salt(run: str, pair: int, cache: Cache) -> str:
    return f"{run}/{pair}" if cache == "cold" else f"{run}/warm"


def _mark(arm: str) -> str:
    return arm if is_control(arm) else ""
