"""The kinds of studies: a replay, a sweep of lengths, a
search for the load that just holds, questions, and a probe.
"""

from functools import partial
from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from agentload.errors import UsageError
from agentload.model.plan import Cache, Design
from agentload.study import quantity
from agentload.study.fields import Part, option
from agentload.study.parts import (
    Live,
    Load,
    Request,
    Seed,
    Servers,
    Slo,
    Timeouts,
    Tokenizer,
    TraceRef,
    Traces,
)
from agentload.study.quantity import LENGTHS, Text

OnDead: TypeAlias = Literal["wait", "skip", "stop"]
Raw: TypeAlias = Literal["failures", "all"]
What: TypeAlias = Literal["max-concurrency", "max-rate"]

SLO: Final = Slo(ttft_ms=2000.0, tpot_ms=100.0)
SMALLEST: Final = 64
"""Tokens of the shortest prompt of a sweep."""
SWEPT: Final = Text(
    read=partial(quantity.lengths, least=SMALLEST), write=LENGTHS.write, shown="<str>"
)
DEFAULT_TASKS: Final = ("needle", "needle-multikey-2", "tool_log", "json_recall", "exact_copy")
"""Retrieval as published, and what agents do with
long contexts; each has one place that is asked for.
"""


class _Kind(Part, frozen=True, tag_field="kind"):
    """A study."""

    rows: ClassVar[Literal["run", "added", "none"]] = "run"
    """What its rows are: a run of their own, rows added to one that is named, or none."""

    def checked(self) -> Self:
        """Return the study. Raises UsageError where its fields contradict each other."""
        return self


def _drawn(load: Load) -> None:
    """Raise UsageError for loads that no window of a long day has: recorded words, of
    which there are only one each, and sessions that all start at once.
    """
    if load.rate_per_s is not None and load.rate_per_s >= quantity.AT_ONCE:
        raise UsageError(
            "--rate inf starts every session at once, and no steady load does",
            hint="--rate 0.5, or --sessions 16",
        )
    if load.history == "recorded":
        raise UsageError(
            "--history recorded plays each session once: it is for a replay", hint="--history fixed"
        )


class Replay(_Kind, frozen=True, tag="replay"):
    """Play a trace on every arm, block pair by block pair: live, or in virtual time."""

    traces: Traces
    servers: Servers
    tokenizer: Tokenizer = None
    pairs: Annotated[
        int,
        option(
            "Block pairs: how often each arm plays, each time on another part of the trace.",
            role="amount",
            ge=1,
        ),
    ] = 6
    windows: Annotated[
        int | None,
        option(
            "Windows of the whole trace in place of sessions from their first turns: random "
            "instants of a long day and the --duration after "
            "them, what came before primed. N in all: each pair has one for each of --sessions.",
            ge=1,
        ),
    ] = None
    benchmark: Annotated[
        Literal["agentx", "agentx-fast"] | None,
        option(
            "Play by a benchmark's rules, with --sessions as its slots: AgentX 1.0, of an hour or "
            "of 20 minutes. `agentload runs benchmark` says whether a run is valid.",
            needs=("--sessions",),
        ),
    ] = None
    blocks: Annotated[
        int | None,
        option(
            "Parts that the trace is cut into; as many as there are pairs when omitted.",
            role="amount",
            ge=1,
        ),
    ] = None
    design: Annotated[
        Design, option("Order of the arms: AB BA, all at once, or one after the other.")
    ] = "interleaved"
    swap: Annotated[
        bool,
        option(
            "Two arms on two machines change places after half of the pairs, so that no "
            "machine is taken for an arm."
        ),
    ] = False
    cache: Annotated[
        Cache,
        option("Prefix cache between pairs: cold (a salt each) or warm (one salt for the run)."),
    ] = "cold"
    load: Load = Load()
    capacity: Annotated[
        int | None,
        option(
            "A long run: one window a pair in which this many sessions are kept going, for "
            "--duration or three times what the KV pool "
            "takes to fill.",
            ge=1,
        ),
    ] = None
    slo: Annotated[
        Slo,
        option(
            "--capacity: limits that a turn must hold: ttft=2s,tpot=50ms,turn=30s.",
            text=quantity.LIMITS,
            needs=("--capacity",),
        ),
    ] = SLO
    seed: Seed = 0
    noise_seed: Annotated[
        int | None,
        option("Seed of the noise of emulated servers; --seed when omitted.", role="means"),
    ] = None
    request: Request = Request()
    timeouts: Timeouts = Timeouts()
    warmup: Annotated[
        bool,
        option(
            "Play the first block on every arm first, also on --resume; left out.", role="means"
        ),
    ] = False
    aa: Annotated[
        str | None,
        option(
            "Play this arm, or all, a second time under another name: the noise floor.",
            role="means",
        ),
    ] = None
    on_dead: Annotated[
        OnDead,
        option("When an endpoint dies: wait for it (10 min), skip it, or stop.", role="means"),
    ] = "wait"
    workers: Annotated[
        int,
        option(
            "Processes that hold connections and journals, for loads that one core cannot "
            "carry; such as 2.",
            role="means",
            ge=1,
        ),
    ] = 1
    on: Annotated[
        str | None,
        option(
            "Play from several nodes, each with a dispatcher of its own: here, processes of this "
            "machine, or every node of a Ray cluster, ray or ray:ADDRESS; sessions, caps and "
            "rates are divided beforehand.",
            role="means",
        ),
    ] = None
    nodes: Annotated[
        int | None,
        option(
            "--on: how many nodes to play from; all of them when omitted, here one for each core.",
            role="means",
            needs=("--on",),
            ge=1,
        ),
    ] = None
    share: Annotated[
        str | None,
        option(
            "--on: folder that every node sees, for what they measure; it is sent when omitted.",
            role="means",
            needs=("--on",),
            place=True,
        ),
    ] = None
    keep_raw: Annotated[
        Raw | None,
        option(
            "Keep the bytes that calls brought, compressed, beside the journals: of "
            "failures, or of all.",
            role="means",
        ),
    ] = None
    lenient: Annotated[
        bool, option("Leave out a last line of the trace that was cut short.", role="means")
    ] = False

    def checked(self) -> Self:
        """Return the study. Raises UsageError where its fields contradict each other."""
        load = self.load.checked()
        if self.capacity is not None and (load.sessions, load.rate_per_s, load.speed) != (
            None,
            None,
            1.0,
        ):
            raise UsageError(
                "--capacity keeps sessions going by itself",
                hint="leave out --sessions, --rate and --speed",
            )
        if self.capacity is not None and self.windows is not None:
            raise UsageError("--capacity lays out its own windows", hint="leave out --windows")
        if self.windows is not None and self.blocks is not None and not self.swap:
            raise UsageError(
                "--blocks cuts the trace, and --windows draws from all of it",
                hint="leave out --blocks",
            )
        if self.windows is not None and load.ramp_s:
            raise UsageError("--windows begin at full load", hint="leave out --ramp")
        if self.benchmark is not None:
            self._check_benchmark()
        if (self.capacity, self.windows, self.benchmark) != (None, None, None):
            _drawn(load)
        return self

    def _check_benchmark(self) -> None:
        """Raise UsageError for what contradicts a benchmark's own layout."""
        if self.load.sessions is None:
            raise UsageError("--benchmark needs its slots", hint="--sessions 16")
        if self.load.ramp_s or (self.blocks is not None and not self.swap):
            raise UsageError(
                "--benchmark draws from all of the trace and begins at full load",
                hint="leave out --ramp and --blocks",
            )
        if (self.windows, self.capacity) != (None, None):
            raise UsageError(
                "--benchmark lays out its own windows", hint="leave out --windows and --capacity"
            )


class Sweep(_Kind, frozen=True, tag="sweep"):
    """Ask every arm prompts of growing length, one at a time."""

    servers: Live
    contexts: Annotated[
        tuple[int, ...],
        option(
            "Lengths to try: 1k..128k doubles, 1k,4k,10k lists.", also=("--context",), text=SWEPT
        ),
    ]
    pairs: Annotated[
        int, option("--contexts: how often each arm is asked each length.", role="amount", ge=1)
    ] = 6
    output_tokens: Annotated[
        int, option("--contexts: tokens of each answer.", name="--output", ge=1)
    ] = 128
    seed: Seed = 0
    request: Request = Request()
    timeouts: Timeouts = Timeouts()


class Search(_Kind, frozen=True, tag="search"):
    """Find the load that just holds, arm by arm."""

    rows: ClassVar[Literal["added"]] = "added"

    traces: Annotated[
        tuple[TraceRef, ...],
        option(
            "Whose sessions run; several are played as one mix.",
            name="traces",
            positional=True,
            place=True,
        ),
    ]
    servers: Servers
    find: Annotated[
        What,
        option("Instead: find the max-concurrency or max-rate that holds --slo, for each arm."),
    ] = "max-concurrency"
    load: Load = Load()
    start: Annotated[
        int | None, option("--concurrency: sessions to start with; 4 when omitted.", ge=1)
    ] = None
    trial_s: Annotated[float, option("Length of each trial.", gt=0)] = 60.0
    slo: Annotated[
        Slo | None,
        option("Limits that a turn must hold: ttft=2s,tpot=50ms,turn=30s.", text=quantity.LIMITS),
    ] = None
    share: Annotated[float, option("Share of the turns that must hold them.", gt=0, le=1)] = 0.95
    windows: Annotated[
        int | None,
        option(
            "Different windows of the trace that trials play, in turn; each trial draws "
            "its own when omitted.",
            ge=1,
        ),
    ] = None
    seed: Seed = 0
    request: Request = Request()
    timeouts: Timeouts = Timeouts()

    def checked(self) -> Self:
        """Return the study. Raises UsageError where its fields
        contradict each other, or a search has nothing to hold.
        """
        _drawn(self.load.checked())
        if (self.load.sessions, self.load.rate_per_s) != (None, None):
            raise UsageError(
                "a search decides by itself how many sessions run",
                hint="leave out --sessions and --rate",
            )
        if isinstance(self.servers, Live) and self.find != "max-concurrency":
            raise UsageError(
                "servers are searched for max-concurrency",
                hint="servers: {profile: NAME} finds the max-rate in virtual time",
            )
        if not isinstance(self.servers, Live) and self.slo in (None, Slo()):
            raise UsageError("a search needs a limit to hold", hint="--slo ttft=2s,tpot=50ms")
        return self


class Ask(_Kind, frozen=True, tag="ask"):
    """Ask every arm the same questions and grade the
    answers: of servers, or of a profile in virtual time.
    """

    servers: Servers
    tasks: Annotated[tuple[str, ...], option("Tasks, separated by commas.")] = DEFAULT_TASKS
    own: Annotated[
        str | None,
        option(
            "File of items, instead of tasks: JSON lines of messages and a grader, or see "
            "--format.",
            place=True,
        ),
    ] = None
    own_format: Annotated[
        Literal["own", "aime25", "gpqa", "math500"],
        option(
            "What --own is: your own items, or a file of AIME 2025, GPQA or MATH-500 as its "
            "authors publish it.",
            name="--format",
            needs=("--own",),
        ),
    ] = "own"
    contexts: Annotated[
        tuple[int, ...],
        option(
            "Lengths: 4k..128k doubles from 4k to 128k; 8k,64k are just these.",
            text=quantity.LENGTHS,
        ),
    ] = (4096, 8192, 16384, 32768)
    depths: Annotated[
        int,
        option(
            "At how many places of the context what is asked for stands, from its start to "
            "its end.",
            ge=1,
        ),
    ] = 10
    items: Annotated[
        int | None,
        option(
            "Different items in all; one for each task, length and depth when omitted.",
            role="amount",
            ge=1,
        ),
    ] = None
    per_context: Annotated[
        int,
        option(
            "Questions behind one context: it is read once for all of them, each about a "
            "part of its own.",
            ge=1,
        ),
    ] = 1
    until_settled: Annotated[
        bool,
        option(
            "Ask in steps, 30, 120, 160 items and so on, and stop as soon as the answers "
            "decide; --items is the most."
        ),
    ] = False
    repetitions: Annotated[
        int,
        option("How often each item is asked, each time with another seed.", role="amount", ge=1),
    ] = 1
    seed: Annotated[int, option("Equal seeds make equal items.")] = 0
    concurrency: Annotated[
        int,
        option(
            "Items in flight; each is asked of one endpoint after the other.", role="means", ge=1
        ),
    ] = 8
    thinking_tokens: Annotated[
        int,
        option("Tokens for thinking, on top of the cap of each answer.", name="--thinking", ge=0),
    ] = 0
    tokenizer: Annotated[
        str | None,
        option(
            "tokenizer.json of the model: exact lengths; without it the first endpoint "
            "counts two prompts a task.",
            place=True,
            role="means",
        ),
    ] = None
    aa: Annotated[
        str | None,
        option("Ask this endpoint a second time under another name: how far equals differ."),
    ] = None
    traces: Annotated[
        tuple[TraceRef, ...],
        option(
            "Trace files, or names of shipped traces: questions have the lengths of its "
            "calls, a screen its prompts.",
            name="--trace",
            place=True,
        ),
    ] = ()
    screen: Annotated[
        bool,
        option(
            "Instead of questions: compare how likely each arm holds what comes next; "
            "finds what is broken, and where to ask."
        ),
    ] = False
    request: Request = Request()
    timeouts: Timeouts = Timeouts()


class Probe(_Kind, frozen=True, tag="probe"):
    """Check what a comparison rests on: prefix reuse, and that short answers agree."""

    rows: ClassVar[Literal["none"]] = "none"

    servers: Live
    prompt_tokens: Annotated[
        int, option("Length of the prompt that is sent twice.", name="--tokens", ge=1)
    ] = 2048
    prompts: Annotated[int, option("How many prompts the arms must agree on.", ge=1)] = 8
    request: Request = Request()
    timeouts: Timeouts = Timeouts()


class Decide(_Kind, frozen=True, tag="decide"):
    """Decide which arm to run: speed, capacity and accuracy in turn, as far as a budget goes."""

    traces: Traces
    servers: Servers
    reference: Annotated[str | None, option("Arm in use today; the first when omitted.")] = None
    slo: Annotated[
        Slo | None,
        option(
            "Limits that a turn must hold: ttft=2s,tpot=50ms,turn=30s (a bare number is ms).",
            text=quantity.LIMITS,
        ),
    ] = None
    agents: Annotated[
        int | None,
        option(
            "Your peak number of concurrent agents: how many GPUs each arm needs for them is "
            "part of the answer.",
            ge=1,
        ),
    ] = None
    price_usd: Annotated[
        float | None, option("What a GPU costs an hour, in dollars.", name="--price", gt=0)
    ] = None
    decide_by: Annotated[
        Literal["gpus", "latency", "tasks"] | None,
        option(
            "What decides between arms within --slo: gpus, if --slo is given as well, latency "
            "(of a turn), or tasks (latency of all turns of a session)."
        ),
    ] = None
    budget_s: Annotated[
        float, option("Time on the GPUs that the decision may take.", role="amount", gt=0)
    ] = 2700.0
    min_change: Annotated[
        float, option("Smallest relevant change of turn latency.", unit="share", gt=0, le=1)
    ] = 0.03
    accuracy_margin: Annotated[
        float, option("Largest loss of accuracy that you accept.", unit="points", gt=0, le=1)
    ] = 0.03
    load: Load = Load()
    tokenizer: Tokenizer = None
    seed: Seed = 0
    request: Request = Request()
    timeouts: Timeouts = Timeouts()

    def checked(self) -> Self:
        """Return the study. Raises UsageError where its fields contradict each other."""
        _drawn(self.load.checked())
        if self.decide_by in ("gpus", "latency") and self.agents is None:
            raise UsageError(
                f"--decide-by {self.decide_by} does nothing without --agents", hint="--agents 400"
            )
        return self


Study: TypeAlias = Replay | Sweep | Search | Ask | Probe | Decide
