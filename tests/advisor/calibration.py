"""Grade the advisor in worlds whose truth is known: `python -m tests.advisor.calibration [--full] [--seed N] [--world NAME]`.

A cell is a world, a truth, a size (six pairs, or as many as are planned for that noise) and how often servers start (once, three times, for
every pair). What a truth makes of a verdict: a gain up to the margin makes "use" wrong, one of two margins or more everything that stays;
between them both are right. A harm above the margin makes "avoid" right. "Test further" is never wrong and never decisive. A promise fails
where the lower Clopper-Pearson limit of what it forbids lies beyond it, Holm over its cells: noise of the table breaks none.

Effects add in logs, so that one draw of a world serves all its truths; where an effect depends on load, each truth is drawn.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from scipy import stats

from advisor.assess.speed import estimated, start_scale
from advisor.estimate import Estimate
from advisor.gates import dropped_turns, one_mode
from advisor.legs.speed import claim
from advisor.policy import Policy
from advisor.statistics import paired, starts
from advisor.statistics.break_even import break_even
from advisor.statistics.planning import LATER_LOOKS, LEVEL, adjusted, look_level, units_needed
from advisor.statistics.starts import ENOUGH_STARTS, Pairs
from advisor.verdict import LegState
from tests.advisor.cases import bare, observed
from tests.advisor.noises import WORLDS, World, drawn
from tests.advisor.worlds import simulated_sweep

POLICY = Policy()
MARGIN = POLICY.min_change
TRUTHS = (-4.0, -2.0, -1.1, -0.9, -0.5, 0.0, 0.5, 0.9, 1.1, 2.0, 4.0)  # gains, in margins
FEW, MOST = 6, 60  # pairs
SIZES = ("six pairs", "planned")
STARTS = ("one start", "three starts", "a start a pair")
LOOKS = (6, 12, 24, 48, 96, 192)  # pairs, each time that a run is enlarged
CROSSINGS = ("plain", "heavy tails", "starts +-3 %", "wander", "step", "curvature")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Name one cell; without a truth it stands for all of them."""

    world: str
    starts: str
    size: str
    truth: float = 0.0


@dataclass(slots=True, kw_only=True)
class Count:
    """Count what became of a cell's draws."""

    draws: int = 0
    wrong: int = 0
    canary_wrong: int = 0  # of them, "use" behind a canary
    bare_wrong: int = 0  # "use" without one
    sign: int = 0
    covered: int = 0
    decisive: int = 0
    canaries: int = 0


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
    """Return the pairs that the tool plans for the true noise, and what the world itself adds to the arm."""
    found = []
    for _ in range(12):
        # An effect that grows with load scatters by itself.
        calls = drawn(rng, world, pairs=40, starts=40 if each_pair else 1, effect=log_of(2.0))
        table = paired.pair_table(*calls, "turn_ms")
        assert table is not None
        found.append((starts.scatter(paired.pairs_of(table), scale=0.0).pair, float(table.value.mean())))
    scatter = math.sqrt(float(np.mean([sd**2 for sd, _ in found])))
    pairs = units_needed(scatter, math.log1p(MARGIN))
    return max(pairs, ENOUGH_STARTS if each_pair else FEW), float(np.mean([mean for _, mean in found]))


def offset(world: World, rng: np.random.Generator) -> float:
    """Return what a world adds to the arm on average."""
    many = (paired.pair_table(*drawn(rng, replace(world, limit=None), pairs=400, starts=400), "turn_ms") for _ in range(4))
    return float(np.mean([table.value.mean() for table in many if table is not None])) if world.shifts else 0.0


def _decided(
    world: World, rng: np.random.Generator, *, pairs: int, starts_of: int, truths: Sequence[float], added: float
) -> Iterator[tuple[float, LegState, bool, bool]]:
    """Yield (truth, what is said, whether behind a canary, whether the interval covers, where one is given) of one deployment."""
    effect = log_of(truths[0]) if world.loaded else 0.0
    calls = drawn(rng, world, pairs=pairs, starts=starts_of, effect=effect)
    evidence = bare(observations=observed(*calls))
    table = paired.pair_table(*calls, "turn_ms")
    assert table is not None
    scale = start_scale(evidence, POLICY)
    count = paired.pairs_of(table).starts
    found = estimated(table, scale)
    doubted = estimated(table, 2 * scale) if count < ENOUGH_STARTS else found
    assert found is not None
    assert doubted is not None
    stopped = any(gate.status == "fail" for check in (dropped_turns.check, one_mode.check) for gate in check(evidence, POLICY))
    intervals = [(each.interval()[0], each.value, each.interval()[1]) for each in (found, doubted)]
    for truth in truths:
        by = log_of(truth) - added - effect  # as if the effect had been this one
        mine, other = (_claimed(low + by, value + by, high + by) for low, value, high in intervals)
        said = "unclear" if stopped else mine
        covers = stopped or intervals[0][0] + by <= log_of(truth) <= intervals[0][2] + by
        yield truth, said, said == "yes" and (count == 1 or mine != other), covers


def _claimed(low: float, value: float, high: float) -> LegState:
    ends = [math.expm1(each) for each in (value, low, high)]
    return claim(Estimate(value=ends[0], low=ends[1], high=ends[2], n=1, unit="relative", method=""), margin=MARGIN)


def graded(cell: Cell, draws: int, seed: int) -> dict[Cell, Count]:
    """Draw a world so often and count, for every truth."""
    world, each_pair = WORLDS[cell.world], cell.starts == "a start a pair"
    rng = np.random.default_rng((seed, crc32(f"{cell.world}/{cell.starts}/{cell.size}".encode())))
    pairs = min(MOST, planned(world, rng, each_pair=each_pair)[0]) if cell.size == "planned" else FEW
    starts_of = {"one start": 1, "three starts": 3}.get(cell.starts, pairs)
    added = offset(world, rng)
    counts: dict[Cell, Count] = defaultdict(Count)
    groups = [(truth,) for truth in TRUTHS] if world.loaded else [TRUTHS]
    for truths in groups:
        for _ in range(draws):
            for truth, said, canary, covers in _decided(world, rng, pairs=pairs, starts_of=starts_of, truths=truths, added=added):
                count = counts[replace(cell, truth=truth)]
                count.draws += 1
                wrong = is_wrong(said, truth)
                count.wrong += wrong
                count.canary_wrong += wrong and canary
                count.bare_wrong += wrong and said == "yes" and not canary
                count.sign += is_opposite(said, truth)
                count.covered += covers
                count.decisive += said != "unclear" and not wrong
                count.canaries += canary
    return dict(counts)


def looked(draws: int, seed: int, *, each_pair: bool) -> int:
    """Count runs with a gain of 0.99 margins that any of six looks calls "use": pairs that scatter by 3.2 %, a part of it from starts."""
    rng, wrong = np.random.default_rng((seed, 6, each_pair)), 0
    for _ in range(draws):
        values = log_of(0.99) + rng.normal(0.0, 0.032 if each_pair else 0.02, LOOKS[-1])
        values += 0.0 if each_pair else rng.normal(0.0, abs(rng.normal(0.0, start_scale(bare(), POLICY))))
        for look, n in enumerate(LOOKS, 1):
            start = np.arange(n) if each_pair else np.zeros(n, dtype=np.int64)
            found = starts.spread(Pairs(values=values[:n], start=start, other_start=start), scale=start_scale(bare(), POLICY))
            low, high = found.interval(1 - 2 * look_level(look, POLICY.alpha))
            if _claimed(low, found.value, high) == "yes":
                wrong += 1
                break
    return wrong


def crossed(kind: str, draws: int, seed: int) -> tuple[int, int]:
    """Count break-even sets that hold the length at which two token latency lines cross, and those that are bounded."""
    rng, covered, bounded = np.random.default_rng((seed, crc32(kind.encode()))), 0, 0
    for _ in range(draws):
        slope, ratio, truth = rng.uniform(1e-5, 5e-5), rng.uniform(0.5, 0.9), rng.uniform(4_000, 60_000)
        base = rng.uniform(3, 8)
        pairs, users = int(rng.choice([3, 6, 12])), int(rng.choice([1, 8]))
        lines = ((base, slope), (base + slope * (1 - ratio) * truth * users, slope * ratio))
        scatter = 0.02 if kind == "heavy tails" else 0.005
        sides = [
            simulated_sweep(rng, arm=arm, intercept=intercept, slope=each, pairs=pairs, users=users, noise=scatter)
            for arm, (intercept, each) in zip(("bf16", "fp8"), lines, strict=True)
        ]
        sides = [replace(side, itl_ms=side.itl_ms * np.exp(_of_sweep(kind, rng, side.pair, side.context_tokens, truth))) for side in sides]
        found = break_even(*sides, users=users, spread=POLICY.start_spread)
        assert found is not None
        low = found.low if found.low is not None else 0.0
        high = found.high if found.high is not None else math.inf
        inside = found.shape in ("bounded", "half-line") and low <= truth * users <= high
        covered += found.shape == "unclear" or inside
        bounded += found.shape == "bounded"
    return covered, bounded


def _of_sweep(kind: str, rng: np.random.Generator, pair: np.ndarray, context: np.ndarray, truth: float) -> np.ndarray:
    """Return what disturbs one arm's sweep, log units."""
    names = np.unique(pair)
    match kind:
        case "starts +-3 %":
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """Hold one cell's part of a promise: how often something happened that may happen at most so often."""

    name: str
    cell: str
    hits: int
    draws: int
    most: float

    @property
    def p(self) -> float:
        """Return how likely so many are where the promise is just kept."""
        return float(stats.binom.sf(self.hits - 1, self.draws, self.most))

    @property
    def least(self) -> float:
        """Return the lower Clopper-Pearson limit, one-sided 95 %."""
        return float(stats.beta.ppf(0.05, self.hits, self.draws - self.hits + 1)) if self.hits else 0.0


def broken(promises: Sequence[Promise]) -> list[Promise]:
    """Return the cells that break their promise, Holm over the cells of each."""
    by_name: dict[str, list[Promise]] = defaultdict(list)
    for each in promises:
        by_name[each.name].append(each)
    return [
        each
        for family in by_name.values()
        for each, p in zip(family, adjusted([each.p for each in family]), strict=True)
        if p <= POLICY.alpha
    ]


def promises(counts: dict[Cell, Count], sizes: dict[Cell, int]) -> Iterator[Promise]:
    """Yield what each cell promises; twice the prior, and the mode of a single start, are counted apart."""
    for cell, count in counts.items():
        world = WORLDS[cell.world]
        promised = {"one start": world.one_start, "three starts": world.few_starts}.get(cell.starts, world.many_starts)
        name = f"{cell.world}, {cell.starts}, {cell.size}, {cell.truth:+} margins"
        if promised == "canary":
            yield Promise(name="wrong without a canary", cell=name, hits=count.bare_wrong, draws=count.draws, most=0.05)
        if promised != "right":
            continue
        yield Promise(name="wrong", cell=name, hits=count.wrong, draws=count.draws, most=0.05)
        yield Promise(name="wrong sign", cell=name, hits=count.sign, draws=count.draws, most=0.01)
        if cell.truth == 0.0:
            yield Promise(name="not covered", cell=name, hits=count.draws - count.covered, draws=count.draws, most=0.10)
        is_promised = cell.starts == "a start a pair" and cell.size == "planned" and sizes[replace(cell, truth=0.0)] < MOST
        if is_promised and abs(cell.truth) == 2 and cell.world != "starts in two modes":
            yield Promise(name="not decisive", cell=name, hits=count.draws - count.decisive, draws=count.draws, most=0.15)


def _task(task: tuple[str, Cell | str, int, int]) -> object:
    kind, what, draws, seed = task
    if isinstance(what, Cell):
        return graded(what, draws, seed)
    return crossed(what, draws, seed) if kind == "crossing" else looked(draws, seed, each_pair=what == "a start a pair")


def _size(cell: Cell, seed: int) -> int:
    if cell.size != "planned":
        return FEW
    rng = np.random.default_rng((seed, crc32(f"{cell.world}/{cell.starts}/{cell.size}".encode())))
    return min(MOST, planned(WORLDS[cell.world], rng, each_pair=cell.starts == "a start a pair")[0])


def rendered(counts: dict[Cell, Count], sizes: dict[Cell, int]) -> Iterator[str]:
    """Yield the table: a line a world and how often servers start, with both sizes and the worst of all truths."""
    columns = "world", "starts", "pairs", "wrong, at most", "with the wrong sign", "covers", "right and decisive at ±2 margins"
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|---|---|---|---|---|"
    for first in (cell for cell in sizes if cell.size == SIZES[0]):
        both = [(cell := replace(first, size=size), [counts[replace(cell, truth=truth)] for truth in TRUTHS]) for size in SIZES]
        pairs = [f"{sizes[cell]}{' (most)' if sizes[cell] == MOST else ''}" for cell, _ in both]
        wrong = [max(count.wrong / count.draws for count in own) for _, own in both]
        sign = [max(count.sign / count.draws for count in own) for _, own in both]
        covers = [min(count.covered / count.draws for count in own) for _, own in both]
        decisive = [
            min(count.decisive / count.draws for count, truth in zip(own, TRUTHS, strict=True) if abs(truth) == 2) for _, own in both
        ]
        shares = (" / ".join(f"{share:.1%}" for share in each) for each in (wrong, sign, covers, decisive))
        yield f"| {first.world} | {first.starts} | {' / '.join(pairs)} | {' | '.join(shares)} |"


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Print the report card; return 3 when a promise is broken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="1,000 draws a cell; else --draws")
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--world", action="append", choices=list(WORLDS), help="only this one; may be repeated")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args(arguments)
    draws, began = 1000 if options.full else options.draws, time.monotonic()
    cells = [Cell(world=world, starts=often, size=size) for world in options.world or WORLDS for often in STARTS for size in SIZES]
    others = [] if options.world else [*(("crossing", kind, 2 * draws, options.seed) for kind in CROSSINGS)]
    others += [] if options.world else [("looks", often, 2 * draws, options.seed) for often in (STARTS[0], STARTS[-1])]
    tasks = [*(("cell", cell, draws, options.seed) for cell in cells), *others]
    counts: dict[Cell, Count] = {}
    extra: list[Promise] = []
    lines: list[str] = []
    with ProcessPoolExecutor(options.processes) as pool:
        for (kind, what, n, _), found in zip(tasks, pool.map(_task, tasks), strict=True):
            if isinstance(found, dict):
                counts |= found
            elif isinstance(found, tuple):
                lines.append(f"| break-even, {what} | {n} | covers {found[0] / n:.1%} | bounded {found[1] / n:.1%} |")
                extra.append(Promise(name="break-even not covered", cell=str(what), hits=n - found[0], draws=n, most=0.12))
            else:
                assert isinstance(found, int)
                lines.append(f"| six looks at 0.99 margins, {what} | {n} | wrong {found / n:.1%} | |")
                extra.append(Promise(name=f"{kind}: wrong", cell=str(what), hits=found, draws=n, most=LEVEL + LATER_LOOKS))
    sizes = {cell: _size(cell, options.seed) for cell in cells}
    failed = broken([*promises(counts, sizes), *extra])
    head = ["", "| | draws | | |", "|---|---|---|---|"] if lines else []
    write("\n".join([*rendered(counts, sizes), *head, *lines]) + "\n\n")
    took = (time.monotonic() - began) / 60
    write(f"{len(counts)} cells of {draws} draws, seed {options.seed}, {took:.0f} min; broken promises: {len(failed)}\n")
    for each in failed:
        write(f"{each.name}: {each.cell}: {each.hits} of {each.draws}, surely above {each.least:.1%} where {each.most:.1%} is promised\n")
    return 3 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
