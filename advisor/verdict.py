"""Define what the advisor returns: gates, findings and verdicts.

All are plain frozen values that `dataclasses.asdict` turns into JSON.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

from advisor.estimate import Estimate
from advisor.evidence import Kind
from advisor.loads import PairLoad, TwinChange
from advisor.policy import Compared
from advisor.steps import Step

Word = Literal["use", "avoid", "calibrate", "test further", "no difference"]
Weight = Literal["supports", "opposes", "blocks", "informs"]
Spoiled = Literal[
    "ttft", "itl", "turn", "hits", "accuracy", "capacity", "prefill sweep", "decode sweep"
]
TIMES: Final[tuple[Spoiled, ...]] = (
    "ttft",
    "itl",
    "turn",
    "capacity",
)  # what a server's pace shows in
Quantity = Literal["context_tokens", "new_tokens", "output_tokens", "wait_s", "hit_rate"]
LegState = Literal["yes", "no", "equal", "unclear", "untested"]
"""yes: shown to pay (or to be safe); no: shown not to; equal: shown
to differ by less than the margin; unclear: looked at, not settled.
"""


def weight(change: Estimate) -> Weight:
    """Return whether a change of latency supports an arm, opposes it, or only informs."""
    if change.is_above(0.0):
        return "opposes"
    return "supports" if change.is_below(0.0) else "informs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inequality:
    """Keep the comparison that decided, in parts, so that a report can set it in its own way."""

    left: str  # "turn time on code, FP8 / BF16"
    observed: Estimate | None
    relation: Literal["<", "<=", ">", ">=", "inside", "outside"]
    right: str  # "-2% (smallest effect that pays)"
    holds: bool | None  # None: the interval does not settle it


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Say what the missing evidence costs."""

    what: str  # "paired calls of multimodal on fp8-skip-sw"
    calls: int | None = None
    pairs: int | None = None  # block pairs or accuracy pairs
    minutes: float | None = None
    usd: float | None = None  # for the GPUs of all arms, where a price is known
    step: Step | None = None  # what brings it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """State what one rule concluded, in sentences that an expert would sign."""

    rule: str = ""  # the file's name, filled in when the rule is run
    kind: Weight
    arm: str | None = None  # None: all arms
    workload: str | None = None  # None: the whole server
    # seen at this length: it concerns workloads that reach as far
    context_tokens: float | None = None
    message: str
    estimates: tuple[Estimate, ...] = ()
    inequality: Inequality | None = None
    flips: str | None = None  # what would turn it round
    remedy: str | None = None  # what would mend it, as an order: "upgrade vLLM to 0.19.1"
    next_step: Step | None = None
    source: str | None = None  # public source of the rule or its threshold
    leg: Literal["pays", "safe", "capacity", "validity"] | None = None
    asks_for: Word | None = None  # a verdict that this finding alone is enough for
    prior: bool = False  # rests on published figures, not on this run
    screening: bool = False  # unadjusted; a reason to look closer, not a proof
    need: Need | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """Name a rule that lacked data, and which."""

    rule: str
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Say whether a measurement is physically possible and was taken by a healthy client."""

    name: str
    status: Literal["pass", "fail", "not observed"] = "not observed"
    arm: str | None = None
    workload: str | None = None
    message: str
    observed: float | None = None
    limit: float | None = None
    unit: str = ""
    spoils: tuple[Spoiled, ...] = ()  # evidence that a failure makes unusable

    def judged(self, *, good: bool, but: str = "") -> "Gate":
        """Return the gate as passed, spoiling nothing, or as failed, *but* in its message."""
        if good:
            return replace(self, status="pass", spoils=())
        return replace(self, status="fail", message=f"{self.message}{but}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionsAsked:
    """Describe the questions whose answers a difference of accuracy compares."""

    questions: int
    lengths: tuple[float, ...]  # their contexts, the shortest first
    reference: float  # share that the reference answers right, weighted as the difference is


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    """Answer one of the questions that a verdict stands
    on: whether the arm pays, and whether it is safe.
    """

    name: Literal["pays", "safe", "capacity"]
    state: LegState
    estimate: Estimate | None = None  # a relative change, or for accuracy a difference of shares
    margin: float | None = None
    p: float | None = None  # one-sided, of the claim that the state makes
    reason: str
    needs: tuple[Need, ...] = ()
    answers: QuestionsAsked | None = None  # of a difference of accuracy


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmVerdict:
    """Decide about one arm, for one workload class or (workload None) for the whole server."""

    arm: str
    workload: str | None
    verdict: Word
    canary: bool = False  # use, but behind a canary first: something is capped
    pays: Leg
    safe: Leg
    capacity: Leg | None = None
    reason: str
    remedy: str | None = None  # what would make it worth testing again, as an order
    inequality: Inequality | None = None
    flips: tuple[str, ...] = ()
    needs: tuple[Need, ...] = ()
    # share of the user's calls whose context lies beyond what was tested
    untested_share: float | None = None
    # context up to which the verdict holds: too much
    # of the load lies beyond it, untested; None: all
    holds_to: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """Place one measured figure: a row of the evidence table."""

    # ttft_ms.p95, tpot_ms.p50, turn_ms.p50, output_tokens_per_s,
    # goodput, hit_rate, cost_per_mtok_usd, …
    name: str
    arm: str
    workload: str | None
    estimate: Estimate
    kind: Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Compare one figure of an arm with the reference, pair by pair."""

    metric: Compared
    arm: str
    workload: str | None
    relative: Estimate  # arm / reference - 1
    pairs: int
    calls: int
    floor: float | None = None  # A/A noise floor of the same figure, half width
    # arms whose KV pool does not hold the contexts of the pairs: what is sure is then a bound
    overfull: tuple[str, ...] = ()
    # relative change of each block pair, in the order of `pair_ids`
    by_pair: tuple[float, ...] = ()
    pair_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFigures:
    """Hold what the tasks of one arm take and cost; None is not known."""

    arm: str
    workload: str | None
    # nearly all were played from end to end; False: latency is estimated from their turns
    are_whole: bool
    tasks: int  # played from end to end
    done: int  # of these, with every turn ended cleanly
    tool_s: float  # waits for tools of a task, by the trace, on average
    latency_ms: Estimate | None = None  # mean sum of a task's turns, waits left out
    unknown: str = ""  # why there is no latency
    p95_ms: Estimate | None = None  # of whole tasks of a single class
    per_user_hour: Estimate | None = None  # tasks of a user who never waits, tools included
    per_gpu_hour: Estimate | None = None  # of the whole server
    usd: Estimate | None = None  # of a task
    success: Estimate | None = None  # share of the tasks done whose checks all passed
    usd_successful: Estimate | None = None  # of a task whose checks all passed
    ungraded: str = ""  # why there is no success
    change: Change | None = None  # of the latency against the reference, pair by pair


@dataclass(frozen=True, slots=True, kw_only=True)
class HitCliff:
    """Say from how many sessions at once an arm's cache loses what it could hit."""

    arm: str
    workload: str | None
    agents: float  # the fewest that were tried from which on it does
    hit_rate: float  # with so many
    ideal_hit_rate: float  # of a cache that loses nothing of a session
    kept_at: float  # the most that were tried below, where it loses nothing yet


@dataclass(frozen=True, slots=True, kw_only=True)
class ItlLine:
    """Hold the token latency of one arm as a line over KV tokens of the batch, fitted two ways."""

    arm: str
    users: int
    slope_ms_per_token: Estimate
    intercept_ms: Estimate
    theil_sen_slope: Estimate
    lack_of_fit_p: float | None
    straight: bool  # both fits agree and lack of fit is not significant
    bandwidth_tb_s: Estimate | None = None
    range_tokens: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TtftCurve:
    """Hold the time to first token of one arm as a x^2
    + b x + c over computed tokens, coefficients >= 0.
    """

    arm: str
    a: Estimate
    b: Estimate
    c: Estimate
    range_tokens: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Hold the set of KV tokens where the arm and the
    reference cannot be told apart: a Fieller set.

    bounded: [low, high]; half-line: one end is None; always: ahead
    at every length; none: ahead nowhere; unclear: neither is shown.
    """

    arm: str
    shape: Literal["bounded", "half-line", "none", "always", "unclear"]
    tokens: float | None  # point estimate, KV tokens of the whole batch
    low: float | None
    high: float | None
    slope_z: float  # slope difference over its standard error
    users: float  # the batch for which own_tokens is stated
    own_tokens: float | None = None  # the same in tokens of one request of the user's own batch
    own_low: float | None = None
    own_high: float | None = None
    prior_tokens: float | None = None  # published figure, for comparison only
    # the side of the break-even on which the arm is ahead
    ahead: Literal["above", "below"] = "above"
    # block pairs behind it; below three the residuals had to stand in for them
    pairs: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """Hold the paired accuracy of one task at one length."""

    arm: str
    task: str
    context_tokens: float
    difference: Estimate  # arm minus reference, share of right answers (or mean graded score)
    reference: float
    changed_p: float | None  # exact McNemar


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """Say how many agents one GPU carries within
    the SLO, and what that means at the user's peak.
    """

    arm: str
    workload: str | None
    agents_per_gpu: Estimate | None  # None: the pool never filled, nothing can be said
    replicas_at_peak: int | None
    # at the value and both ends of the agents, spare ones included
    gpus_at_peak: Estimate | None = None
    next_replica_at_agents: int | None  # the load at which one more is due
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLevel:
    """Say whether an arm meets the service level at all."""

    arm: str
    limits: str  # ttft=2s,tpot=40ms
    state: LegState  # yes: a single session is within it; no: not even that
    # a limit is surely broken at the load of the pairs, and latency decides
    is_missed_as_played: bool
    reason: str  # the limit that is missed by most; empty where nobody knows
    agents_per_gpu: Estimate | None  # up to which it is met, as far as that was measured

    @property
    def is_missed(self) -> bool:
        """Say whether the level is surely missed: at all, or at the load that decides."""
        return self.state == "no" or self.is_missed_as_played


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Compare one quantity of the calls that were played with the
    same of the user's trace: q10, q50, q90, q99 and the largest.
    """

    quantity: Quantity
    trace: tuple[float, ...]  # empty: not known, as are those of `played`
    played: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Say which part of the user's trace a run played, for
    one workload class or (workload None) for all of it.
    """

    workload: str | None
    calls: int  # of the trace
    played: int  # calls of the reference that count
    call_share: float  # of the trace's calls, those whose context is no longer than what was timed
    token_share: float  # the same of their tokens
    timed_to: float | None  # longest context that was timed in enough block pairs
    longest: float  # context of the trace
    is_whole: bool  # False: the trace was too long to be read to its end
    quantiles: tuple[Quantiles, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Name the arm to run, and the runner-up with the reason it lost."""

    arm: str
    verdict: Word
    canary: bool
    headline: str
    runner_up: str | None
    why_it_lost: str | None
    split_pools: str  # one flag for all, or split? with its figure
    # context up to which the choice holds; None: for all of the user's calls
    holds_to: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Hold everything a report prints; nothing in it is computed later."""

    run: str
    kind: Kind
    model: str
    gpu: str
    version: str | None
    reference: str
    choice: Choice
    server: tuple[ArmVerdict, ...]
    classes: tuple[ArmVerdict, ...]
    gates: tuple[Gate, ...]
    findings: tuple[Finding, ...]
    skipped: tuple[Skipped, ...]
    figures: tuple[Figure, ...]
    changes: tuple[Change, ...]
    tasks: tuple[TaskFigures, ...] = ()
    hit_cliffs: tuple[HitCliff, ...] = ()
    # under which the changes were measured; None: pairs are whole sessions
    pair_load: PairLoad | None = None
    twin_changes: tuple[TwinChange, ...] = ()  # under other loads
    itl: tuple[ItlLine, ...]
    ttft: tuple[TtftCurve, ...]
    break_even: tuple[BreakEven, ...]
    accuracy: tuple[BucketResult, ...]
    capacity: tuple[Capacity, ...]
    service_levels: tuple[ServiceLevel, ...] = ()  # of each arm; none where no level was stated
    coverage: tuple[Coverage, ...] = ()
    needs: tuple[Need, ...]
    caveats: tuple[str, ...]
    flips: tuple[str, ...]

    def listed(self, word: Word) -> tuple[ArmVerdict, ...]:
        """Return the class verdicts that say *word*, for the four lists of a report."""
        return tuple(each for each in self.classes if each.verdict == word)

    def waits_for_mix(self, verdict: ArmVerdict) -> bool:
        """Say whether a verdict is on a class of an arm whose whole server is open.

        What settles the server is asked for then, and nothing for the class alone.
        """
        whole = (each for each in self.server if each.arm == verdict.arm)
        is_open = any(each.verdict == "test further" for each in whole)
        return verdict.workload is not None and is_open
