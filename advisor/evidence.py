"""What the measurement side hands over: facts about the servers and columns of observations, without judgement.

Absent is None (a whole column, a whole figure) or NaN (one row of a float column), never 0. Times are milliseconds unless the name says
otherwise, shares and rates lie in 0..1, lengths are tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from advisor.columns import Bools, Calls, Floats, Ints, Sweep
from advisor.facts import Arm, Deployment, Gpu, Model, Prior, Probe, Scales, WorkloadClass

__all__ = [
    "AaControl",
    "AccuracyBucket",
    "Arm",
    "Bools",
    "Calls",
    "CapacityPoint",
    "ClientHealth",
    "Deployment",
    "Evidence",
    "Floats",
    "Gpu",
    "Ints",
    "Kind",
    "Model",
    "Observation",
    "Phase",
    "Prior",
    "Probe",
    "Scales",
    "Sweep",
    "Telemetry",
    "WorkloadClass",
]

Kind = Literal["measured", "emulated", "simulated"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Hold what a request took in one phase by the server's own clock."""

    name: str  # queue, prefill, decode, first-token, token, answer
    mean_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Hold figures taken from the server's own samples, for one workload on one arm (workload None: whole server)."""

    peak_kv_usage: float | None = None
    pool_filled_share: float | None = None  # share of the time with the pool full (usage >= 0.95 or evictions running)
    preemptions: float | None = None  # counted over the observation
    minutes: float | None = None  # length of the observation
    hit_rate: float | None = None  # cached prompt tokens / prompt tokens, measured
    ideal_hit_rate: float | None = None  # the same with an unbounded cache and the same bytes
    impossible_hits: float | None = None  # cached tokens where the salt rules any hit out
    running_max: float | None = None
    waiting_max: float | None = None
    fill_minutes: float | None = None  # time this load needs to fill the pool, when the plan could tell
    external_hit_rate: float | None = None  # of what was asked of a cache outside the server (KV offload, other servers)
    rejections: float | None = None  # requests that the server declined because its queue was full
    phases: tuple[Phase, ...] = ()
    acceptance_rate: float | None = None  # speculative decoding
    watts: float | None = None  # mean draw of the replica's GPUs
    throttled_share: float | None = None  # of the time, of the GPU that was slowed most: by heat, or by a brake of the hardware
    power_capped_share: float | None = None  # of the time, at the limit of its power: slower than its clocks, as its maker means it to be
    sent_tokens: float | None = None  # prompts and answers of all that was sent to the server, whether or not it is evidence


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Join what was observed for one workload on one arm."""

    workload: str
    arm: str
    calls: Calls | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityPoint:
    """Hold one step of a capacity search: this many agents on one replica for this long."""

    arm: str
    workload: str | None = None  # None: the user's mix
    agents: int
    turns: int
    within_slo: int
    minutes: float
    trouble: str | None = None  # of the server, whatever its turns say: it died, preempted, queued
    pool_filled: bool | None = None  # None: not watched
    preemptions: float | None = None
    hit_rate: float | None = None
    output_tokens_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyBucket:
    """Hold the paired answers of one task at one length: the same items and seeds on the reference and on the arm.

    `both`, `reference_only`, `arm_only`, `neither` count right answers (a, b, c, d of a paired 2x2 table).
    """

    arm: str
    task: str
    context_tokens: float
    both: int
    reference_only: int
    arm_only: int
    neither: int
    reference_scores: Floats | None = None  # graded scores in 0..1, paired row by row
    arm_scores: Floats | None = None
    clusters: Ints | None = None  # rows with the same number share a context
    workload: str | None = None  # None: the task stands for all
    garbage: int | None = None  # answers of the arm that trip the guards (repetition, non-printing, cut short)
    reference_garbage: int | None = None

    @property
    def items(self) -> int:
        """Count the paired items."""
        return self.both + self.reference_only + self.arm_only + self.neither

    @property
    def reference_right(self) -> float | None:
        """Return the share that the reference gets right (its mean score where answers are graded); None without answers."""
        if self.reference_scores is not None and self.reference_scores.size:
            return float(self.reference_scores.mean())
        return (self.both + self.reference_only) / self.items if self.items else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """Say how well our own side kept up, for one arm (None: the whole run)."""

    arm: str | None = None
    send_lag_p99_ms: float | None = None
    loop_stall_max_ms: float | None = None
    coalesced_share: float | None = None  # reads that held more than one chunk under one stamp
    stamp_source: Literal["kernel", "user"] | None = None
    void_blocks: int | None = None
    blocks: int | None = None
    foreign_requests: int | None = None  # requests on the server that were not ours
    limited_share: float | None = None  # of the attempts, answered 429


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AaControl:
    """Hold a control run in which both sides were the same configuration."""

    workload: str
    first: Calls
    second: Calls
    across_machines: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Hold all that is known about one model on one set of servers; the advisor reads nothing else."""

    run: str
    kind: Kind
    model: Model
    deployment: Deployment
    reference: str  # name of the arm that is in use today
    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadClass, ...]
    observations: tuple[Observation, ...] = ()
    server: tuple[tuple[str, Telemetry], ...] = ()  # (arm, figures of the whole server)
    sweeps: tuple[Sweep, ...] = ()
    capacity: tuple[CapacityPoint, ...] = ()
    accuracy: tuple[AccuracyBucket, ...] = ()
    health: tuple[ClientHealth, ...] = ()
    aa: tuple[AaControl, ...] = ()
    aa_accuracy: tuple[AccuracyBucket, ...] = ()  # answers of an arm against its own, asked twice
    priors: tuple[Prior, ...] = ()
    probes: tuple[Probe, ...] = ()
    dated: str | None = None  # ISO date of the run, for the known-issue table
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        assert len(set(names)) == len(names), f"arm names repeat: {names}"
        assert self.reference in names, f"{self.reference!r} is no arm of {names}"

    def arm(self, name: str) -> Arm:
        """Return the arm called *name*."""
        return next(arm for arm in self.arms if arm.name == name)

    def gpus(self, arm: str) -> int:
        """Return the GPUs of one replica of *arm*: a split server has more of them."""
        return self.arm(arm).gpus or self.deployment.gpus_per_replica

    @property
    def challengers(self) -> tuple[Arm, ...]:
        """Return the arms that are up for a verdict: all but the reference."""
        return tuple(arm for arm in self.arms if arm.name != self.reference)

    def calls(self, workload: str, arm: str) -> Calls | None:
        """Return the calls of *workload* on *arm*, or None when there are none."""
        found = (each.calls for each in self.observations if each.workload == workload and each.arm == arm)
        calls = next(found, None)
        return calls if calls is not None and len(calls) else None

    def telemetry(self, workload: str | None, arm: str) -> Telemetry | None:
        """Return the server's figures for *workload* on *arm*; with None, those of the whole server."""
        if workload is None:
            return next((figures for name, figures in self.server if name == arm), None)
        return next((each.telemetry for each in self.observations if each.workload == workload and each.arm == arm), None)
