"""Draw deployments whose truth is known; `deciding_drawn` has the product decide on them.

Block pairs come from the worlds that the advisor is graded in, none of which has the form
that a twin is fitted as. A trial of a load is a draw of sessions with a limit of its own;
twins know that limit but for what they miss. Answers behind one context differ together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import yaml

from advisor.deployment import Deployment
from advisor.evidence import AccuracyBucket, Calls, Evidence, Scales, WorkloadClass
from advisor.loads import FACTORS, CapacityPoint
from advisor.statistics.paired import pair_table
from agentload.decision.long_run import KNOWN
from agentload.decision.look import ITEMS, PAIRS
from agentload.decision.means import TOGETHER
from agentload.run.trial import Trial
from tests.advisor.cases import BF16, FP8, H100, bare, observed
from tests.advisor.grading import log_of, offset
from tests.advisor.noises import BLOCK, CALL, SESSIONS, TURNS, Scene, World, drawn, orders
from tests.advisor.noises import WORLDS as GRADED

POPULATION: Final[Mapping[str, Any]] = yaml.safe_load(
    (Path(__file__).parent / "population.yaml").read_text(encoding="utf-8")
)
OWN_SD: Final = math.sqrt(2) * math.hypot(BLOCK, CALL / math.sqrt(SESSIONS * TURNS))
"""What pairs of a world scatter by without what is added here."""
ALIVE: Final = 9_400_000.0
"""Tokens of the sessions at a peak: more than any pool holds."""
TURNS_A_MINUTE: Final = 2.2
"""Of one agent, in the counted part of a trial; a
server that is overrun answers a third of them.
"""
OVERRUN: Final = 1.15
CEILING: Final = 0.985
"""Turns that hold far below the limit: some prompts hit no cache."""
UNKNOWN: Final = 10_000
"""Number of the first draw that no twin has played."""
BUDGET_MINUTES: Final = 600.0

Drawable = TypeVar("Drawable")


def in_turn(first: np.ndarray, *, pairs: int, replicas: int) -> np.ndarray:
    """Return which pairs the arm runs first in, as a
    plan has it whose pairs take turns on replicas.
    """
    turn, place = np.arange(pairs) // replicas, np.arange(pairs) % replicas
    return np.asarray(first[2 * (turn // 2) + (turn + place) % 2])


def _of_arm(added: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros_like(added), added], axis=1)[:, :, None, None]


def carried_over(scene: Scene) -> np.ndarray:
    """Have the arm leave something that slows the reference, and the reference nothing."""
    return _of_arm(-0.03 * (scene.place[:, 0] > scene.place[:, 1]))


def older(scene: Scene) -> np.ndarray:
    """Have the arm slow with what its server has played since it started."""
    since = np.arange(scene.pairs) - np.searchsorted(scene.start, scene.start)
    return _of_arm(0.06 * np.minimum(since / 16, 1.0))


def rarely_slow(scene: Scene) -> np.ndarray:
    """Slow one block of the arm in twenty-five by
    two fifths: 1.35% in the mean, which is its own.
    """
    return _of_arm(math.log(1.4) * (scene.rng.random(scene.pairs) < 0.04))


OWN: Final[Mapping[str, World]] = {
    "carry-over of one arm": World(disturbance=carried_over, one_start="open", many_starts="open"),
    "one arm ages": World(disturbance=older, one_start="open", many_starts="open"),
    "rare slow blocks": World(
        disturbance=rarely_slow, one_start="open", many_starts="open", shifts=True
    ),
}
"""In which nothing is promised: what is added is
drawn once for all pairs, or too seldom to be seen.
"""
WORLDS: Final[Mapping[str, World]] = {**GRADED, **OWN}


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What is true of an arm: its gain in margins, its agents for
    one of the reference's, its change of right answers in points.
    """

    gain: float
    agents: float | None
    points: float

    @property
    def gains(self) -> tuple[float, ...]:
        """Return what it gains, in margins of speed and capacity."""
        return self.gain, 0.0 if self.agents is None else (self.agents - 1) / 0.10

    @property
    def harms(self) -> float:
        """Return its largest harm, in margins."""
        return max(*(-gain for gain in self.gains), -self.points / 3)

    def is_wrong(self, word: str) -> bool:
        """Tell whether a verdict contradicts it: a switch that gains
        too little or harms, a stay that misses twice what counts.

        Where there are agents there is a level and a
        peak, so GPUs decide, and speed where they tie.
        """
        if self.agents is not None:
            return self._by_gpus(word)
        gain = max(self.gains)
        match word:
            case "use":
                return gain <= 1 or self.harms > 1
            case "avoid" | "calibrate":
                return self.harms <= 1
            case "no difference":
                return gain >= 2 if self.harms <= 1 else max(-each for each in self.gains) >= 2
            case _:
                return False

    def _by_gpus(self, word: str) -> bool:
        """Tell whether a verdict contradicts what GPUs say, and speed where they are as many."""
        assert self.agents is not None
        fewer, worse = 1 - 1 / self.agents, -self.points / 3 > 1
        is_tied = abs(fewer) < 1e-9
        match word:
            case "use":
                return worse or fewer < -1e-9 or (is_tied and self.gain <= 1)
            case "avoid" | "calibrate":
                return not worse and (fewer > 1e-9 or (is_tied and self.gain >= -1))
            case "no difference":
                return not is_tied or abs(self.gain) >= 2
            case _:
                return False

    @property
    def is_clear(self) -> bool:
        """Tell whether something is gained or lost by what can be
        shown, and nothing lies near its margin or weighs against it.
        """
        far = [abs(self.gain) >= 2] if self.gain else []
        far += (
            [abs(math.log(self.agents)) >= math.log(1.5)] if self.agents not in (None, 1.0) else []
        )
        far += [abs(self.points) >= 6] if self.points else []
        return bool(far) and all(far)


TRUTHS: Final = tuple(
    Truth(gain=gain, agents=agents, points=points) for gain, agents, points in POPULATION["truths"]
)


def chosen(rng: np.random.Generator, weights: Mapping[Drawable, float]) -> Drawable:
    """Draw by weight."""
    names = list(weights)
    shares = np.array([weights[name] for name in names], dtype=np.float64)
    return names[int(rng.choice(len(names), p=shares / shares.sum()))]


@dataclass(kw_only=True)
class Drawn:
    """One deployment, and how much of it was asked for so far."""

    world: str
    starts: str
    pair_sd: float
    truth: Truth
    rng: np.random.Generator
    pairs: int = 0
    items: int = 0
    lengths: tuple[int, ...] = ()
    trials: Mapping[str, Sequence[Trial]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Draw what all trials and answers have in common."""
        rng = self.rng
        self.flips = max(chosen(rng, POPULATION["flips"]), 1.2 * abs(self.truth.points) / 100)
        self.slope, self.draw_sd = (
            rng.uniform(*POPULATION["trial_slope"]),
            rng.uniform(*POPULATION["draw_sd"]),
        )
        low, high = POPULATION["reference_agents"]
        carried = math.exp(rng.uniform(math.log(low), math.log(high)))
        self.carried = {"bf16": carried, "fp8": carried * (self.truth.agents or 1.0)}
        self.bias = {
            arm: math.exp(rng.normal(0.0, POPULATION["twin_bias"])) for arm in self.carried
        }
        self.draw_seed = int(rng.integers(1 << 32))
        self.scales: Scales | None = {"calibrated": "calibrated", "default": "default"}.get(
            chosen(rng, POPULATION["scales"])
        )  # type: ignore[assignment]  # a closed set
        self.losing = chosen(rng, POPULATION["losing"])

    @property
    def is_searching(self) -> bool:
        """Tell whether capacity is part of the question."""
        return self.truth.agents is not None

    @property
    def in_turn(self) -> int | None:
        """Count the starts that pairs take turns on: one,
        or "2 pairs of replicas"; None: a start a pair.
        """
        match self.starts:
            case "a start a pair":
                return None
            case "one start":
                return 1
            case several:
                return int(several.partition(" ")[0])

    @cached_property
    def calls(self) -> tuple[Calls, Calls]:
        """Draw as many pairs as a decision may ask for."""
        most = PAIRS[-1]
        effect = log_of(self.truth.gain) - added(self.world)
        turns = self.in_turn
        first = (
            None
            if turns in (None, 1)
            else in_turn(orders(self.rng, most + 2 * turns), pairs=most, replicas=turns)
        )
        both = drawn(
            self.rng,
            WORLDS[self.world],
            pairs=most,
            starts=turns or most,
            effect=effect,
            arm_first=first,
            in_turn=turns is not None,
        )
        more = math.sqrt(max(0.0, self.pair_sd**2 - OWN_SD**2) / 2)
        return _scaled(both[0], self.rng, more), _scaled(both[1], self.rng, more)

    @cached_property
    def answers(self) -> tuple[np.ndarray, np.ndarray]:
        """Draw right answers on both arms, of as many
        items as may be asked, so many behind each context.
        """
        most = ITEMS[-1]
        lost, won = (
            (self.flips - self.truth.points / 100) / 2,
            (self.flips + self.truth.points / 100) / 2,
        )
        if self.losing == "whole contexts" and self.truth.points < 0:
            return self._broken(most)
        shared = np.repeat(self.rng.standard_normal(-(-most // TOGETHER)), TOGETHER)[:most]
        mixed = math.sqrt(POPULATION["together"])
        level = mixed * shared + math.sqrt(1 - mixed**2) * self.rng.standard_normal(most)
        place = np.argsort(np.argsort(level)) / most
        reference = self.rng.random(most) < 0.9
        arm = np.where(place < lost, False, np.where(place > 1 - won, True, reference))
        return np.where(place < lost, True, np.where(place > 1 - won, False, reference)), arm

    def _broken(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Have a few contexts lose four answers of five, and chance little else."""
        wholly = self.rng.random(-(-most // TOGETHER)) < -self.truth.points / 100 / 0.8 / 0.9
        lost = np.repeat(wholly, TOGETHER)[:most] & (self.rng.random(most) < 0.8)
        reference = self.rng.random(most) < 0.9
        return reference, reference & ~lost

    @property
    def scatter(self) -> float:
        """Return what pairs scatter by, whatever makes them."""
        table = pair_table(*self.calls, "turn_ms")
        assert table is not None
        return float(table.value.std())

    def evidence(self) -> Evidence:
        """Return what was asked for."""
        machines = ("a", "b") if WORLDS[self.world].apart else ("a",)
        arms = (
            replace(BF16, machine=machines[0]),
            replace(
                FP8,
                scales=self.scales,
                pool_tokens=self._pool,
                expected_pool_tokens=self._pool,
                machine=machines[-1],
            ),
        )
        chat = WorkloadClass(
            name="chat", gpu_time_share=1.0, working_set_tokens=ALIVE if self.is_searching else None
        )
        return bare(
            kind="measured",
            arms=arms,
            deployment=Deployment(
                version="0.33.0",
                gpu=H100,
                machines=machines,
                peak_agents=400 if self.is_searching else None,
            ),
            workloads=(chat,),
            observations=observed(*(first_pairs(calls, self.pairs) for calls in self.calls)),
            capacity=tuple(
                as_point(arm, trial) for arm, trials in self.trials.items() for trial in trials
            ),
            accuracy=tuple(self._bucket(number) for number in range(len(self.lengths)))
            if self.items
            else (),
        )

    @property
    def _pool(self) -> float:
        return (BF16.pool_tokens or 0.0) * (self.truth.agents or 1.0)

    def _bucket(self, number: int) -> AccuracyBucket:
        context = np.arange(self.items) // TOGETHER
        taken = np.flatnonzero(context % len(self.lengths) == number)
        reference, arm = (side[taken] for side in self.answers)
        return AccuracyBucket(
            arm="fp8",
            task="needle",
            context_tokens=float(self.lengths[number]),
            both=int((reference & arm).sum()),
            reference_only=int((reference & ~arm).sum()),
            arm_only=int((~reference & arm).sum()),
            neither=int((~reference & ~arm).sum()),
            reference_scores=reference.astype(np.float64),
            arm_scores=arm.astype(np.float64),
            clusters=context[taken],
        )

    def of_draw(self, arm: str, draw: int) -> float:
        """Return the load that an arm carries of one draw of sessions."""
        rng = np.random.default_rng((self.draw_seed, draw))
        shared, own = rng.standard_normal(2)
        return self.carried[arm] * math.exp(
            self.draw_sd * (0.8 * shared + 0.6 * own * (1 if arm == "fp8" else -1))
        )

    def by_long_runs(self, arm: str) -> float:
        """Return the load that the arm's twin carries by long runs, which have an end."""
        missed = np.random.default_rng((self.draw_seed, UNKNOWN, arm == "fp8"))
        return self.carried[arm] * self.bias[arm] * math.exp(missed.normal(0.0, KNOWN / 1.96))

    def by_twin(self, arm: str, draw: int) -> float:
        """Return the load that the arm's twin carries of it."""
        missed = np.random.default_rng((self.draw_seed, draw, arm == "fp8")).normal(
            0.0, POPULATION["twin_of_draw"]
        )
        return self.of_draw(arm, draw) * self.bias[arm] * math.exp(missed)

    def share_at(self, beyond: float) -> float:
        """Return the share of turns within the limits at a load, for one that is carried."""
        return _share(self.slope * math.log(beyond))

    def on_twin(self, arm: str, load: float, draw: int) -> tuple[float, ...]:
        """Return that share on the arm's twin, whose slope is off, at its step times by `FACTORS`.

        A twin carries as much less as its steps are longer.
        """
        slope = self.slope * self.slope_off(arm)
        beyond = load / self.by_twin(arm, draw)
        return tuple(_share(slope * math.log(beyond * factor)) for factor in FACTORS)

    def slope_off(self, arm: str) -> float:
        """Return how many times as steeply as its arm's the share of a twin falls."""
        rng = np.random.default_rng((self.draw_seed, UNKNOWN + 1, arm == "fp8"))
        return 1 + float(rng.uniform(-1, 1) * POPULATION["twin_slope"])

    def trial(self, arm: str, load: float, draw: int, minutes: float) -> Trial:
        """Play a load on a draw of sessions."""
        beyond = load / self.of_draw(arm, draw)
        share = self.share_at(beyond)
        turns = max(
            4,
            int(
                self.rng.poisson(
                    TURNS_A_MINUTE * load * minutes * (0.35 if beyond > OVERRUN else 1.0)
                )
            ),
        )
        within = int(self.rng.binomial(turns, self.rng.beta(20 * share, 20 * (1 - share))))
        return Trial(
            load=load, turns=turns, within=within, trouble=None if within >= 0.95 * turns else "slo"
        )


def _share(beyond: float) -> float:
    """Return the share of turns that hold, in logits beyond a load that is carried."""
    return CEILING / (1 + math.exp(beyond - math.log(0.95 / (CEILING - 0.95))))


@cache
def added(world: str) -> float:
    """Return what a world adds to the arm on average, which is no part of its truth."""
    return offset(WORLDS[world], np.random.default_rng(0))


def _scaled(calls: Calls, rng: np.random.Generator, sd: float) -> Calls:
    """Return calls whose blocks scatter by more; nothing but their turn times is judged."""
    by, unseen = (
        np.exp(sd * rng.standard_normal(PAIRS[-1]))[calls.pair],
        np.full(len(calls), np.nan),
    )
    return replace(calls, ttft_ms=unseen, tpot_ms=unseen, turn_ms=calls.turn_ms * by)


def first_pairs(calls: Calls, pairs: int) -> Calls:
    taken = calls.pair < pairs
    columns: dict[str, Any] = {each.name: getattr(calls, each.name) for each in fields(calls)}
    return replace(
        calls, **{name: column[taken] for name, column in columns.items() if column is not None}
    )


def as_point(arm: str, trial: Trial) -> CapacityPoint:
    """Return a trial as a decision reads it."""
    return CapacityPoint(
        arm=arm,
        agents=round(trial.load),
        turns=trial.turns,
        within_slo=trial.within,
        minutes=1.5,
        pool_filled=True,
        worth=trial.worth,
        error=trial.error,
        replay=trial.replay,
    )
