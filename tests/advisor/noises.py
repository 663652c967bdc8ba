"""Worlds to try decisions in: what disturbs a deployment beyond
the effect, one function a world, drawn anew for every deployment.

A world adds log latencies to a grid of pairs x arms (reference, arm)
x sessions x turns. `WORLDS` says of each what is promised in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from advisor.evidence import Bools, Calls, Floats, Ints

SESSIONS, TURNS = 6, 4  # of a pair
CALL, BLOCK = 0.05, 0.008  # log scatter of a call and of a block: some 1.9% a pair


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scene:
    """Hold what a world may depend on."""

    rng: np.random.Generator
    start: Ints  # of each pair
    place: Ints  # pairs x 2: the block's position in time
    length: Floats  # pairs x sessions: 0 for the shortest context, 1 for the longest

    @property
    def pairs(self) -> int:
        """Count the pairs."""
        return int(self.start.size)

    def per_start(self, drawn: Callable[[int], ArrayLike]) -> Floats:
        """Return what each arm's starts add, drawn anew for every start."""
        starts = int(self.start.max()) + 1
        return np.asarray(drawn(2 * starts), dtype=np.float64).reshape(starts, 2)[self.start][
            :, :, None, None
        ]

    def calls(self) -> tuple[int, int, int, int]:
        """Return the shape of all calls."""
        return self.pairs, 2, SESSIONS, TURNS


Disturbance = Callable[[Scene], Floats]


def _only(arm: int, added: Floats) -> Floats:
    return np.stack([added * (arm == 0), added * (arm == 1)], axis=1)


def plain(scene: Scene) -> Floats:
    return np.zeros((1, 1, 1, 1))


def pareto(scene: Scene) -> Floats:
    return np.where(
        scene.rng.random(scene.calls()) < 0.03, 0.15 * scene.rng.pareto(2.5, scene.calls()), 0.0
    )


def neighbour(scene: Scene) -> Floats:
    period, phase = scene.rng.uniform(3, 9), scene.rng.random()
    return 0.15 * ((scene.place / period + phase) % 1 < 0.3).astype(np.float64)[:, :, None, None]


def block_period(scene: Scene) -> Floats:
    return 0.10 * (scene.place % 2).astype(np.float64)[:, :, None, None]


def bimodal(scene: Scene) -> Floats:
    return np.where(scene.rng.random(scene.calls()) < 0.2, 0.4, 0.0)


def storms(scene: Scene) -> Floats:
    begins = scene.rng.random(2 * scene.pairs) < 0.06
    storm = np.convolve(begins, np.ones(3))[: 2 * scene.pairs] > 0
    added: Floats = np.log(1.4) * storm[scene.place].astype(np.float64)[:, :, None, None]
    return added


def wander(scene: Scene) -> Floats:
    """A server wanders while it runs: each start begins anew."""
    phi, sd = scene.rng.uniform(0.8, 0.97), scene.rng.uniform(0.01, 0.03)
    return (
        sd
        * _only(1, _wandering(scene.rng, phi, np.diff(scene.start, prepend=-1) > 0))[
            :, :, None, None
        ]
    )


def wander_across_starts(scene: Scene) -> Floats:
    phi, sd = scene.rng.uniform(0.8, 0.97), scene.rng.uniform(0.01, 0.03)
    return sd * _only(1, _wandering(scene.rng, phi, np.arange(scene.pairs) == 0))[:, :, None, None]


def _wandering(rng: np.random.Generator, phi: float, fresh: Bools) -> Floats:
    """Return an AR(1) series of variance one that begins anew where *fresh* says."""
    out = rng.standard_normal(fresh.size)
    for place in range(1, fresh.size):
        if not fresh[place]:
            out[place] = phi * out[place - 1] + math.sqrt(1 - phi**2) * out[place]
    return out


def wandering_machines(scene: Scene) -> Floats:
    """Two machines, an arm on each: apart by what starts
    differ by, and each wanders whatever is started on it.
    """
    apart = abs(scene.rng.normal(0.0, 0.015)) * scene.rng.standard_normal((1, 2, 1, 1))
    added: Floats = apart + wander_across_starts(scene)
    return added


def starts(scene: Scene) -> Floats:
    return scene.per_start(lambda n: scene.rng.uniform(-0.03, 0.03, size=n))


def starts_of_the_prior(scene: Scene) -> Floats:
    return scene.per_start(
        lambda n: abs(scene.rng.normal(0.0, 0.015)) * scene.rng.standard_normal(n)
    )


def starts_of_twice_the_prior(scene: Scene) -> Floats:
    return scene.per_start(lambda n: scene.rng.uniform(-0.06, 0.06, n))


def placed_starts(scene: Scene) -> Floats:
    apart = scene.rng.normal(0.0, 0.02)
    return scene.per_start(lambda n: apart * (scene.rng.random(n) < 0.5))


def modal_starts(scene: Scene) -> Floats:
    return scene.per_start(lambda n: 0.22 * (scene.rng.random(n) < 0.25))  # a quarter slower


def by_length(scene: Scene) -> Floats:
    return _only(1, np.where(scene.length < 0.67, 0.035, -0.08))[:, :, :, None]


def curved(scene: Scene) -> Floats:
    return _only(1, 0.10 * scene.length**2 - 0.05 * scene.length)[:, :, :, None]


def tail(scene: Scene) -> Floats:
    slow = scene.rng.random(scene.calls()) < np.array([[[0.0]], [[0.045]]])
    return np.where(slow, math.log(1.55), 0.0)


def idle(scene: Scene) -> Floats:
    cold = 0.10 + 0.03 * scene.rng.standard_normal((scene.pairs, 2, 1, 1))
    return cold * np.exp(-np.arange(TURNS))


def ageing(scene: Scene) -> Floats:
    first = np.zeros(scene.pairs)
    for start in np.unique(scene.start):
        first[scene.start == start] = np.flatnonzero(scene.start == start)[0]
    age = (np.arange(scene.pairs) - first) / 40
    rate = 0.16 * (1 + 0.1 * scene.rng.standard_normal(2))
    return (np.minimum(age, 1.0)[:, None] * rate)[:, :, None, None]


def warming(scene: Scene) -> Floats:
    """A cache of one arm fills over the first pairs, whatever is started."""
    return _only(1, 0.12 * np.exp(-np.arange(scene.pairs) / 3))[:, :, None, None]


def thermal(scene: Scene) -> Floats:
    warming = 1 - np.exp(-np.arange(TURNS) / 2)
    added: Floats = (
        0.06
        * warming
        * np.array([1.0, 0.6])[:, None, None]
        * (1 + 0.2 * scene.rng.standard_normal((scene.pairs, 2, 1, 1)))
    )
    return added


def timeouts(scene: Scene) -> Floats:
    return np.where(scene.rng.random(scene.calls()) < 0.015, 2.0, 0.0)


def two_classes(scene: Scene) -> Floats:
    return _only(1, np.tile(np.where(np.arange(SESSIONS) % 2, 0.06, -0.06), (scene.pairs, 1)))[
        :, :, :, None
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Hold one world and what is promised in it."""

    disturbance: Disturbance
    one_start: Literal["right", "canary", "open"] = (
        "right"  # wrong seldom; wrong without a canary seldom; nothing is promised
    )
    few_starts: Literal["right", "canary", "open"] = "right"
    many_starts: Literal["right", "open"] = "right"
    shifts: bool = (
        False  # what it adds to the arm has a mean of its own, which belongs to the truth
    )
    loaded: bool = False  # the effect grows with the load of the pair
    limit: float | None = None  # log latency above which a turn times out
    apart: bool = False  # each arm is on a machine of its own
    only_planned: bool = False  # six pairs cannot tell: nothing is promised of them


WORLDS: Mapping[str, World] = {
    "plain": World(disturbance=plain),
    "pareto": World(disturbance=pareto),
    "periodic neighbour": World(disturbance=neighbour),
    "period of a block": World(disturbance=block_period),
    "bimodal turns": World(disturbance=bimodal),
    "storms": World(disturbance=storms),
    "wander of one arm": World(disturbance=wander),
    "wander that outlasts starts": World(disturbance=wander_across_starts, many_starts="open"),
    "an arm on each machine": World(disturbance=wandering_machines, apart=True),
    "starts +-3%": World(disturbance=starts),
    "starts of the prior": World(disturbance=starts_of_the_prior),
    "starts of twice the prior": World(
        disturbance=starts_of_twice_the_prior, one_start="canary", few_starts="canary"
    ),
    "starts on either of two machines": World(disturbance=placed_starts),
    "starts in two modes": World(disturbance=modal_starts, one_start="open"),
    "sign changes with length": World(disturbance=by_length, shifts=True),
    "curvature": World(disturbance=curved, shifts=True),
    "tail only": World(disturbance=tail, shifts=True),
    "idle decay": World(disturbance=idle),
    "ageing": World(disturbance=ageing),
    "one arm warms across starts": World(disturbance=warming, only_planned=True),
    "thermal steady state": World(disturbance=thermal, shifts=True),
    "timeouts": World(disturbance=timeouts, limit=1.5),
    "effect grows with load": World(disturbance=plain, loaded=True),
    "two classes of opposite sign": World(disturbance=two_classes),
}


def orders(rng: np.random.Generator, pairs: int) -> Ints:
    """Return which pairs the arm runs first in, as a plan has
    it: random, and every second pair mirrors the one before it.
    """
    first = rng.integers(0, 2, (pairs + 1) // 2)
    return np.stack([first, 1 - first], axis=1).ravel()[:pairs]


def drawn(
    rng: np.random.Generator,
    world: World,
    *,
    pairs: int,
    starts: int,
    effect: float = 0.0,
    arm_first: Ints | None = None,
    in_turn: bool = False,
) -> tuple[Calls, Calls]:
    """Return a deployment's calls on the reference and on the arm,
    *effect* being its true mean log ratio without what the world adds.

    *arm_first* is 1 for a pair whose arm runs first, else 0: drawn where it is
    not given. Pairs are divided over the starts, or play *in turn* on them.
    """
    first = orders(rng, pairs) if arm_first is None else arm_first
    place = 2 * np.arange(pairs)[:, None] + np.stack([first, 1 - first], axis=1)
    start = np.arange(pairs) % starts if in_turn else np.arange(pairs) * starts // pairs
    scene = Scene(rng=rng, start=start, place=place, length=rng.random((pairs, SESSIONS)))
    load = rng.uniform(0.5, 1.5, pairs) if world.loaded else np.ones(pairs)
    shape = scene.calls()
    content = rng.normal(0.0, 0.5, (pairs, 1, SESSIONS, TURNS))
    log = (
        content
        + world.disturbance(scene)
        + CALL * rng.standard_normal(shape)
        + BLOCK * rng.standard_normal((pairs, 2, 1, 1))
    )
    log = log + (effect * load)[:, None, None, None] * np.array([0.0, 1.0])[:, None, None]
    ok = np.ones(shape, dtype=bool) if world.limit is None else log - content < world.limit
    pair, _, session, turn = np.indices(shape)
    out = []
    for arm in (0, 1):
        turn_ms = 4000.0 * np.exp(log[:, arm]).ravel()
        out.append(
            Calls(
                restart=scene.start[pair[:, arm]].ravel(),
                pair=pair[:, arm].ravel(),
                block=np.repeat(place[:, arm], SESSIONS * TURNS),
                session=(pair * SESSIONS + session)[:, arm].ravel(),
                turn=turn[:, arm].ravel(),
                start_s=np.repeat(place[:, arm] * 60.0, SESSIONS * TURNS),
                ok=ok[:, arm].ravel(),
                ttft_ms=0.3 * turn_ms,
                tpot_ms=0.7 * turn_ms / 200,
                turn_ms=turn_ms,
                prompt_tokens=np.full(turn_ms.size, 8000.0),
                output_tokens=np.full(turn_ms.size, 201.0),
                machine=np.full(turn_ms.size, arm) if world.apart else None,
            )
        )
    return out[0], out[1]
