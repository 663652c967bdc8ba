"""Join the evidence with everything computed from it once: all that rules and criteria read."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import expm1
from typing import TypeVar

from advisor.estimate import Estimate, present
from advisor.evidence import Evidence
from advisor.policy import Compared, DecideBy, Policy
from advisor.results import BrokenAnswers, PooledAccuracy, Room, SpeedComparison, TestedReach
from advisor.statistics import planning
from advisor.steps import CapacitySearch, Lengths
from advisor.verdict import (
    BreakEven,
    BucketResult,
    Capacity,
    Coverage,
    Gate,
    ItlLine,
    ServiceLevel,
    Spoiled,
    TaskFigures,
    TtftCurve,
)

LONG_ENOUGH = 0.9  # share of the wanted seconds from which an earlier trial is long enough
LEAST_TRIAL_S = 60.0  # of each load of a search
SHORTEST = 1024  # tokens: the first length of a sweep of latencies; the next ones double
LONGEST = 128 * 1024  # tokens: its last length, where it is not known what servers take
WEIGHTY = 0.10  # share of the mix from which a class speaks for the whole server
SPOILED_BY: dict[Compared, Spoiled] = {
    "ttft_ms": "ttft",
    "tpot_ms": "itl",
    "turn_ms": "turn",
    "task_ms": "turn",
}


def weighty(weights: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
    """Return the workloads that speak for the whole server: those of a tenth of the mix or more.

    All of them do where no share is so large.
    """
    found = tuple(name for name, share in weights if share >= WEIGHTY)
    return found or tuple(name for name, _ in weights)


def rivals(evidence: Evidence) -> int:
    """Count the arms that could be chosen instead of the reference, 1 at least."""
    return max(1, len(evidence.challengers))


def look_level_of_answers(evidence: Evidence, policy: Policy) -> float:
    """Return the one-sided level of one look at an arm's paired answers.

    Where the policy or the run planned several looks, each has a part of the error.
    """
    return planning.answer_level(
        policy.alpha, planned=policy.planned_looks or evidence.planned_answers
    )


def doubling(shortest: int, longest: int) -> tuple[int, ...]:
    """Return lengths that double from *shortest* and end with *longest*."""
    out = []
    while shortest < longest:
        out.append(shortest)
        shortest *= 2
    return (*out, longest)


_OfArm = TypeVar("_OfArm", SpeedComparison, TaskFigures, PooledAccuracy, Capacity, TestedReach)
"""What is said of one arm, for one workload or (None) for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Join evidence, policy and everything computed from them; rules read nothing else."""

    evidence: Evidence
    policy: Policy
    shares: tuple[tuple[str, float], ...]  # weight of each workload in the mix, adding up to 1
    gates: tuple[Gate, ...]
    speeds: tuple[SpeedComparison, ...]
    itl: tuple[ItlLine, ...]
    ttft: tuple[TtftCurve, ...]
    break_even: tuple[BreakEven, ...]
    buckets: tuple[BucketResult, ...]
    accuracy: tuple[PooledAccuracy, ...]
    broken: tuple[BrokenAnswers, ...]
    # arms that may be broken at one depth: too few questions were asked there to be sure
    suspects: tuple[BrokenAnswers, ...]
    # of arms that were asked the same questions twice: what equal servers lose and win
    same_answers: tuple[PooledAccuracy, ...]
    capacity: tuple[Capacity, ...]
    # the same, with intervals whose error is not divided over speed and capacity: claims that
    # arms carry equal agents use them, for these alone decide nothing
    capacity_undivided: tuple[Capacity, ...]
    rooms: tuple[Room, ...]
    reach: tuple[TestedReach, ...]
    coverage: tuple[Coverage, ...] = ()
    tasks: tuple[TaskFigures, ...] = ()
    service_levels: tuple[ServiceLevel, ...] = ()

    def service_level(self, arm: str) -> ServiceLevel | None:
        """Return how *arm* meets the service level; None where no level was stated."""
        return next((each for each in self.service_levels if each.arm == arm), None)

    @property
    def is_unmet(self) -> bool:
        """Say whether no arm meets the service level, not even with a single session."""
        return {each.state for each in self.service_levels} == {"no"}

    @property
    def is_unmet_as_played(self) -> bool:
        """Say whether every arm misses the level at the load of the pairs, and latency decides."""
        return {each.is_missed_as_played for each in self.service_levels} == {True}

    @property
    def decided_by(self) -> DecideBy:
        """Return what arms that meet the service level are compared by."""
        return self.policy.decider(self.evidence.deployment.peak_agents)

    @property
    def decisive(self) -> Compared:
        """Return the latency that says which arm is faster."""
        return "task_ms" if self.decided_by == "tasks" else "turn_ms"

    def task_figures(self, arm: str, workload: str | None) -> TaskFigures | None:
        """Return what the tasks of *arm* take and cost; None where no task was seen."""
        return _row(self.tasks, arm, workload)

    def speed(
        self, arm: str, workload: str | None, metric: Compared = "turn_ms"
    ) -> SpeedComparison | None:
        """Return the comparison of *metric*; None where there is none or it is invalid."""
        if self.spoiler(SPOILED_BY[metric], arm, workload) is not None:
            return None
        return self.comparison(arm, workload, metric)

    def comparison(
        self, arm: str, workload: str | None, metric: Compared = "turn_ms"
    ) -> SpeedComparison | None:
        """Return the comparison of *metric*, whatever gates say, with its deciding interval."""
        of_metric = (each for each in self.speeds if each.change.metric == metric)
        found = _row(of_metric, arm, workload)
        if found is None:
            return None
        level = 1 - 2 * self.level(arm)  # of two sides
        low, high = map(expm1, found.spread.interval(level))
        relative = replace(found.change.relative, low=low, high=high, level=level)
        overfull = self.evidence.overfull(self.evidence.reference, arm)
        if overfull:  # full pools show which arm is faster, and not by how much
            relative = relative.as_bound(found.mildest)
        change = replace(found.change, relative=relative, overfull=overfull)
        return replace(found, change=change)

    @property
    def level_of_answers(self) -> float:
        """The one-sided level at which a claim about an arm's answers is tested.

        It is divided over the arms, but not over speed and capacity: "use" needs accuracy in
        addition to one of them.
        """
        return look_level_of_answers(self.evidence, self.policy) / rivals(self.evidence)

    def level(self, arm: str, *, look: int | None = None) -> float:
        """Return the one-sided level at which speed and capacity of *arm* are tested.

        The interval of *arm* is printed at that level. *look* is another look than the latest one.
        The level is divided where any of several claims would be enough: over the arms, and over
        speed and capacity where both were measured. The mix decides; what is said of classes is
        secondary, and not adjusted for their number.
        """
        searched = {each.arm for each in self.capacity if each.agents_per_gpu is not None}
        has_capacity = {arm, self.evidence.reference} <= searched
        whole = self._level_of_look(arm, look or self.evidence.looks)
        return whole / rivals(self.evidence) / (2 if has_capacity else 1)

    def _level_of_look(self, arm: str, look: int) -> float:
        """Return the level of a planned look, or, without a plan, that of look number *look*."""
        if not self.policy.planned_looks:
            return planning.look_level(look, self.policy.alpha)
        of_mix = _row(self.speeds, arm, None)
        starts = None if of_mix is None else of_mix.in_turn
        return planning.planned_level(self.policy.alpha, starts=starts)

    def spoiler(self, what: Spoiled, arm: str, workload: str | None) -> Gate | None:
        """Return the failed gate that invalidates *what* for *arm* or the reference, if any.

        A gate of a `weighty` workload invalidates the whole server too.
        """
        arms = (None, arm, self.evidence.reference)
        scopes = (None, *self.weighty()) if workload is None else (None, workload)
        for gate in self.gates:
            is_about_these = gate.arm in arms and gate.workload in scopes
            if gate.status == "fail" and what in gate.spoils and is_about_these:
                return gate
        return None

    def accuracy_of(self, arm: str, workload: str | None) -> PooledAccuracy | None:
        """Return the pooled accuracy of *arm* for *workload*."""
        return _row(self.accuracy, arm, workload)

    def broken_of(self, arm: str) -> BrokenAnswers | None:
        """Return where *arm* is broken, at its longest lengths; None where no asked length is."""
        return next((each for each in self.broken if each.arm == arm), None)

    def capacity_of(self, arm: str, workload: str | None) -> Capacity | None:
        """Return the agents per GPU of *arm* for *workload*."""
        return _row(self.capacity, arm, workload)

    def gpus_of(self, arm: str, workload: str | None) -> Estimate | None:
        """Return the GPUs that *arm* needs for *workload* at the peak; None where not known."""
        found = self.capacity_of(arm, workload)
        return None if found is None else found.gpus_at_peak

    @property
    def undivided(self) -> "Case":
        """This case, with the intervals of agents per GPU that claims of equality use."""
        return replace(self, capacity=self.capacity_undivided)

    def agents_of(self, arm: str, workload: str | None) -> Estimate | None:
        """Return how many agents of *workload* a GPU carries on *arm*; None where not known.

        With a single workload class, a search on the mix answers for it.
        """
        answering = (workload, None) if len(self.evidence.workloads) < 2 else (workload,)
        for each in self.capacity:
            is_asked = each.arm == arm and each.workload in answering
            if is_asked and each.agents_per_gpu is not None:
                return each.agents_per_gpu
        return None

    def room(self, workload: str | None) -> Room:
        """Return whether the pool can limit *workload*."""
        return next(each for each in self.rooms if each.workload == workload)

    def reach_of(self, arm: str, workload: str | None) -> TestedReach:
        """Return how far the tests of *arm* cover *workload*."""
        found = _row(self.reach, arm, workload)
        assert found is not None, (arm, workload)
        return found

    def starts_told(self) -> str:
        """Say how much a start is assumed to add to latencies, and where that figure is from."""
        history = self.evidence.starts
        if history is None:
            return f"{100 * self.policy.start_spread:.1f}% a start (assumed, not measured)"
        return f"{100 * history.spread:.1f}% a start ({history.source})"

    def search(self, *, seconds: float = 0.0) -> CapacitySearch:
        """Return a search for the agents that one GPU carries within the service level.

        Each trial takes *seconds* at least.
        """
        trial_s = max(seconds, self.trial_seconds())
        return CapacitySearch(limits=self.policy.slo(None), trial_s=float(round(trial_s)))

    def filling_search(self) -> CapacitySearch | None:
        """Return a search whose loads may fill the pools.

        None where such a search went past the service level on every arm: another one would stop
        at the same loads and fill the pools no more.
        """
        level = self.policy.slo(None)
        least_s = LONG_ENOUGH * self.trial_seconds()
        past = set()
        for each in self.evidence.capacity:
            if each.workload is not None or each.slo is None or level not in (None, each.slo):
                continue  # of one workload, or at another service level
            is_missed = each.within_slo < each.slo.share * each.turns
            if is_missed and 60 * each.minutes >= least_s:
                past.add(each.arm)
        if past.issuperset(each.name for each in self.evidence.arms):
            return None
        return self.search()

    def never_filled(self, arm: str) -> bool:
        """Tell whether the pool of *arm* was monitored in trials, and full in none."""
        own = [each for each in self.evidence.capacity if each.arm == arm]
        return bool(own) and all(each.pool_filled is False for each in own)

    def usd(self, minutes: float) -> float | None:
        """Return the price of *minutes* on all arms' servers; None where no price is known."""
        price = self.evidence.deployment.gpu.usd_per_hour
        if price is None:
            return None
        once = sum(self.evidence.gpus(each.name) for each in self.evidence.arms)
        gpus = once * self.evidence.deployment.replicas
        return price * gpus * minutes / 60

    def trial_seconds(self) -> float:
        """Return how long each load of a search has to be tried.

        Twice what the pool takes to fill, so that the pool is full for half of the trial.
        """
        longest_s = LEAST_TRIAL_S
        for scope in self.scopes():
            for arm in self.evidence.arms:
                figures = self.evidence.telemetry(scope, arm.name)
                if figures is not None and figures.fill_minutes is not None:
                    longest_s = max(longest_s, 2 * 60 * figures.fill_minutes)
        return longest_s

    def context_sweep(self) -> Lengths:
        """Return a sweep of latencies over contexts, up to the longest that the servers take."""
        window = self.evidence.deployment.max_model_len
        longest = LONGEST
        if window is not None:
            longest = max(2 * SHORTEST, window // 1024 * 1024)
        return Lengths(lengths=doubling(SHORTEST, longest))

    def itl_line(self, arm: str, users: int | None = None) -> ItlLine | None:
        """Return the token latency line of *arm*, at *users* or at the smallest batch."""
        found = [each for each in self.itl if each.arm == arm and users in (None, each.users)]
        return min(found, key=lambda each: each.users, default=None)

    def weighty(self) -> tuple[str, ...]:
        """Return the workloads that speak for the whole server."""
        return weighty(self.shares)

    def reaches_context(self, arm: str, workload: str | None, tokens: float | None) -> bool:
        """Say whether *workload* reaches a context of *tokens*; yes where either is unknown.

        Questions are asked at the lengths that a workload reaches.
        """
        found = self.accuracy_of(arm, workload)
        if tokens is None or found is None:
            return True
        # The canary's lengths are those of the whole trace: which
        # class reaches them is known only where there is one class.
        is_whole = workload is None or len(self.evidence.workloads) == 1
        asked = (found.lengths[-1], *self.evidence.canary) if is_whole else found.lengths
        return tokens <= max(asked)

    def scopes(self) -> Iterator[str | None]:
        """Yield the whole server (None), then each workload class."""
        yield None
        for workload in self.evidence.workloads:
            yield workload.name


def _row(rows: Iterable[_OfArm], arm: str, workload: str | None) -> _OfArm | None:
    """Return the first row of *arm* for *workload*."""
    return next((each for each in rows if (each.arm, each.workload) == (arm, workload)), None)


def _values(root: object, path: str) -> list[object]:
    """Return what a dotted path leads to, for each element of any tuple on its way."""
    values = [root]
    for name in path.split("."):
        parts: list[object] = []
        for each in values:
            value = getattr(each, name)
            parts += value if isinstance(value, tuple) else (value,)
        values = present(parts)
    return values


def missing(case: Case, needs: frozenset[str]) -> tuple[str, ...]:
    """Return the *needs* that *case* lacks: dotted paths at whose end there is no value."""
    return tuple(sorted(path for path in needs if not _values(case, path)))
