"""What the dispatcher decides (commands) and what it is told (events).

All instants are ns of one monotonic axis a leg.
"""

from typing import Literal, TypeAlias

from agentload.model.check import Check
from agentload.model.record import Record
from agentload.model.stamps import Stamps
from agentload.model.trace import Extra, Segment

Status: TypeAlias = Literal[
    "ok",
    "refused",  # nobody listens, or the name does not resolve
    "reset",  # the connection broke
    "connect_timeout",
    "first_timeout",  # no first byte of the answer in time
    "idle_timeout",  # the stream went silent
    "total_timeout",
    "busy",  # 429 or 503: the server declined for now
    "http_error",  # any other status of 400 and above, or an unexpected redirect
    "stream_error",  # `data: {"error": …}` inside a 200
    "truncated",  # no finish_reason, or no end mark where the server uses one
    "aborted",  # the server gave the answer up: its finish reason is `abort` or `error`
    "filtered",  # the server withheld the rest: `content_filter`
    # bytes that are neither HTTP nor the expected JSON,
    # more than any answer has, or what contradicts itself
    "unreadable",
    "short",  # fewer tokens than were forced, or than the length at which it says that it stopped
    "long",  # more tokens than were asked
    "garbage",  # repetition or unprintable text
    "cancelled",  # by plan, after some tokens
    "stopped",  # the run was stopped while the call was in flight
    "not_sent",  # what it needed failed before
]
Halt: TypeAlias = Literal["cancelled", "stopped"]
StampSource: TypeAlias = Literal["kernel", "user", "virtual"]
TokenRule: TypeAlias = Literal[
    "token_ids",  # the server listed each chunk's token ids
    "running_usage",  # each chunk carried the usage so far
    "usage",  # one a chunk, and the final usage agrees
    # the final usage, spread over the chunks by the length
    # of their texts: which chunk had how many is not known
    "spread",
    "one_a_chunk",  # an assumption: the server said nothing
]


class Limits(Record):
    """How long a call may take, in ns from its release (idle: from the last byte)."""

    connect_ns: int = 10_000_000_000
    first_ns: int = 600_000_000_000
    idle_ns: int = 120_000_000_000
    total_ns: int = 3_600_000_000_000

    @property
    def unheard_ns(self) -> int:
        """How long a call may be without the first byte of its answer."""
        return min(self.first_ns, self.total_ns)


class Watch(Record):
    """Parse this call while it streams, to cancel it after some tokens."""

    cancel_after_tokens: int | None = None


class Call(Record, gc=False):
    """One turn with its whole context, ready to be sent to any arm."""

    session: str
    turn: int
    workload: str
    context: tuple[Segment, ...]
    context_tokens: int
    output: int
    model: str | None = None
    deadline_ns: int | None = None
    """Absolute instant by which the answer must be complete."""
    wants_reply: bool = False
    """Somebody reads the answer's text: a live edge, or a check."""
    check: tuple[Check, ...] = ()
    """What the answer is graded by."""
    recorded: str | None = None
    """What was answered where it was recorded, for comparison only."""
    asks: Extra = ()
    """Further fields of the request."""
    prime: bool = False
    """It only tells the server what came before: no evidence."""
    turns_left: int | None = None
    """Turns that its session has after this one; None where another session spawned it."""


class Send(Record, gc=False):
    """Send this attempt of a call now."""

    request_id: str
    call: Call
    attempt: int
    retry_of: str | None
    arm: str
    block: int
    pair: int
    due_ns: int
    released_ns: int
    salt: str
    """Replaces the first 8 tokens of the context and
    of drawn tools; equal for all arms of a block pair.
    """
    limits: Limits
    watch: Watch | None = None
    tail: bool = False
    """Released after the block's last session had started and the load had begun to drain."""


class Prepare(Record):
    """Make this call's request ready: its context is known, its Send will follow."""

    request_id: str
    call: Call
    arm: str
    salt: str
    connects: bool = True
    """Open its connection as well: it goes out soon. False where nobody knows when."""


class Cancel(Record):
    """Close the connection of a call in flight; its Ended follows."""

    request_id: str
    why: Halt = "cancelled"


class Forget(Record):
    """Drop what is kept for a session whose play on
    an arm is over: its connections, its cookies.
    """

    arm: str
    session: str


class Skip(Record):
    """Note a call that will never be sent, because what it needed failed."""

    send: Send


class Wake(Record, gc=False):
    """Send Woke at this instant; a later Wake replaces an earlier one."""

    at_ns: int


class Settle(Record):
    """A round is over: read identity and telemetry, reset
    what is to be reset, close the blocks, then send Settled.
    """

    round: int
    next_round: int | None


class Open(Record):
    """Start the servers of these arms, and stop all
    others, before the round begins; then send Opened.
    """

    round: int
    arms: tuple[str, ...]


class Finish(Record):
    """Nothing is left to do."""


Command: TypeAlias = Prepare | Send | Cancel | Forget | Skip | Wake | Settle | Open | Finish


class Reply(Record):
    """What an endpoint answered."""

    text: str
    tokens: int
    called: str | None = None
    """The first tool call, as a JSON object of name and arguments."""


class Ending(Record, gc=False):
    """How one attempt ended, as it is kept. Absent is None, never 0."""

    status: Status
    replica: str | None = None
    """Peer address and chosen response headers."""
    gateway: str | None = None
    """What a gateway says that it did to the call: answered
    it from its cache, retried it, sent it elsewhere.
    """
    dialled_ns: int | None = None
    """We began to open a connection for this call: until then the delay is ours."""
    opened_ns: int | None = None
    """A connection was ready, when one had to be opened for this call; None when one was reused."""
    sent_ns: int | None = None
    """The kernel had the request's last byte."""
    first_ns: int | None = None
    """First token of any kind."""
    first_answer_ns: int | None = None
    """First token that is not thinking."""
    last_ns: int | None = None
    done_ns: int | None = None
    stamp_source: StampSource = "user"
    coalesced_reads: int | None = None
    """Chunks with tokens that came in one read with
    the chunk before them, whose stamp they share.
    """
    token_rule: TokenRule | None = None
    """How the tokens of each chunk were counted."""
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    thinking_tokens: int | None = None
    http_status: int | None = None
    finish_reason: str | None = None
    error: str | None = None
    chunks: Stamps | None = None


class Outcome(Ending, gc=False):
    """How one attempt ended, with what matters during the run alone."""

    retry_after_ns: int | None = None
    """How long a busy server asked to be left alone."""
    reply: Reply | None = None


class Started(Record):
    """The shell is ready; the plan's clock starts here."""

    at_ns: int


class Woke(Record, gc=False):
    """The instant of the last Wake has come."""

    at_ns: int


class Chunks(Record):
    """A watched call streamed: total tokens so far."""

    at_ns: int
    request_id: str
    tokens: int


class Ended(Record, gc=False):
    """An attempt is over, for whatever reason."""

    at_ns: int
    request_id: str
    outcome: Outcome


class Settled(Record):
    """The barrier between rounds is done."""

    at_ns: int
    void: tuple[tuple[int, str], ...] = ()
    """Pairs that must be played again, with the reason."""


class Opened(Record):
    """The servers of the round are up: it begins."""

    at_ns: int


class Stopped(Record):
    """Somebody asked to stop: release nothing more, cancel or drain what is in flight."""

    at_ns: int
    drain: bool = True


class Lost(Record):
    """An arm's endpoint is dead: release nothing more on it in this round."""

    at_ns: int
    arm: str
    for_good: bool = False
    """Never play on it again, instead of in a later round."""


Event: TypeAlias = Started | Woke | Chunks | Ended | Settled | Opened | Stopped | Lost
