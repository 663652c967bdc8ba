"""Evidence with everything that was computed from it once: what rules and legs read."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import expm1
from typing import Literal

from advisor.estimate import Estimate
from advisor.evidence import Evidence
from advisor.policy import DecideBy, Policy
from advisor.statistics import planning
from advisor.statistics.paired import Metric
from advisor.statistics.spread import Spread
from advisor.statistics.starts import Draw, Scatter
from advisor.steps import Lengths, Search
from advisor.verdict import (
    BreakEven,
    BucketResult,
    Capacity,
    Change,
    Coverage,
    Gate,
    ItlLine,
    Leg,
    Need,
    ServiceLevel,
    Spoiled,
    TtftCurve,
)

TRIAL_S = 60.0  # each load of a search, where nothing asks for longer
SHORTEST = 1024  # tokens: where latencies are measured from, and doubled
LONGEST = 128 * 1024  # tokens, where nothing tells what agents send or servers take
WEIGHTY = 0.10  # share of the mix from which a class binds the whole server
SPOILED_BY: dict[Metric, Spoiled] = {"ttft_ms": "ttft", "tpot_ms": "itl", "turn_ms": "turn"}


def weighty(weights: tuple[tuple[str, float], ...]) -> tuple[str, ...]:
    """Return the workloads that bind the whole server: those of
    a tenth of the mix or more, or all where none is so large.
    """
    found = tuple(name for name, share in weights if share >= WEIGHTY)
    return found or tuple(name for name, _ in weights)


def rivals(evidence: Evidence) -> int:
    """Count the arms of which any could be chosen."""
    return max(1, len(evidence.challengers))


def answer_level(evidence: Evidence, policy: Policy) -> float:
    """Return the one-sided level of a look at paired answers, of one
    arm: its part where the policy or the run planned several looks.
    """
    return planning.answer_level(
        policy.alpha, planned=policy.planned_looks or evidence.planned_answers
    )


def doubled(shortest: int, longest: int) -> tuple[int, ...]:
    """Return lengths that double from the shortest, as far as the longest."""
    out = []
    while shortest < longest:
        out.append(shortest)
        shortest *= 2
    return (*out, longest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Hold what copies of one configuration differed by: on one server, or with a server each."""

    spread: Spread  # inside the run
    draws: tuple[
        Draw, ...
        # of starts; none where both copies were one server,
        # and as alike as their places in the order allow
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """Hold one comparison of latencies with its sampling
    distribution (log ratio, arm over reference).
    """

    change: Change
    spread: Spread
    calls_per_pair: float
    minutes_per_pair: float  # of the whole run: all arms and the control
    scatter: Scatter
    mildest: tuple[
        float, float
        # quartiles of the pairs' relative changes: a quarter
        # of them is below the first, and above the second
    ]
    starts: int = 1  # pairs of starts that share no server's start
    in_turn: int | None = (
        None  # of these, those that pairs take turns on; None: no start is returned to
    )
    doubted: Estimate | None = (
        None  # the same had a start added twice as much; None: the starts themselves tell
    )
    controls: tuple[Control, ...] = ()  # of the same figure and scope

    @property
    def control(self) -> Spread | None:
        """Return what the surest A/A control showed: the noise floor."""
        return min((each.spread for each in self.controls), key=lambda each: each.se, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """Hold the pooled paired accuracy of one arm over the
    buckets that matter to one workload (None: all of them).
    """

    arm: str
    workload: str | None
    estimate: Estimate  # arm minus reference, share of right answers
    p_not_worse: float
    p_worse: float
    worst: BucketResult
    good_to: (
        BucketResult | None
    )  # where all of the loss lies beyond a length: the answers up to there
    worst_p: float  # that some bucket loses more than the margin, after Holm over the buckets
    discordance: float
    items: int  # different ones; `estimate.n` counts what they are worth
    lengths: tuple[float, ...]  # contexts of the buckets that count, the shortest first
    asked_to: float  # longest context with answers, whether or not the workload needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """Say where the answers of one arm are wrong altogether: that is no matter of scales."""

    arm: str
    lengths: tuple[float, ...]  # neighbours among those that were asked, the shortest first
    depths: tuple[float, ...]  # where in the context; (): at every depth that was asked
    right: int
    reference_right: int
    items: int
    sound_to: float | None  # the next shorter length that was asked, where the arm still answers
    sound_from: float | None  # the next longer one


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Hold a leg with the p-values of the claim that speaks
    for the arm and of the one that speaks against it.
    """

    leg: Leg
    p_for: float | None = None
    p_against: float | None = None
    if_unclear: tuple[Need, ...] = ()  # what settles it, should it be open


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """Say whether the KV pool can limit a workload at the user's load."""

    workload: str | None
    state: Literal["binds", "slack", "unknown"]
    reason: str
    working_set_tokens: float | None
    binds_from: int | None = None  # agents at once from which on the pool decides


@dataclass(frozen=True, slots=True, kw_only=True)
class Beyond:
    """Say how much of the user's load is longer than a context."""

    to: float
    calls: float  # share
    tokens: float  # share

    def bound(self, policy: Policy) -> float | None:
        """Return the context where what was seen at it ends
        to speak for the load; None where little lies beyond.
        """
        is_much = self.calls > policy.max_untested_share or self.tokens > policy.max_untested_tokens
        return self.to if is_much else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Say how much of the user's load lies outside what was tested on an arm."""

    arm: str
    workload: str | None
    usual: tuple[float, float] | None  # contexts between which the user's calls usually lie
    longest: float | None  # the user's longest context
    asked: Beyond | None = None  # the longest context at which answers were compared
    timed: Beyond | None = (
        None  # and at which latencies were; None: what could have been played is not known
    )

    @property
    def beyond_share(self) -> float | None:
        """Return the share of calls that are longer than what answers were compared at."""
        return None if self.asked is None else self.asked.calls


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """Join evidence, policy and all that follows from
    them by computation; rules read nothing else.
    """

    evidence: Evidence
    policy: Policy
    shares: tuple[tuple[str, float], ...]  # weight of each workload in the mix, adding up to 1
    gates: tuple[Gate, ...]
    speeds: tuple[Speed, ...]
    itl: tuple[ItlLine, ...]
    ttft: tuple[TtftCurve, ...]
    break_even: tuple[BreakEven, ...]
    buckets: tuple[BucketResult, ...]
    accuracy: tuple[Accuracy, ...]
    broken: tuple[Broken, ...]
    suspects: tuple[
        Broken, ...
    ]  # arms that may be so at one depth: too few answers were asked there
    same_answers: tuple[
        Accuracy, ...
    ]  # of arms that were asked twice: what equal servers lose and win
    capacity: tuple[Capacity, ...]
    rooms: tuple[Room, ...]
    reach: tuple[Reach, ...]
    coverage: tuple[Coverage, ...] = ()
    service_levels: tuple[ServiceLevel, ...] = ()

    def service_level(self, arm: str) -> ServiceLevel | None:
        """Return whether *arm* meets the service level at all; None where there is none."""
        return next((each for each in self.service_levels if each.arm == arm), None)

    @property
    def is_unmet(self) -> bool:
        """Say whether no arm meets the service level, not even with a single session."""
        return {each.state for each in self.service_levels} == {"no"}

    @property
    def is_unmet_as_played(self) -> bool:
        """Say whether no arm meets the level at the load that was played, which is what decides."""
        return {each.is_missed_as_played for each in self.service_levels} == {True}

    @property
    def decided_by(self) -> DecideBy:
        """Return what arms within the service level are compared by."""
        return self.policy.decider(self.evidence.deployment.peak_agents)

    def speed(self, arm: str, workload: str | None, metric: Metric = "turn_ms") -> Speed | None:
        """Return the comparison of *metric*, or None when there is none or a gate spoils it."""
        if self.spoiled(SPOILED_BY[metric], arm, workload) is not None:
            return None
        return self.measured(arm, workload, metric)

    def measured(self, arm: str, workload: str | None, metric: Metric = "turn_ms") -> Speed | None:
        """Return the comparison of *metric*, whatever
        the gates say, with the interval that decides.
        """
        wanted = (arm, workload, metric)
        found = next(
            (
                each
                for each in self.speeds
                if (each.change.arm, each.change.workload, each.change.metric) == wanted
            ),
            None,
        )
        if found is None:
            return None
        level = 1 - 2 * self.level(arm)
        low, high = map(expm1, found.spread.interval(level))
        relative = replace(found.change.relative, low=low, high=high, level=level)
        overfull = self.evidence.overfull(self.evidence.reference, arm)
        if overfull:
            relative = relative.as_bound(found.mildest)
        change = replace(found.change, relative=relative, overfull=overfull)
        return replace(found, change=change)

    def level(self, arm: str, *, alone: bool = False, look: int | None = None) -> float:
        """Return the one-sided level at which a claim about *arm* is
        tested, and its interval printed; at another *look* than this one.

        It is shared where any of several claims would be enough: over the arms, and over speed
        and capacity where both were measured. Accuracy stands *alone*: "use" needs it besides.
        The mix decides; what is said of classes is secondary, and not adjusted for their number.
        """
        searched = {each.arm for each in self.capacity if each.agents_per_gpu is not None}
        either = 2 if not alone and {arm, self.evidence.reference} <= searched else 1
        alpha, planned = self.policy.alpha, self.policy.planned_looks
        if alone:
            whole = answer_level(self.evidence, self.policy)
        else:
            starts = next(
                (
                    each.in_turn
                    for each in self.speeds
                    if (each.change.arm, each.change.workload) == (arm, None)
                ),
                None,
            )
            whole = (
                planning.planned_level(alpha, starts=starts)
                if planned
                else planning.look_level(look or self.evidence.looks, alpha)
            )
        return whole / rivals(self.evidence) / either

    def spoiled(self, what: Spoiled, arm: str, workload: str | None) -> Gate | None:
        """Return the failed gate that makes *what*
        unusable for *arm* against the reference, if any.

        The whole server is spoiled by what spoils a workload that carries a tenth of it or more.
        """
        binding = self.weighty()
        for gate in self.gates:
            if (
                gate.status != "fail"
                or what not in gate.spoils
                or gate.arm not in (None, arm, self.evidence.reference)
            ):
                continue
            if gate.workload is None or gate.workload == workload:
                return gate
            if workload is None and gate.workload in binding:
                return gate
        return None

    def accuracy_of(self, arm: str, workload: str | None) -> Accuracy | None:
        """Return the pooled accuracy of *arm* for *workload*."""
        return next(
            (each for each in self.accuracy if (each.arm, each.workload) == (arm, workload)), None
        )

    def broken_of(self, arm: str) -> Broken | None:
        """Return where *arm* is broken, at its longest
        lengths first; None: nowhere that was asked.
        """
        return next((each for each in self.broken if each.arm == arm), None)

    def capacity_of(self, arm: str, workload: str | None) -> Capacity | None:
        """Return the agents per GPU of *arm* for *workload*."""
        return next(
            (each for each in self.capacity if (each.arm, each.workload) == (arm, workload)), None
        )

    def carries(self, arm: str, workload: str | None) -> bool:
        """Say whether it is known how many agents *arm* carries
        of *workload*; of the mix, where that is all there is.
        """
        alike = (workload, None) if len(self.evidence.workloads) < 2 else (workload,)
        return any(
            each.arm == arm and each.workload in alike and each.agents_per_gpu is not None
            for each in self.capacity
        )

    def room(self, workload: str | None) -> Room:
        """Return whether the pool can limit *workload*."""
        return next(each for each in self.rooms if each.workload == workload)

    def reach_of(self, arm: str, workload: str | None) -> Reach:
        """Return how far the tests of *arm* cover *workload*."""
        return next(each for each in self.reach if (each.arm, each.workload) == (arm, workload))

    def starts_told(self) -> str:
        """Say what a start is held to add to its latencies, and who says so."""
        history = self.evidence.starts
        spread, source = (
            (self.policy.start_spread, "assumed, not measured")
            if history is None
            else (history.spread, history.source)
        )
        return f"{100 * spread:.1f} % a start ({source})"

    def search(self, *, seconds: float = 0.0) -> Search:
        """Return a search for what one GPU carries within
        the service level, in trials of *seconds* at least.
        """
        return Search(
            limits=self.policy.slo(None), trial_s=float(round(max(seconds, self.trial_seconds())))
        )

    def usd(self, minutes: float) -> float | None:
        """Return what so many minutes of all arms' servers cost; None where no price is known."""
        price = self.evidence.deployment.gpu.usd_per_hour
        gpus = (
            sum(self.evidence.gpus(each.name) for each in self.evidence.arms)
            * self.evidence.deployment.replicas
        )
        return None if price is None else price * gpus * minutes / 60

    def trial_seconds(self) -> float:
        """Return how long each load of a search has to be tried: twice
        what the pool takes to fill, so that it is full for half of it.
        """
        found = (
            self.evidence.telemetry(scope, arm.name)
            for scope in self.scopes()
            for arm in self.evidence.arms
        )
        return max(
            [
                TRIAL_S,
                *(
                    120 * each.fill_minutes
                    for each in found
                    if each is not None and each.fill_minutes is not None
                ),
            ]
        )

    def context_sweep(self) -> Lengths:
        """Return a measurement of latencies against
        context, up to the longest that the servers take.
        """
        window = self.evidence.deployment.max_model_len
        return Lengths(
            lengths=doubled(
                SHORTEST, LONGEST if window is None else max(2 * SHORTEST, window // 1024 * 1024)
            )
        )

    def line(self, arm: str, users: int | None = None) -> ItlLine | None:
        """Return the token latency line of *arm*, at *users* or at the smallest batch."""
        found = sorted(
            (each for each in self.itl if each.arm == arm and users in (None, each.users)),
            key=lambda each: each.users,
        )
        return found[0] if found else None

    def weighty(self) -> tuple[str, ...]:
        """Return the workloads that bind the whole server."""
        return weighty(self.shares)

    def concerns(self, arm: str, workload: str | None, tokens: float | None) -> bool:
        """Say whether *workload* reaches as far as a length that something was seen at."""
        found = self.accuracy_of(arm, workload)
        if tokens is None or found is None:
            return True
        # Classes share one trace: which of them gets as
        # far as it does is known of the only one alone.
        is_whole = workload is None or len(self.evidence.workloads) == 1
        return tokens <= max((found.lengths[-1], *(self.evidence.canary if is_whole else ())))

    def scopes(self) -> Iterator[str | None]:
        """Yield the whole server (None), then each workload class."""
        yield None
        for workload in self.evidence.workloads:
            yield workload.name


def _values(root: object, path: str) -> list[object]:
    values = [root]
    for name in path.split("."):
        values = [getattr(each, name) for each in values]
        values = [
            part
            for each in values
            for part in (each if isinstance(each, tuple) else (each,))
            if part is not None
        ]
    return values


def missing(case: Case, needs: frozenset[str]) -> tuple[str, ...]:
    """Return the inputs of *needs* that *case* lacks; a need
    is a dotted path, met when anything lies at its end.
    """
    return tuple(sorted(path for path in needs if not _values(case, path)))
