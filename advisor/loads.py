"""Hold the loads that servers were tried under: of capacity searches, block pairs and twins.

A twin is a model of an arm's server, which plays more and longer than the run has time for.
"""

from dataclasses import dataclass
from typing import Final

from advisor.estimate import Estimate
from advisor.policy import ServiceLimits

FACTORS: Final = (0.8, 0.9, 1.0, 1.1, 1.25)
"""Factors on the step times of a twin that plays the sessions of a trial again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinReplay:
    """State how an arm's twin did when it played the sessions of one trial again.

    The twin also says which load it carries in a run of hours.
    """

    expected: tuple[float, ...]
    """Share of the turns within the service level, where its step times are as long as each of
    `FACTORS` says.
    """
    carried: float
    """Load that the twin carries in a run of hours."""
    stretch: float | None = None
    """Elasticity: by how much the log of the load that the twin carries changes where the log of
    its step times rises by one. Negative, because slower steps carry less; None: not computed.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoint:
    """Hold one step of a capacity search: this many agents on one replica for this long."""

    arm: str
    workload: str | None = None  # None: the user's mix
    agents: int
    turns: int
    within_slo: int
    minutes: float
    # of the server, which then carries nothing, whatever its turns say: it died, preempted, queued
    trouble: str | None = None
    pool_filled: bool | None = None  # None: not watched
    preemptions: float | None = None
    hit_rate: float | None = None
    ideal_hit_rate: float | None = None  # of a cache that loses nothing of a session
    output_tokens_per_s: float | None = None
    # ordinary agents that one agent of this step's draw is worth, where a twin has played both
    worth: float | None = None
    # half width of the interval of `worth`, on the log scale; the steps of an arm share the error
    error: float = 0.0
    replay: TwinReplay | None = None  # None: no twin has played its sessions again
    slo: ServiceLimits | None = None  # service level that its turns had to meet; None: not known
    # quantiles of its latencies, at the share of turns that has to meet the level
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    turn_ms: float | None = None


POOL_HOLDS: Final = 0.9
"""Share of a KV pool up to which contexts alive at once stay in it: answers take the rest."""
OFTEN: Final = 0.05
"""Share of the time that a pool which holds the contexts may be full nevertheless: one window in
twenty holds more than `PairLoad.held_tokens`.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PairLoad:
    """Say under which load block pairs were played, where each pair is a window of a long day."""

    # sessions at once; None: sessions begin at a rate, or as the trace says
    sessions: int | None = None
    rate_per_s: float | None = None
    speed: float = 1.0  # of the trace's own starts
    # longest that users take to answer; None: as long as in the trace
    user_wait_s: float | None = None
    user_wait_scale: float = 1.0
    # waits are shorter than those of the user's own load, which trials of capacity have
    cuts_waits: bool = False
    held_tokens: float | None = None  # contexts alive at once, in nineteen of twenty windows
    # sessions that are at work as often in a run of hours, where long waits are cut in windows
    sessions_of_hours: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinChange:
    """Hold the change of turn latency in long runs of both arms' twins.

    No pair was played under their load.
    """

    arm: str
    agents: int  # on one replica
    is_own: bool  # the user's peak, with the waits that users have; False: the load of the pairs
    relative: Estimate
