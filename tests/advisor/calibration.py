"""Grade the advisor on simulated deployments whose truth is known: `python -m tests.advisor.calibration --deployments 2000`.

Each deployment draws its noise (autocorrelation, drift, heavy tails, second place, restarts, effects that differ by session), its machines
(one, two swapped, two that were not), its true effects from none to large, the planned size for that noise, and asks `decide`. The table
prints each rate with its one-sided 95 % bound and its goal.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy import stats

from advisor.decide import decide
from advisor.evidence import AaControl, Calls, ClientHealth, Deployment, Evidence, Observation, Telemetry, WorkloadClass
from advisor.policy import Policy
from advisor.statistics import paired, starts
from advisor.statistics.break_even import break_even
from advisor.statistics.planning import items_needed, units_needed
from advisor.verdict import ArmVerdict, Word
from tests.advisor.cases import BF16, BUCKETS, FP8, H100, SPREAD, bare
from tests.advisor.worlds import Noise, answers, simulated_calls, simulated_sweep

POLICY = Policy()
MARGIN = POLICY.min_change
EFFECTS = (0.0, 0.0, -0.5, 0.5, -0.9, 0.9, -1.5, 1.5, -2.0, 2.0, -3.0, 3.0, -6.0, 6.0)  # of the margin
LOSSES = (0.0, 0.0, 0.0, 0.0, -0.5, -1.0, -2.0, -4.0)  # of the accuracy margin
CLASSES = ("chat", "code")
SHARES = (0.6, 0.4)
MACHINE_SPREAD = 0.015  # standard deviation between two GPUs of one type, log units
MOST_PAIRS = 60
PILOT_PAIRS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Hold one deployment's truth."""

    noise: Noise
    changes: tuple[float, float]  # true relative change of turn time, by class
    loss: float  # true difference in accuracy
    pairs: int
    items: int
    discordance: float
    control: bool
    machines: Literal["one", "swapped", "apart"]
    machine_effect: float  # log ratio between the two machines

    @property
    def mixed(self) -> float:
        """Return the true relative change of the mix (geometric, as the advisor weighs it)."""
        return math.expm1(sum(share * math.log1p(change) for share, change in zip(SHARES, self.changes, strict=True)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Graded:
    """Hold what one verdict said and what was true."""

    verdict: Word
    change: float
    loss: float
    apart: bool = False  # on machines that were not swapped: nothing can be planned to settle it

    @property
    def wrong(self) -> bool:
        """Say whether a "use" or an "avoid" contradicts the truth, thresholds included."""
        unsafe = self.loss <= -POLICY.accuracy_margin
        if self.verdict == "use":
            return unsafe or self.change > -MARGIN
        return self.verdict == "avoid" and not unsafe and self.change < MARGIN

    @property
    def alike(self) -> bool:
        """Say whether the truth is "no difference"."""
        return abs(self.change) < MARGIN and self.loss > -POLICY.accuracy_margin

    @property
    def wanted(self) -> Word | None:
        """Return the verdict that a large truth calls for, None where the truth is not large."""
        if self.apart:
            return None
        if self.loss <= -2 * POLICY.accuracy_margin or self.change >= 2 * MARGIN * 0.999:
            return "avoid"
        return "use" if self.loss == 0 and self.change <= -2 * MARGIN * 0.999 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """Hold what one break-even set said and what was true."""

    covers: bool
    bounded: bool
    slope_z: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Collect the grades of all deployments."""

    server: list[Graded]
    classes: list[Graded]
    crossings: list[Crossing]
    needed: list[float]  # planned from twelve pairs over planned from the true scatter


def noise(rng: np.random.Generator) -> Noise:
    """Draw how disturbed a deployment is."""
    return Noise(
        call=rng.uniform(0.03, 0.15),
        phi=rng.choice([0.0, 0.3, 0.6, 0.9, 0.98]),
        wander=rng.uniform(0.01, 0.08),
        block=rng.uniform(0.0, 0.02),
        drift=rng.choice([0.0, 0.05, 0.15]),
        stall_share=rng.choice([0.0, 0.005, 0.02]),
        stall=rng.uniform(0.5, 1.5),
        second=rng.choice([0.0, 0.02]),
        restart=rng.choice([0.0, 0.005]),  # each server is started once, so no interval can contain it
        session_effect=rng.uniform(0.0, 0.04),
    )


def scatter(rng: np.random.Generator, disturbed: Noise) -> float:
    """Return the true standard deviation of a pair value, order taken out, from many pairs."""
    table = paired.pair_table(*simulated_calls(rng, pairs=300, effect=0.0, noise=disturbed, swapped=False), "turn_ms")
    assert table is not None
    return starts.scatter(paired.pairs_of(table), scale=0.0).pair


def world(rng: np.random.Generator) -> tuple[World, float]:
    """Draw one deployment at its planned size, with the true scatter of its pairs."""
    while True:
        disturbed = noise(rng)
        deviation = scatter(rng, disturbed)
        pairs = units_needed(deviation, math.log1p(MARGIN))
        if pairs <= MOST_PAIRS:
            break
    discordance = rng.uniform(0.03, 0.12)
    loss = float(rng.choice(LOSSES)) * POLICY.accuracy_margin
    effects = rng.choice(EFFECTS, size=2) * MARGIN
    drawn = World(
        noise=disturbed,
        changes=(float(effects[0]), float(effects[1])),
        loss=loss,
        pairs=max(pairs, 6),
        items=items_needed(discordance, POLICY.accuracy_margin),
        discordance=max(discordance, -loss * 1.2),
        control=bool(rng.random() < 0.5),
        machines=rng.choice(["one", "one", "swapped", "apart"]),
        machine_effect=MACHINE_SPREAD * rng.standard_normal(),
    )
    return drawn, deviation


def _calls(rng: np.random.Generator, drawn: World, index: int, pairs: int) -> tuple[Calls, Calls]:
    effect = math.log1p(drawn.changes[index])
    between = 0.0 if drawn.machines == "one" else drawn.machine_effect
    swapped = drawn.machines == "swapped"
    return simulated_calls(rng, pairs=pairs, effect=effect, noise=drawn.noise, machine_effect=between, swapped=swapped)


def evidence(rng: np.random.Generator, drawn: World) -> Evidence:
    """Simulate what a run at the planned size would hand over."""
    idle = Telemetry(peak_kv_usage=0.1, preemptions=0.0, hit_rate=0.5, ideal_hit_rate=0.5)
    observations: list[Observation] = []
    for index, name in enumerate(CLASSES):
        for arm, calls in zip(("bf16", "fp8"), _calls(rng, drawn, index, drawn.pairs), strict=True):
            observations.append(Observation(workload=name, arm=arm, calls=calls, telemetry=idle))
    controls = []
    if drawn.control:
        first, second = simulated_calls(rng, pairs=drawn.pairs, effect=0.0, noise=drawn.noise, swapped=False)
        controls.append(AaControl(workload="chat", first=first, second=second))
    per_bucket = math.ceil(drawn.items / len(BUCKETS))
    two = drawn.machines != "one"
    arms = (replace(BF16, machine="a"), replace(FP8, machine="b")) if drawn.machines == "apart" else (BF16, FP8)
    return bare(
        deployment=Deployment(version="0.33.0", gpu=H100, machines=("a", "b") if two else ("a",), swapped=drawn.machines == "swapped"),
        arms=arms,
        workloads=tuple(
            WorkloadClass(name=name, gpu_time_share=share, context_tokens=SPREAD) for name, share in zip(CLASSES, SHARES, strict=True)
        ),
        observations=tuple(observations),
        accuracy=tuple(
            answers(
                rng,
                arm="fp8",
                task="needle",
                context_tokens=length,
                items=per_bucket,
                right=0.8,
                change=drawn.loss,
                discordance=drawn.discordance,
            )
            for length in BUCKETS
        ),
        aa=tuple(controls),
        health=(ClientHealth(send_lag_p99_ms=0.2, loop_stall_max_ms=3.0, coalesced_share=0.0),),
    )


def crossing(rng: np.random.Generator) -> Crossing:
    """Draw one pair of token latency lines that cross at a positive length, and ask for the break-even set."""
    intercept, slope = rng.uniform(3, 8), rng.uniform(5e-6, 5e-5)
    ratio, truth = rng.uniform(0.5, 0.95), rng.uniform(2_000, 60_000)
    gap = slope * (1 - ratio) * truth
    scale, users, pairs = rng.choice([0.005, 0.01, 0.03]), int(rng.choice([1, 8])), int(rng.integers(6, 13))
    reference = simulated_sweep(rng, arm="bf16", intercept=intercept, slope=slope, pairs=pairs, users=users, noise=scale)
    arm = simulated_sweep(rng, arm="fp8", intercept=intercept + gap, slope=slope * ratio, pairs=pairs, users=users, noise=scale)
    found = break_even(reference, arm, users=users)
    assert found is not None
    ends = (found.low if found.low is not None else 0.0, found.high if found.high is not None else math.inf)
    inside = found.shape == "unclear" or (found.shape in ("bounded", "half-line") and ends[0] <= truth <= ends[1])
    return Crossing(covers=inside, bounded=found.shape == "bounded", slope_z=abs(found.slope_z))


def needed_ratio(rng: np.random.Generator, drawn: World, deviation: float) -> float:
    """Return the pairs that a run of twelve asks for, over those that its true scatter asks for."""
    table = paired.pair_table(*_calls(rng, drawn, 0, PILOT_PAIRS), "turn_ms")
    assert table is not None
    margin = math.log1p(MARGIN)
    return units_needed(starts.scatter(paired.pairs_of(table), scale=0.0).pair, margin) / units_needed(deviation, margin)


def graded(verdict: ArmVerdict, drawn: World) -> Graded:
    """Hold *verdict* against the truth of *drawn*."""
    change = drawn.mixed if verdict.workload is None else drawn.changes[CLASSES.index(verdict.workload)]
    return Graded(verdict=verdict.verdict, change=change, loss=drawn.loss, apart=drawn.machines == "apart")


def simulate(deployments: int, *, seed: int = 7) -> Results:
    """Simulate and grade so many deployments."""
    results = Results(server=[], classes=[], crossings=[], needed=[])
    for index in range(deployments):
        rng = np.random.default_rng((seed, index))
        drawn, deviation = world(rng)
        decision = decide(evidence(rng, drawn), POLICY)
        results.server.extend(graded(each, drawn) for each in decision.server)
        results.classes.extend(graded(each, drawn) for each in decision.classes)
        results.crossings.append(crossing(rng))
        results.needed.append(needed_ratio(rng, drawn, deviation))
    return results


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Hold one line of the table: a rate, its bound on the side that matters, and its goal."""

    name: str
    count: int
    rate: float
    bound: float
    goal: str
    met: bool


def _share(name: str, hits: Sequence[bool], goal: str, *, least: float = 0.0, most: float = 1.0) -> Row:
    """Return a share with the one-sided 95 % bound against its goal (upper for a ceiling, lower for a floor)."""
    n, k = len(hits), sum(hits)
    if not n:
        return Row(name=name, count=0, rate=math.nan, bound=math.nan, goal=goal, met=False)
    if most < 1:
        bound = float(stats.binomtest(k, n, alternative="less").proportion_ci(0.95).high)
    else:
        bound = float(stats.binomtest(k, n, alternative="greater").proportion_ci(0.95).low)
    met = k / n >= least and (bound <= most if least == 0 else k / n <= most)
    return Row(name=name, count=n, rate=k / n, bound=bound, goal=goal, met=met)


def table(results: Results) -> tuple[Row, ...]:
    """Return the rows of the report card."""
    rows = []
    for scope, verdicts in (("server", results.server), ("class", results.classes)):
        said = [each for each in verdicts if each.verdict in ("use", "avoid")]
        alike = [each for each in verdicts if each.alike]
        large = [each for each in verdicts if each.wanted is not None]
        kept = ("no difference", "test further")
        rows += [
            _share(f"wrong use or avoid, of all verdicts ({scope})", [each.wrong for each in verdicts], "<= 5 %", most=0.05),
            _share(f"wrong, of the verdicts that say use or avoid ({scope})", [each.wrong for each in said], "<= 5 %", most=0.05),
            _share(
                f"truth alike, kept as no difference or test further ({scope})",
                [each.verdict in kept for each in alike],
                ">= 95 %",
                least=0.95,
            ),
            _share(
                f"truth >= 2 margins, decisive and right ({scope})", [each.verdict == each.wanted for each in large], ">= 80 %", least=0.80
            ),
        ]
    steep = [each for each in results.crossings if each.slope_z > 4]
    covers = [each.covers for each in results.crossings]
    rows += [
        _share("break-even set covers the truth", covers, "90-98 %", least=0.90, most=0.98),
        _share("break-even bounded where slope z > 4", [each.bounded for each in steep], ">= 70 %", least=0.70),
        _share("needed pairs within 3x of the truth", [1 / 3 <= each <= 3 for each in results.needed], ">= 90 %", least=0.90),
    ]
    median = float(np.median(results.needed))
    rows.append(
        Row(
            name="needed pairs, median ratio",
            count=len(results.needed),
            rate=median,
            bound=median,
            goal="0.80-1.25",
            met=0.8 <= median <= 1.25,
        )
    )
    return tuple(rows)


def rendered(rows: Sequence[Row]) -> str:
    """Return the table as text."""
    lines = [f"{'':62} {'n':>6} {'rate':>7} {'bound':>7}  goal"]
    lines += [
        f"{row.name:62} {row.count:>6} {row.rate:>7.3f} {row.bound:>7.3f}  {row.goal}{'' if row.met else '  NOT MET'}" for row in rows
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, write: Callable[[str], object] = sys.stdout.write) -> int:
    """Print the report card; return 3 when a goal is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--deployments", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args(arguments)
    rows = table(simulate(options.deployments, seed=options.seed))
    write(rendered(rows) + "\n")
    return 0 if all(row.met for row in rows) else 3


if __name__ == "__main__":
    raise SystemExit(main())
