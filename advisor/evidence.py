"""Hold what was measured: facts about servers and columns of observations, not judged.

Absent is None (a whole column, a whole figure) or NaN (one row of a float column), never 0. Times
are milliseconds unless the name says otherwise, shares and rates lie in 0..1, lengths are tokens.
"""

from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np
import numpy.typing as npt

from advisor.deployment import Deployment, Model
from advisor.loads import OFTEN, POOL_HOLDS, CapacityPoint, PairLoad, TwinChange

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Kind = Literal["measured", "emulated", "simulated"]
Scales = Literal["calibrated", "default", "dynamic"]
"""Where an FP8 cache takes its scales from: the checkpoint,
the constant 1.0, or per token and head at run time.
"""


def _assert_as_long(columns: "Calls | ContextSweep", wanted: Ints) -> None:
    """Assert that all columns are as long as the one that is *wanted*."""
    for each in fields(columns):
        column = getattr(columns, each.name)
        if isinstance(column, np.ndarray):
            assert column.shape == wanted.shape, each.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Describe one server configuration under comparison."""

    name: str
    expected_dtype: str | None = None  # what the arms file says: auto, bfloat16, fp8_e4m3, …
    observed_dtype: str | None = None  # what the server says, bfloat16 rather than auto
    # attention backend read from the server: FLASH_ATTN(FA3), FLASHINFER, …
    kernel: str | None = None
    skip_layers: tuple[str, ...] = ()  # --kv-cache-dtype-skip-layers
    scales: Scales | None = None  # None for an unquantised cache or when unknown
    prefix_caching: bool | None = None
    # the other words of the command line that started it, as far as known
    flags: tuple[str, ...] = ()
    all_flags: bool = False  # read from its log or launch: what is not in `flags` was not set
    # model path that it was started with, where it serves the model under another name
    weights: str | None = None
    # bytes read per cached token and step, growing layers only, over all GPUs of the replica
    kv_bytes_per_token: float | None = None
    page_bytes: float | None = None  # bytes of one page over all layers of one rank
    pool_tokens: float | None = None  # KV pool as the server reports it
    expected_pool_tokens: float | None = None  # KV pool as the page formula gives it
    max_concurrency: float | None = None  # as the server reports it
    max_model_len: int | None = None  # longest context that it takes, answer included
    machine: str | None = None  # None when the arm moved between machines
    # what a short request took alone on the server, once for each start of this run
    checks_ms: tuple[float, ...] = ()
    # the same, for starts in other runs with this model, version and cache
    past_checks_ms: tuple[float, ...] = ()
    compile_cache: tuple[str, ...] = ()  # hit or missed, of each start that said so
    gpus: int | None = None  # of one replica; None: as many as the deployment's
    # its server reports the same as the reference's: a control, whatever its name
    twin: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClass:
    """Describe one class of the user's mix and what its own traffic looks like."""

    name: str
    # share of the time in which the reference's server was busy,
    # split equally among the calls that were open; None: not seen
    gpu_time_share: float | None = None
    # contexts of the user's own calls, for the share that lies outside the tested range
    context_tokens: Floats | None = None
    batch: float | None = None  # sequences that decode together under this user's load
    # KV tokens of all sessions alive at the user's peak on one replica, shared prefixes once
    working_set_tokens: float | None = None

    def __post_init__(self) -> None:
        assert self.gpu_time_share is None or 0 <= self.gpu_time_share <= 1, self.gpu_time_share


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class OwnCalls:
    """Hold columns of the calls of one class of the user's own trace, played or not.

    A column holds evenly spaced quantiles, or all values where there are few.
    """

    workload: str
    calls: int
    context_tokens: Floats  # prompt and answer
    new_tokens: Floats  # of the prompt, beyond what a cache without bounds holds
    output_tokens: Floats
    wait_s: Floats  # of calls that follow another one in their session
    hit_rate: Floats  # of a cache without bounds
    is_whole: bool = True  # False: the trace was too long to be read to its end
    tasks: int = 0  # sessions that no other one spawned; 0: not known
    task_turns: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    tool_s: float = 0.0  # waits for tools of a task, on average
    checked: int = 0  # tasks of which some answer is checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Carry one published or fitted figure that was not measured in this run.

    A report shows it next to measured figures, and nothing pools it with them.
    """

    # itl_slope_ms_per_token, itl_intercept_ms, break_even_tokens, decode_ratio_b1, prefill_ratio, …
    what: str
    arm: str  # name of the arm it speaks about
    value: float
    low: float | None = None
    high: float | None = None
    unit: str
    gpu: str | None = None
    version: str | None = None
    source: str
    dated: str | None = None  # ISO date


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calls:
    """Hold the turns of one workload on one arm in columns of equal length: one row a turn.

    A row is the turn's last attempt. The drain tail is included: its latencies are paired like
    any other's, and only throughput leaves it out. Invalid blocks are left out. (pair, session,
    turn) names the same bytes on every arm. A float is NaN where a row lacks it.
    """

    # which start of this arm's server: what it adds is drawn once for all of its pairs
    restart: Ints
    pair: Ints  # block pair; the same number on two arms is the two halves of one pair
    block: Ints  # position of the block in time, over all arms
    session: Ints  # of the trace: the same number in two pairs is the same session, played again
    turn: Ints
    start_s: Floats  # release, seconds after the run's start
    ok: Bools  # ended cleanly; False also for a turn that was never sent
    ttft_ms: Floats
    tpot_ms: Floats  # mean token latency of the call, without the first token
    turn_ms: Floats  # from due (open loop) or released (closed loop) to the last byte
    prompt_tokens: Floats
    output_tokens: Floats
    computed_tokens: Floats | None = None  # prompt minus cached
    asked_tokens: Floats | None = None  # output tokens that the trace asked for
    # mean KV tokens of the whole batch while this call decoded
    batch_kv_tokens: Floats | None = None
    machine: Ints | None = None  # index into Deployment.machines
    # from the end of the session's turn before to this one's start; NaN for a first turn
    wait_s: Floats | None = None
    # released when the block's load had started to drain; None: not known
    tail: Bools | None = None
    # turns that the session has after this one; NaN where another session spawned it
    turns_left: Floats | None = None
    # sent, and ended in an error that is no refusal of the request; None: not known
    lost: Bools | None = None
    right: Floats | None = None  # 1: the answer passed its checks, 0: not; NaN: none to pass

    def __post_init__(self) -> None:
        _assert_as_long(self, self.pair)

    def __len__(self) -> int:
        return int(self.pair.size)

    @property
    def end_s(self) -> Floats:
        """Seconds from the run's start to each turn's end; to its start where it never ended."""
        return self.start_s + np.nan_to_num(self.turn_ms) / 1e3

    def lasting(self, metric: str) -> Floats:
        """Return the column *metric*, infinite where a turn failed: longer than any other."""
        return np.where(self.ok, getattr(self, metric), np.inf)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContextSweep:
    """Hold a context sweep on one arm: one row a call.

    All arms of a run have the same (pair, context, users) cells.
    """

    arm: str
    pair: Ints
    users: Ints  # calls that decode together
    # the call's own mean KV tokens while decoding (prompt + half the output)
    context_tokens: Floats
    itl_ms: Floats  # mean token latency of the call
    ttft_ms: Floats | None = None
    prompt_tokens: Floats | None = None
    computed_tokens: Floats | None = None

    def __post_init__(self) -> None:
        _assert_as_long(self, self.pair)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Hold how long requests took in one phase, by the server's own clock."""

    name: str  # queue, prefill, decode, first-token, token, answer
    mean_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Telemetry:
    """Hold figures from a server's own samples, for one workload or all of them on one arm."""

    peak_kv_usage: float | None = None
    # share of the time with the pool full (usage >= 0.95 or evictions running)
    pool_filled_share: float | None = None
    preemptions: float | None = None  # counted over the observation
    minutes: float | None = None  # length of the observation
    hit_rate: float | None = None  # cached prompt tokens / prompt tokens, measured
    ideal_hit_rate: float | None = None  # the same with an unbounded cache and the same bytes
    impossible_hits: float | None = None  # cached tokens where the salt rules any hit out
    running_max: float | None = None
    waiting_max: float | None = None
    # time this load needs to fill the pool, where the plan knew it
    fill_minutes: float | None = None
    # hits among what was looked up in a cache outside the server (KV offload, other servers)
    external_hit_rate: float | None = None
    rejections: float | None = None  # requests that the server declined because its queue was full
    phases: tuple[Phase, ...] = ()
    acceptance_rate: float | None = None  # speculative decoding
    watts: float | None = None  # mean draw of the replica's GPUs
    # share of the time that the GPU slowed most was throttled: by heat, or by a hardware brake
    throttled_share: float | None = None
    # share of the time at its power limit: slower than its clocks, as its maker intends
    power_capped_share: float | None = None
    clock_mhz: float | None = None  # of the slowest GPU, median under load
    # prompts and answers of all that was sent to the server, whether or not it is evidence
    sent_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """Join what was observed for one workload on one arm."""

    workload: str
    arm: str
    calls: Calls | None = None
    telemetry: Telemetry | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AccuracyBucket:
    """Hold the paired answers of one task at one length: same items and seeds on both arms.

    `both`, `reference_only`, `arm_only`, `neither` count
    right answers (a, b, c, d of a paired 2x2 table).
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
    depths: Floats | None = None  # how deep in its context each row's answer stands, 0..1
    workload: str | None = None  # None: the task represents all workloads
    # answers of the arm that trip the guards (repetition, non-printing, cut short)
    garbage: int | None = None
    reference_garbage: int | None = None

    @property
    def items(self) -> int:
        """Count the paired items."""
        return self.both + self.reference_only + self.arm_only + self.neither

    @property
    def reference_right(self) -> float | None:
        """Return the share that the reference gets right; None without answers.

        Where answers are graded, this is its mean score.
        """
        if self.reference_scores is not None and self.reference_scores.size:
            return float(self.reference_scores.mean())
        if not self.items:
            return None
        return (self.both + self.reference_only) / self.items


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened:
    """Hold how far an arm's log probabilities are from the reference's on one prompt.

    The prompt is taken at one length.
    """

    arm: str
    prompt: int
    length: float  # tokens
    # mean total variation of the next token; all tokens that are not listed count as one
    variation: float
    # the reference's from itself on this prompt: behind another salt, in another batch, or both
    own: tuple[float, ...]
    agreement: float  # share of the places with the same likeliest token
    cached: float | None = None  # share of the prompt that was read from the arm's cache


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientHealth:
    """Say how well the load generator kept up, for one arm (None: the whole run)."""

    arm: str | None = None
    send_lag_p99_ms: float | None = None
    loop_stall_max_ms: float | None = None
    coalesced_share: float | None = None  # of chunks, those read together with the one before
    # how often the wall clock was stepped, which the kernel takes its stamps from
    clock_steps: float | None = None
    dropped_share: float | None = None  # of reads, those that the kernel gave no stamp
    stamp_source: Literal["kernel", "user"] | None = None
    read_path: Literal["thread", "interpreter"] | None = None  # who took the bytes off the sockets
    void_blocks: int | None = None
    blocks: int | None = None
    limited_share: float | None = None  # of the attempts, answered 429


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AaControl:
    """Hold a control run in which both sides were the same configuration."""

    workload: str
    first: Calls
    second: Calls
    across_machines: bool = False
    across_starts: bool = False  # each side had a server of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHistory:
    """Say what a start of a server adds to its latencies, as other sources than this run say."""

    spread: float  # standard deviation of one arm's log latency from start to start
    source: str  # "24 starts in 6 runs of this database"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Evidence:
    """Hold all that is known of one model on one set of servers; the advisor reads only this."""

    run: str
    kind: Kind
    model: Model
    deployment: Deployment
    reference: str  # name of the arm that is in use today
    arms: tuple[Arm, ...]
    workloads: tuple[WorkloadClass, ...]
    # by class; empty where the run does not say what it could have played
    trace: tuple[OwnCalls, ...] = ()
    observations: tuple[Observation, ...] = ()
    server: tuple[tuple[str, Telemetry], ...] = ()  # (arm, figures of the whole server)
    sweeps: tuple[ContextSweep, ...] = ()
    capacity: tuple[CapacityPoint, ...] = ()
    alone: tuple[CapacityPoint, ...] = ()  # trials of a single session: is the level met at all?
    pair_load: PairLoad | None = None  # None: pairs are whole sessions, or there are none
    twin_changes: tuple[TwinChange, ...] = ()
    accuracy: tuple[AccuracyBucket, ...] = ()
    health: tuple[ClientHealth, ...] = ()
    aa: tuple[AaControl, ...] = ()
    aa_accuracy: tuple[AccuracyBucket, ...] = ()  # answers of an arm against its own, asked twice
    # lengths that the user's trace has, at which a few questions were asked beforehand
    canary: tuple[float, ...] = ()
    # replies graded by the recorded ones: agreement with them, not whether they are right
    followed: tuple[AccuracyBucket, ...] = ()
    screen: tuple[Screened, ...] = ()
    priors: tuple[Prior, ...] = ()
    starts: StartHistory | None = None  # None: the policy's assumption holds
    # how often the run has reached the length that was asked for, this time included
    looks: int = 1
    # the looks at answers were planned beforehand, and share the error
    planned_answers: bool = False
    # arms whose answers end where the model ends them: only these can be right
    free_lengths: tuple[str, ...] = ()
    dated: str | None = None  # ISO date of the run, for the known-issue table
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        assert len(set(names)) == len(names), f"arm names repeat: {names}"
        assert self.reference in names, f"{self.reference!r} is no arm of {names}"

    def arm(self, name: str) -> Arm:
        """Return the arm called *name*."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def base(self) -> Arm:
        """Return the reference."""
        return self.arm(self.reference)

    def both(self, name: str) -> tuple[Arm, Arm]:
        """Return the arm called *name* and the reference."""
        return self.arm(name), self.base

    def gpus(self, arm: str) -> int:
        """Return the GPUs of one replica of *arm*: a split server has more of them."""
        return self.arm(arm).gpus or self.deployment.gpus_per_replica

    @property
    def challengers(self) -> tuple[Arm, ...]:
        """Return the arms that are up for a verdict: all but the reference."""
        return tuple(arm for arm in self.arms if arm.name != self.reference)

    def calls(self, workload: str, arm: str) -> Calls | None:
        """Return the calls of *workload* on *arm*, or None when there are none."""
        seen = self._observation(workload, arm)
        return None if seen is None else seen.calls or None

    def _observation(self, workload: str, arm: str) -> Observation | None:
        for each in self.observations:
            if each.workload == workload and each.arm == arm:
                return each
        return None

    def calls_of(self, arm: str, workload: str | None = None) -> dict[str, Calls]:
        """Return the calls of *arm* by workload; of *workload* alone where it is given."""
        found = {}
        for each in self.workloads:
            calls = self.calls(each.name, arm)
            if workload in (None, each.name) and calls is not None:
                found[each.name] = calls
        return found

    def sides(
        self, workload: str, arm: str, *, against: str | None = None
    ) -> tuple[Calls, Calls] | None:
        """Return the calls of *workload* on the reference and on *arm*; None if one has none.

        With *against*, the calls of that arm take the place of the reference's.
        """
        theirs = self.calls(workload, against or self.reference)
        mine = self.calls(workload, arm)
        if theirs is None or mine is None:
            return None
        return (theirs, mine)

    def overfull(self, *arms: str) -> tuple[str, ...]:
        """Return those of *arms* whose KV pool does not hold the contexts of the pairs.

        Evictions then decide how long turns take: a window of a minute shows which arm is faster,
        and not by how much.
        """
        if self.pair_load is None:
            return ()
        held = self.pair_load.held_tokens or 0.0

        def is_full(arm: str) -> bool:
            server = self.arm(arm)
            pool = server.pool_tokens or server.expected_pool_tokens
            figures = self.telemetry(None, arm)
            is_seen = figures is not None and (figures.pool_filled_share or 0.0) > OFTEN
            return is_seen or (pool is not None and held > POOL_HOLDS * pool)

        return tuple(filter(is_full, arms))

    def telemetry(self, workload: str | None, arm: str) -> Telemetry | None:
        """Return the server's figures for *workload* on *arm*; with None, the whole server's."""
        if workload is None:
            return next((figures for name, figures in self.server if name == arm), None)
        seen = self._observation(workload, arm)
        return None if seen is None else seen.telemetry
