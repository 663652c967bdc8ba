"""Parts that studies have in common: whose sessions, which servers, under which load."""

from typing import Annotated, Literal, TypeAlias

import msgspec

from agentload.errors import UsageError
from agentload.model.plan import (
    Arrivals,
    Budget,
    ClosedLoop,
    OpenLoop,
    PlannedBurst,
    Recorded,
    WaitScale,
)
from agentload.model.plan import Load as PlannedLoad
from agentload.study import quantity
from agentload.study.fields import Part, option

Kind: TypeAlias = Literal["tool", "user", "schedule"]
KINDS: tuple[Kind, ...] = ("user", "tool", "schedule")
START_S = 1800.0


class TraceRef(Part, frozen=True):
    """A trace by the name that it is found by, and what it held when the study was written."""

    path: str
    sha256: str | None = None
    """None: whatever it holds."""


class Slo(Part, frozen=True):
    """What a turn must hold; None is no limit."""

    ttft_ms: Annotated[float | None, option("Time to first token.", gt=0)] = None
    tpot_ms: Annotated[float | None, option("Time per output token.", gt=0)] = None
    turn_ms: Annotated[float | None, option("Turn latency.", gt=0)] = None

    def holds(
        self, status: str, ttft_ms: float | None, tpot_ms: float | None, turn_ms: float | None
    ) -> bool:
        """Tell whether a turn was within the limits; one that failed, or gave no token, was not."""
        if status != "ok" or ttft_ms is None or turn_ms is None:
            return False
        limits = ((self.ttft_ms, ttft_ms), (self.tpot_ms, tpot_ms or 0.0), (self.turn_ms, turn_ms))
        return all(limit is None or seen <= limit for limit, seen in limits)


class Burst(Part, frozen=True):
    """A rate that is *factor* times as high for the last *lasts_s* of every *every_s* seconds."""

    factor: Annotated[float, option("How many times as high.", gt=0)]
    lasts_s: Annotated[float, option("Seconds of a burst.", gt=0)]
    every_s: Annotated[
        float, option("Seconds from the start of a period to that of the next.", gt=0)
    ]


class Load(Part, frozen=True):
    """How sessions start, how long they wait, and how much of them is played."""

    sessions: Annotated[
        int | None,
        option(
            "Closed loop: keep this many sessions going instead of the trace's own starts.", ge=1
        ),
    ] = None
    rate_per_s: Annotated[
        float | None,
        option(
            "Open loop: start this many sessions a second, whatever the server does; inf starts "
            "all at once.",
            gt=0,
            text=quantity.RATE,
        ),
    ] = None
    cv: Annotated[
        float,
        option(
            "Open loop: how unevenly sessions start; 1 is Poisson, 0 even, 3 in clusters.",
            ge=0,
            needs=("--rate",),
        ),
    ] = 1.0
    ramp_s: Annotated[
        float,
        option(
            "Seconds in which the load rises: --rate from --ramp-from, --sessions one by one.", ge=0
        ),
    ] = 0.0
    ramp_from_per_s: Annotated[
        float,
        option("Open loop: sessions a second at the start of the ramp.", ge=0, needs=("--ramp",)),
    ] = 0.0
    burst: Annotated[
        Burst | None,
        option(
            "Open loop: FACTORxSECONDS/EVERY; 5x10/60 is 5 times --rate in the last 10 of "
            "every 60 seconds.",
            needs=("--rate",),
            text=quantity.BURST,
        ),
    ] = None
    speed: Annotated[
        float, option("Play the trace's own starts this many times as fast.", gt=0)
    ] = 1.0
    max_in_flight: Annotated[int | None, option("Cap on calls in flight on each arm.", ge=1)] = None
    wait_scale: Annotated[
        dict[Kind, float],
        option(
            "Scale one kind of wait, such as user=0.1 (user, tool, schedule).", repeated=KINDS, ge=0
        ),
    ] = msgspec.field(default_factory=dict)
    wait_cap_s: Annotated[
        dict[Kind, float],
        option("Cap one kind of wait in seconds, such as user=30.", repeated=KINDS, ge=0),
    ] = msgspec.field(default_factory=dict)
    max_context_tokens: Annotated[
        int | None,
        option(
            "End sessions before the turn that needs more tokens than this, its answer "
            "included; such as 120k.",
            ge=1,
        ),
    ] = None
    max_calls: Annotated[
        int | None, option("Budget: calls in each block.", also=("--num-prompts",), ge=1)
    ] = None
    max_tokens: Annotated[
        int | None,
        option(
            "Budget: prompt and output tokens in each block.", ge=1, name="--max-tokens", unit=""
        ),
    ] = None
    duration_s: Annotated[
        float | None,
        option("Budget: seconds for each block; nothing new is sent after that.", gt=0),
    ] = None
    cancel_share: Annotated[
        float,
        option("Share of streams that are cancelled after a random number of tokens.", ge=0, le=1),
    ] = 0.0
    history: Annotated[
        Literal["fixed", "live", "recorded"],
        option(
            "What turns hold: fixed (equal bytes on every arm), live (each arm's own "
            "answers), or recorded (what an import kept with "
            "--with-text; replies are compared with it)."
        ),
    ] = "fixed"
    retries: Annotated[
        int,
        option(
            "Further attempts for a refused, reset, busy or unconnected call, after 1, 2, "
            "4 s or Retry-After; each attempt is a row.",
            ge=0,
        ),
    ] = 0

    def checked(self) -> "Load":
        """Return the load. Raises UsageError where its fields contradict each other."""
        if self.sessions is not None and self.rate_per_s is not None:
            raise UsageError(
                "--sessions (closed loop) and --rate (open loop) exclude each other",
                hint=f"--sessions {self.sessions}, or "
                f"--rate {quantity.RATE.write(self.rate_per_s)}",
            )
        if self.speed != 1 and (self.sessions is not None or self.rate_per_s is not None):
            raise UsageError(
                "--speed changes the trace's own starts, which --sessions and --rate replace"
            )
        if self.rate_per_s is None and (self.burst is not None or self.ramp_from_per_s):
            raise UsageError(
                "--burst and --ramp-from shape an open loop", hint="--rate 0.5 --burst 5x10/60"
            )
        self._check_at_once()
        if self.burst is not None and self.burst.lasts_s >= self.burst.every_s:
            written = quantity.BURST.write(self.burst)
            raise UsageError(
                f"--burst is FACTORxSECONDS/EVERY with fewer seconds than every, got '{written}'",
                hint="--burst 5x10/60",
            )
        if self.rate_per_s is None and self.sessions is None and self.ramp_s:
            raise UsageError(
                "--ramp needs a load to rise to",
                hint="--rate 0.5 --ramp 60, or --sessions 16 --ramp 60",
            )
        return self

    def _check_at_once(self) -> None:
        """Raise UsageError for a shape of starts where every session starts at once."""
        shaped = {
            "--cv": self.cv != 1.0,
            "--ramp": bool(self.ramp_s),
            "--ramp-from": bool(self.ramp_from_per_s),
            "--burst": self.burst is not None,
        }
        found = [option for option, is_given in shaped.items() if is_given]
        if found and self.rate_per_s is not None and self.rate_per_s >= quantity.AT_ONCE:
            raise UsageError(
                f"--rate inf starts every session at once, so {' and '.join(found)} "
                "would do nothing",
                hint=f"leave out {' and '.join(found)}, or --rate 0.5",
            )

    @property
    def arrivals(self) -> Arrivals:
        """Return what starts sessions."""
        if self.sessions is not None:
            return ClosedLoop(sessions=self.sessions, ramp_s=self.ramp_s)
        if self.rate_per_s is None:
            return Recorded(speed=self.speed)
        said = self.burst
        burst = (
            None
            if said is None
            else PlannedBurst(factor=said.factor, seconds=said.lasts_s, every_s=said.every_s)
        )
        return OpenLoop(
            rate_per_s=self.rate_per_s,
            cv=self.cv,
            ramp_s=self.ramp_s,
            ramp_from_per_s=self.ramp_from_per_s,
            burst=burst,
        )

    def planned(self) -> PlannedLoad:
        """Return the load as a plan has it."""
        return PlannedLoad(
            arrivals=self.arrivals,
            waits={
                kind: WaitScale(
                    scale=self.wait_scale.get(kind, 1.0), cap_s=self.wait_cap_s.get(kind)
                )
                for kind in sorted(self.wait_scale.keys() | self.wait_cap_s.keys())
            },
            max_in_flight=self.max_in_flight,
            budget=Budget(calls=self.max_calls, tokens=self.max_tokens, seconds=self.duration_s),
            cancel_share=self.cancel_share,
            history=self.history,
            retries=self.retries,
        )


class Request(Part, frozen=True):
    """What every request says beside its prompt, each field
    by its own name in the body; None is left to the server.
    """

    temperature: Annotated[
        float | None,
        option(
            "Sampling temperature of every request; 0 is greedy.",
            ge=0,
            text=quantity.of_number(float, "", usual="0.7"),
        ),
    ] = None

    reasoning_effort: Annotated[
        Literal["none", "minimal", "low", "medium", "high"] | None,
        option("How long a model that can think does so before it answers."),
    ] = None

    def body(self) -> dict[str, object]:
        """Return the fields of a request's body."""
        said = {name: getattr(self, name) for name in self.__struct_fields__}
        return {name: value for name, value in said.items() if value is not None}


class Live(Part, frozen=True, tag_field="kind", tag="endpoints"):
    """Servers that are asked over the network, or emulated behind HTTP."""

    endpoints: Annotated[
        str,
        option(
            "a=URL,b=URL (a=URL,a=URL: replicas), an arms file (YAML), or "
            "emulated:PROFILE[/ARM+ARM].",
            role="means",
            place=True,
        ),
    ]
    model: Annotated[
        str | None, option("Model to ask for; the only one served when omitted.", role="means")
    ] = None
    api_key_env: Annotated[
        str | None, option("Environment variable that holds the API key.", role="means")
    ] = None
    noise: Annotated[
        bool, option("Emulated endpoints scatter as real servers do.", name="--noise")
    ] = True
    force: Annotated[
        bool,
        option(
            "Measure servers that are not what the arms file expects; a caveat is kept.",
            role="means",
        ),
    ] = False
    launch: Annotated[
        bool,
        option(
            "One server at a time: start each arm for its blocks with the arms file's "
            "command, end it before the next."
        ),
    ] = False
    restarts: Annotated[
        int | None,
        option(
            "--launch: how often each arm is started; again for every pair when omitted.",
            role="amount",
            needs=("--launch",),
            ge=1,
        ),
    ] = None
    logs: Annotated[
        str,
        option(
            "--launch: folder for the servers' logs.", role="means", needs=("--launch",), place=True
        ),
    ] = "logs"
    start_timeout_s: Annotated[
        float,
        option(
            "--launch: seconds until a server must be healthy.",
            role="means",
            needs=("--launch",),
            gt=0,
        ),
    ] = START_S


class Virtual(Part, frozen=True, tag_field="kind", tag="profile"):
    """Arms of a profile in virtual time."""

    profile: Annotated[
        str,
        option(
            "Profile file, or the name of a shipped profile (`agentload profile list`).", place=True
        ),
    ]
    arms: Annotated[
        tuple[str, ...],
        option("Arms of the profile, such as bf16,fp8; all that have a latency when omitted."),
    ] = ()
    machines: Annotated[
        dict[str, float],
        option(
            "Machines that the arms start on, and how many times as long a step takes "
            "there: m1=1,m2=1.08.",
            text=quantity.FACTORS,
            gt=0,
        ),
    ] = msgspec.field(default_factory=dict)
    noise: Annotated[bool, option("Scatter as real servers do.", name="--noise")] = True


Servers: TypeAlias = Live | Virtual


class Timeouts(Part, frozen=True):
    """How long a call may take."""

    first_timeout_s: Annotated[
        float, option("Seconds until the first byte of an answer.", gt=0, role="means")
    ] = 600.0
    idle_timeout_s: Annotated[
        float, option("Seconds of silence within a stream.", gt=0, role="means")
    ] = 120.0
    total_timeout_s: Annotated[float, option("Seconds for a whole answer.", gt=0, role="means")] = (
        3600.0
    )


Traces: TypeAlias = Annotated[
    tuple[TraceRef, ...],
    option(
        "Trace files, or names of shipped traces; several are played as one mix.",
        name="traces",
        positional=True,
        place=True,
    ),
]
Tokenizer: TypeAlias = Annotated[
    str | None,
    option(
        "The model's tokenizer.json, or its folder, for exact lengths where no server counts "
        "tokens.",
        place=True,
    ),
]
Seed: TypeAlias = Annotated[
    int, option("Seed of everything that is drawn: order of the arms, arrivals, cancellations.")
]
