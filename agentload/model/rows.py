"""Rows as they are stored: one dataclass a table, fields named as the columns. Absent is None."""

from typing import Literal, TypeAlias

from agentload.model.commands import Ending
from agentload.model.record import Record

Kind: TypeAlias = Literal["measured", "emulated", "simulated"]


class RunRow(Record):
    """One replay, eval, probe or simulation."""

    run_id: str
    kind: Kind
    name: str
    created_ns: int
    """Wall clock."""
    trace_name: str | None
    trace_hash: str | None
    model: str | None
    design: str | None
    seed: int
    version: str
    command: str
    options: str
    """JSON of what was found out when it began (`study.stored.Notes`)."""
    study: str | None = None
    """JSON of what it is (`study.document`); None in rows
    of older versions, whose command and options say it.
    """


class LegRow(Record):
    """One uninterrupted process of a run, with the anchors of its monotonic axis."""

    run_id: str
    leg: int
    host: str
    boot_id: str | None
    monotonic_ns: int
    wall_ns: int
    ended_ns: int | None = None
    status: Literal["running", "done", "stopped", "failed"] = "running"
    health: str | None = None
    """JSON: send lag, loop stall, coalesced reads, CPU share; what makes a leg void."""


class ArmRow(Record):
    """One endpoint configuration of a run."""

    run_id: str
    arm: str
    position: int
    url: str | None
    model: str | None
    machine: str | None = None
    profile: str | None = None
    expected: str | None = None
    """JSON of what the arms file expects of the server."""
    gpu: str | None = None
    """As the arms file calls it."""
    gpus: int | None = None
    """Of one replica."""
    usd_per_gpu_hour: float | None = None
    tensor_parallel: int | None = None
    data_parallel: int | None = None
    shape: str | None = None
    """JSON of the model's geometry (`model.profile.ModelShape`),
    where its config.json was found.
    """


class FingerprintRow(Record):
    """What a server said it is, at one moment. `facts` is JSON."""

    run_id: str
    leg: int
    arm: str
    at_ns: int
    moment: Literal["before", "after"]
    round: int
    facts: str


class BlockRow(Record):
    """One play of a block on an arm."""

    run_id: str
    leg: int
    pair: int
    block: int
    arm: str
    round: int
    started_ns: int
    drain_ns: int | None
    """From here on the load was draining; left out of throughput."""
    ended_ns: int | None
    salt: str
    warmup: bool = False
    void: str | None = None
    machine: str | None = None
    """Where the arm's server ran meanwhile."""
    primed_ns: int | None = None
    """When the contexts of a window were primed and its
    clock started; None for a block that is no window.
    """


class CallRow(Ending, gc=False):
    """One attempt of one call."""

    run_id: str
    leg: int
    arm: str
    block: int
    pair: int
    workload: str
    session: str
    turn: int
    attempt: int
    retry_of: str | None
    request_id: str
    due_ns: int
    released_ns: int
    context_tokens: int
    asked_tokens: int
    tail: bool = False
    prime: bool = False
    """Nobody's figure: it told the server what came before a window,
    asked for the rest of an answer, or kept the load on behind it.
    """
    prompt_hash: str | None = None
    """Of the request body without arm-specific fields:
    equal across arms when they got the same bytes.
    """
    deadline_ns: int | None = None
    turns_left: int | None = None
    """Turns that its session has after this one: 0 ends a task.
    None where another session spawned it, and in rows of older versions.
    """


class SampleRow(Record):
    """One value scraped from a server or a GPU. `labels` is JSON."""

    run_id: str
    leg: int
    arm: str
    at_ns: int
    name: str
    value: float
    labels: str | None = None


class AnswerRow(Record):
    """One graded answer: a task item, or a check inside a replayed trace."""

    run_id: str
    arm: str
    task: str
    item: str
    context_tokens: int
    depth: float | None
    repetition: int
    score: float | None
    right: bool | None
    answer: str | None
    request_id: str | None = None
    signals: str | None = None
    """JSON: finish reason, length ratio, repeated 4-gram
    share, agreement prefix with the reference arm.
    """


class VerdictRow(Record):
    """One decision as it was written.

    `decision` is JSON; the other columns are what lists show without reading it.
    """

    run_id: str
    at_ns: int
    policy: str
    decision: str
    headline: str | None = None
    verdict: str | None = None
    version: str | None = None
    """Of the agentload that decided; None in rows of older versions."""


class ProbeRow(Record):
    """One look at a server apart from a replay: a step of a capacity search, a reuse test.

    `settings` and `detail` are JSON.
    """

    run_id: str
    arm: str
    probe: str
    at_ns: int
    settings: str
    outcome: str
    detail: str | None = None


class JobRow(Record):
    """One scheduled comparison, as it was last executed. `spec` is JSON."""

    job: str
    added_ns: int
    schedule: str
    spec: str


class ExecutionRow(Record):
    """One firing of a job and what became of it. `detail` is JSON; all instants are wall clock."""

    job: str
    started_ns: int
    ended_ns: int | None
    due_ns: int | None
    outcome: str
    run_id: str | None
    detail: str


class AlarmRow(Record):
    """One alarm of a job; `closed_ns` is None while it holds. `detail` is JSON."""

    job: str
    kind: str
    metric: str | None
    raised_ns: int
    closed_ns: int | None
    run_id: str | None
    detail: str


Row: TypeAlias = (
    RunRow
    | LegRow
    | ArmRow
    | FingerprintRow
    | BlockRow
    | CallRow
    | SampleRow
    | AnswerRow
    | VerdictRow
    | ProbeRow
    | JobRow
    | ExecutionRow
    | AlarmRow
)
