"""Hold what is computed from the evidence: comparisons, pooled answers, room and reach.

`Case` joins these values. What a report prints as well is in `verdict`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from advisor.estimate import Estimate
from advisor.policy import Policy
from advisor.statistics.spread import Spread
from advisor.statistics.starts import Draw, Scatter
from advisor.verdict import BucketResult, Change, Leg, Need, QuestionsAsked


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Hold what copies of one configuration differed by, on one server or with one each."""

    spread: Spread  # inside the run
    # between starts; empty where both copies were one server and
    # differ by no more than their places in the order explain
    draws: tuple[Draw, ...]


def surest(controls: Iterable[Control]) -> Spread | None:
    """Return what the control with the least error shows; None where there is none."""
    return min((each.spread for each in controls), key=lambda each: each.se, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedComparison:
    """Hold one comparison of latencies with its sampling distribution.

    The distribution is that of the log ratio, arm over reference.
    """

    change: Change
    spread: Spread
    calls_per_pair: float
    minutes_per_pair: float  # of the whole run: all arms and the control
    scatter: Scatter
    # quartiles of the pairs' relative changes: a quarter
    # of them is below the first, and above the second
    mildest: tuple[float, float]
    starts: int = 1  # pairs of starts that share no server's start
    # how many of `starts` the pairs take turns on; None: no start is returned to
    in_turn: int | None = None
    # the change if a start added twice as much; None: the starts themselves show what they add
    doubted: Estimate | None = None
    controls: tuple[Control, ...] = ()  # of the same figure and scope

    @property
    def arm(self) -> str:
        """Return the arm that is compared with the reference."""
        return self.change.arm

    @property
    def workload(self) -> str | None:
        """Return the class that is compared; None for the mix."""
        return self.change.workload

    @property
    def control(self) -> Spread | None:
        """Return the noise floor: the spread of the surest A/A control."""
        return surest(self.controls)


@dataclass(frozen=True, slots=True, kw_only=True)
class PooledAccuracy:
    """Hold the pooled paired accuracy of one arm over the buckets that count for a workload.

    All buckets count where the workload is None.
    """

    arm: str
    workload: str | None
    estimate: Estimate  # arm minus reference, share of right answers; n counts independent ones
    p_not_worse: float
    p_worse: float
    worst: BucketResult
    # where all of the loss lies beyond a length: the answers up to there
    good_to: BucketResult | None
    worst_p: float  # that some bucket loses more than the margin, after Holm over the buckets
    discordance: float
    lengths: tuple[float, ...]  # contexts of the buckets that count, the shortest first
    answers: QuestionsAsked  # what the difference is of
    asked_to: float  # longest context with answers, whether or not the workload needs it


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenAnswers:
    """Say where one arm's answers are wrong altogether: no calibrated scales would fix them."""

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
    """Hold a criterion with the p-values of the claims for and against the arm."""

    leg: Leg
    p_for: float | None = None
    p_against: float | None = None
    if_unclear: tuple[Need, ...] = ()  # what settles it, should it be open

    def is_shown(self, level: float) -> bool:
        """Say whether the claim for the arm is shown at a one-sided *level*."""
        return self.p_for is not None and self.p_for <= level


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
    """Say which share of the user's load has longer contexts than `to`."""

    to: float
    calls: float  # share
    tokens: float  # share

    def bound(self, policy: Policy) -> float | None:
        """Return `to` where the share beyond it is too large to stay untested, else None."""
        is_much = self.calls > policy.max_untested_share or self.tokens > policy.max_untested_tokens
        return self.to if is_much else None


@dataclass(frozen=True, slots=True, kw_only=True)
class TestedReach:
    """Say how much of the user's load lies outside what was tested on an arm."""

    arm: str
    workload: str | None
    usual: tuple[float, float] | None  # contexts between which the user's calls usually lie
    longest: float | None  # the user's longest context
    asked: Beyond | None = None  # the longest context at which answers were compared
    # the longest at which latencies were timed; None: what could have been played is not known
    timed: Beyond | None = None

    @property
    def beyond_share(self) -> float | None:
        """Return the share of calls longer than any context at which answers were compared."""
        if self.asked is None:
            return None
        return self.asked.calls
