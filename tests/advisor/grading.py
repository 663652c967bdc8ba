"""Grade one cell of the report card: draw a world, a crossing or a
run that is looked at again and again, and count what is said of it.

Effects add in logs, so that one draw of a world serves all its truths; where an
effect depends on load, each truth is drawn. Draws share their order of arms by
the dozen, and with it the estimator's grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from zlib import crc32

import numpy as np

from advisor.assess.speed import controlled_change, start_scale
from advisor.estimate import Estimate
from advisor.evidence import Calls
from advisor.gates import dropped_turns, no_trend, one_mode
from advisor.legs.speed import claim
from advisor.policy import Policy
from advisor.statistics import paired, starts
from advisor.statistics.break_even import break_even
from advisor.statistics.planning import look_level, units_needed
from advisor.statistics.starts import ENOUGH_STARTS, OWN_STARTS, Pairs
from advisor.verdict import LegState
from tests.advisor.cases import bare, observed
from tests.advisor.noises import WORLDS, World, drawn, orders
from tests.advisor.worlds import simulated_sweep

POLICY = Policy()
MARGIN = POLICY.min_change
TRUTHS = (-4.0, -2.0, -1.1, -0.9, -0.5, 0.0, 0.5, 0.9, 1.1, 2.0, 4.0)  # gains, in margins
FEW, MOST = 6, 60  # pairs
SIZES = ("six pairs", "planned")
STARTS = ("one start", "three starts", "a start a pair")
LOOKS = (6, 12, 24, 48, 96, 192)  # pairs, each time that a run is enlarged
CROSSINGS = ("plain", "heavy tails", "starts +-3%", "wander", "step", "curvature")
SHARED = 25  # draws that share one order of arms


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Name one task: a world with how often servers start and how
    many pairs, a kind of crossing, or looks at starts of a kind.
    """

    world: str = ""
    starts: str = ""
    size: str = ""
    crossing: str = ""

    @property
    def name(self) -> str:
        """Return its name."""
        return ", ".join(
            each for each in (self.world, self.starts, self.size, self.crossing) if each
        )

    def rng(self, seed: int) -> np.random.Generator:
        """Return what this cell draws from."""
        return np.random.default_rng((seed, crc32(self.name.encode())))


@dataclass(slots=True, kw_only=True)
class Count:
    """Count what became of the draws of a cell, for one truth."""

    draws: int = 0
    wrong: int = 0
    canary_wrong: int = 0  # of them, "use" behind a canary
    bare_wrong: int = 0  # "use" without one
    sign: int = 0
    covered: int = 0
    decisive: int = 0  # or, of a crossing, a set with two ends
    canaries: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Hold what became of a cell: its pairs, and a count for each truth."""

    pairs: int
    counts: dict[float, Count]


def log_of(truth: float) -> float:
    """Return the log ratio of turn time that a gain of so many margins is."""
    return math.log1p(-truth * MARGIN)


def is_wrong(said: LegState, truth: float) -> bool:
    """Say whether the truth, a gain in margins, contradicts what was said."""
    match said:
        case "yes":
            return truth <= 1
        case "no":
            return truth >= -1
        case "equal":
            return abs(truth) >= 2
        case _:
            return False


def is_opposite(said: LegState, truth: float) -> bool:
    """Say whether the sign is wrong: a switch to a loss, or a refusal of a gain."""
    return (said == "yes" and truth < 0) or (said == "no" and truth > 0)


def planned(world: World, rng: np.random.Generator, *, each_pair: bool) -> tuple[int, float]:
    """Return the pairs that the tool plans for the true
    noise, and what the world itself adds to the arm.
    """
    found = []
    for _ in range(12):
        # An effect that grows with load scatters by itself.
        calls = drawn(rng, world, pairs=40, starts=40 if each_pair else 1, effect=log_of(2.0))
        table = paired.pair_table(*calls, "turn_ms")
        assert table is not None
        found.append(
            (starts.scatter(paired.pairs_of(table), scale=0.0).pair, float(table.value.mean()))
        )
    scatter = math.sqrt(float(np.mean([sd**2 for sd, _ in found])))
    pairs = units_needed(scatter, math.log1p(MARGIN))
    return max(pairs, ENOUGH_STARTS if each_pair else FEW), float(
        np.mean([mean for _, mean in found])
    )


def offset(world: World, rng: np.random.Generator) -> float:
    """Return what a world adds to the arm on average."""
    many = (
        paired.pair_table(*drawn(rng, replace(world, limit=None), pairs=400, starts=400), "turn_ms")
        for _ in range(4)
    )
    return (
        float(np.mean([table.value.mean() for table in many if table is not None]))
        if world.shifts
        else 0.0
    )


def _decided(
    calls: tuple[Calls, Calls], *, truths: Sequence[float], added: float
) -> Iterator[tuple[float, LegState, bool, bool]]:
    """Yield (truth, what is said, whether behind a canary, whether
    the interval covers, where one is given) of one deployment.

    What was *added* to its arm is taken off, so that the effect is each truth's.
    """
    evidence = bare(observations=observed(*calls))
    table = paired.pair_table(*calls, "turn_ms")
    assert table is not None
    scale, count = start_scale(evidence, POLICY), paired.pairs_of(table).starts
    scales = (scale, 2 * scale) if count < OWN_STARTS else (scale,)
    stopped = any(
        gate.status == "fail"
        for check in (dropped_turns.check, one_mode.check, no_trend.check)
        for gate in check(evidence, POLICY)
    )
    spreads = [spread for each in scales if (spread := controlled_change(table, each)) is not None]
    intervals = [(low, each.value, high) for each in spreads for low, high in (each.interval(),)]
    for truth in truths:
        by = log_of(truth) - added
        said, *others = (
            _claimed(low + by, value + by, high + by) for low, value, high in intervals
        )
        said = "unclear" if stopped else said
        covers = stopped or intervals[0][0] <= added <= intervals[0][2]
        yield (
            truth,
            said,
            said == "yes" and (count == 1 or any(other != said for other in others)),
            covers,
        )


def _claimed(low: float, value: float, high: float) -> LegState:
    ends = [math.expm1(each) for each in (value, low, high)]
    return claim(
        Estimate(value=ends[0], low=ends[1], high=ends[2], n=1, unit="relative", method=""),
        margin=MARGIN,
    )


def graded(cell: Cell, draws: int, seed: int) -> Graded:
    """Draw a cell so often and count, for every truth."""
    if cell.crossing:
        return Graded(pairs=0, counts={0.0: crossed(cell, draws, seed)})
    if not cell.world:
        return Graded(pairs=LOOKS[-1], counts={0.99: looked(cell, draws, seed)})
    world, each_pair, rng = WORLDS[cell.world], cell.starts == STARTS[-1], cell.rng(seed)
    pairs = (
        min(MOST, planned(world, rng, each_pair=each_pair)[0]) if cell.size == "planned" else FEW
    )
    starts_of = {"one start": 1, "three starts": 3}.get(cell.starts, pairs)
    added = offset(world, rng)
    counts = {truth: Count(draws=draws) for truth in TRUTHS}
    groups = [(truth,) for truth in TRUTHS] if world.loaded else [TRUTHS]
    for truths, draw in product(groups, range(draws)):
        if draw % SHARED == 0:
            arm_first = orders(rng, pairs)
        effect = log_of(truths[0]) if world.loaded else 0.0
        calls = drawn(rng, world, pairs=pairs, starts=starts_of, effect=effect, arm_first=arm_first)
        for truth, said, canary, covers in _decided(calls, truths=truths, added=added + effect):
            count, wrong = counts[truth], is_wrong(said, truth)
            count.wrong += wrong
            count.canary_wrong += wrong and canary
            count.bare_wrong += wrong and said == "yes" and not canary
            count.sign += is_opposite(said, truth)
            count.covered += covers
            count.decisive += said != "unclear" and not wrong
            count.canaries += canary
    return Graded(pairs=pairs, counts=counts)


def looked(cell: Cell, draws: int, seed: int) -> Count:
    """Count runs with a gain of 0.99 margins that any of six looks
    calls "use": pairs that scatter by 3.2%, a part of it from starts.
    """
    each_pair, scale, rng = cell.starts == STARTS[-1], start_scale(bare(), POLICY), cell.rng(seed)
    count = Count(draws=draws)
    for _ in range(draws):
        values = log_of(0.99) + rng.normal(0.0, 0.032 if each_pair else 0.02, LOOKS[-1])
        values += 0.0 if each_pair else rng.normal(0.0, abs(rng.normal(0.0, scale)))
        for look, n in enumerate(LOOKS, 1):
            start = np.arange(n) if each_pair else np.zeros(n, dtype=np.int64)
            found = starts.spread(
                Pairs(values=values[:n], start=start, other_start=start), scale=scale
            )
            low, high = found.interval(1 - 2 * look_level(look, POLICY.alpha))
            if _claimed(low, found.value, high) == "yes":
                count.wrong += 1
                break
    return count


def crossed(cell: Cell, draws: int, seed: int) -> Count:
    """Count break-even sets that hold the length at which two
    token latency lines cross, and those that are bounded.
    """
    kind, rng, count = cell.crossing, cell.rng(seed), Count(draws=draws)
    for _ in range(draws):
        slope, ratio, truth = (
            rng.uniform(1e-5, 5e-5),
            rng.uniform(0.5, 0.9),
            rng.uniform(4_000, 60_000),
        )
        base = rng.uniform(3, 8)
        pairs, users = int(rng.choice([3, 6, 12])), int(rng.choice([1, 8]))
        lines = ((base, slope), (base + slope * (1 - ratio) * truth * users, slope * ratio))
        scatter = 0.02 if kind == "heavy tails" else 0.005
        sides = [
            simulated_sweep(
                rng,
                arm=arm,
                intercept=intercept,
                slope=each,
                pairs=pairs,
                users=users,
                noise=scatter,
            )
            for arm, (intercept, each) in zip(("bf16", "fp8"), lines, strict=True)
        ]
        sides = [
            replace(
                side,
                itl_ms=side.itl_ms
                * np.exp(_of_sweep(kind, rng, side.pair, side.context_tokens, truth)),
            )
            for side in sides
        ]
        found = break_even(*sides, users=users, spread=POLICY.start_spread)
        assert found is not None
        low = found.low if found.low is not None else 0.0
        high = found.high if found.high is not None else math.inf
        inside = found.shape in ("bounded", "half-line") and low <= truth * users <= high
        count.covered += found.shape == "unclear" or inside
        count.decisive += found.shape == "bounded"
    return count


def _of_sweep(
    kind: str, rng: np.random.Generator, pair: np.ndarray, context: np.ndarray, truth: float
) -> np.ndarray:
    """Return what disturbs one arm's sweep, log units."""
    names = np.unique(pair)
    match kind:
        case "starts +-3%":
            return np.full(pair.size, rng.uniform(-0.03, 0.03))
        case "wander":
            steps = rng.standard_normal(names.size)
            for place in range(1, names.size):
                steps[place] = 0.9 * steps[place - 1] + math.sqrt(1 - 0.81) * steps[place]
            return 0.015 * steps[np.searchsorted(names, pair)]
        case "step":  # a kernel switches, on both arms alike
            return 0.02 * (context > 32_768)
        case "curvature":  # none where the lines cross
            return 0.01 * ((context - truth) / 131_072) ** 2
        case _:
            return np.zeros(pair.size)
