"""A plan: which sessions each arm plays, in which order, under which load."""

from collections.abc import Iterable, Mapping
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import field

from agentload.model.commands import Limits
from agentload.model.record import Record
from agentload.model.trace import Header, Session

Design: TypeAlias = Literal["interleaved", "parallel", "sequential"]
Cache: TypeAlias = Literal["cold", "warm"]


class Recorded(Record):
    """Start sessions when the trace says, `speed` times as fast."""

    speed: float = 1.0


class ClosedLoop(Record):
    """Keep this many sessions going: the next one starts when one ends."""

    sessions: int
    ramp_s: float = 0.0
    """The first ones start one after the other, spread evenly over this time."""
    holds_trees: bool = False
    """Whether a session keeps its slot until those that it spawned have ended, too."""


class PlannedBurst(Record):
    """A load that comes in bursts: `factor` times the
    rate for the last `seconds` of every `every_s`.
    """

    factor: float
    seconds: float
    every_s: float


class OpenLoop(Record):
    """Start sessions at a rate, whatever the server does.

    `cv` shapes gamma arrivals (1 is Poisson, 0 constant).
    """

    rate_per_s: float
    cv: float = 1.0
    ramp_s: float = 0.0
    """The rate rises evenly over this time."""
    ramp_from_per_s: float = 0.0
    burst: PlannedBurst | None = None


Arrivals: TypeAlias = Recorded | ClosedLoop | OpenLoop


class WaitScale(Record):
    """How one kind of wait is replayed: scaled, then capped."""

    scale: float = 1.0
    cap_s: float | None = None


class Budget(Record):
    """Start nothing new once one of these is spent in a block; None is no bound."""

    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None


class Load(Record):
    """How a block is played."""

    arrivals: Arrivals = field(default_factory=Recorded)
    waits: Mapping[str, WaitScale] = field(default_factory=dict)
    """By kind of wait (tool, user, schedule); a missing kind is replayed as recorded."""
    max_in_flight: int | None = None
    """Cap on calls in flight on each arm."""
    budget: Budget = field(default_factory=Budget)
    cancel_share: float = 0.0
    """Share of calls that are cancelled after a drawn number of tokens."""
    history: Literal["fixed", "live", "recorded"] = "fixed"
    retries: int = 0
    """How often a failed call is sent again, as a further attempt with its own row."""
    idle_cap_s: float | None = None
    """After so long without a call in flight, all that is due moves nearer; None: it waits."""


@runtime_checkable
class Foretelling(Protocol):
    """Sessions that are dear to make, the first of
    which tell what a block needs before it begins.
    """

    def telling(self) -> Iterable[Session]:
        """Return the sessions that prime contexts or quote answers, and any others."""
        ...


class Block(Record):
    """A fixed set of whole sessions, start times relative to the block."""

    index: int
    sessions: Iterable[Session]
    """Iterated once a play, and before the first of them."""
    is_window: bool = False
    """Contexts are primed first: its clock starts when they are,
    and its load stays on until the last call that counts has ended.
    """
    lead_ns: int | None = None
    """How long its prompts are made ready before its clock starts, where
    several dispatchers agreed on that; None: as long as they take.
    """


class Play(Record):
    """One block on one arm: half a pair."""

    block: int
    arm: str
    pair: int
    salt: str
    own_salt: str = ""
    """Added to the salt of this arm's prompts alone: a control on
    the same server must not find what its twin left in the cache.
    """
    warmup: bool = False
    """Played but left out of the evidence."""
    machine: str | None = None
    """Where the arm's server runs meanwhile; None: nobody said, and no arm moves."""


class Round(Record):
    """Plays that run at the same time; the next round starts when all have ended and settled."""

    index: int
    plays: tuple[Play, ...]
    start: int | None = None
    """Which start of its servers it is played on; None: they run all the time."""


class Plan(Record):
    """Everything the dispatcher needs to know."""

    run: str
    seed: int
    header: Header
    arms: tuple[str, ...]
    blocks: tuple[Block, ...]
    rounds: tuple[Round, ...]
    load: Load = field(default_factory=Load)
    limits: Limits = field(default_factory=Limits)
    design: Design = "interleaved"
    cache: Cache = "cold"
