"""Mooncake traces: one call a line with its time, lengths and block ids, sorted by time.

Times are the recorded ones, or follow from starts, waits and edges, with s_per_token for each output token of a call. Blocks have `block`
tokens, by default the trace's own, so that an import from Mooncake is exported unchanged (lines do not state the size: import others
with block=64). Roles, edges, kinds of wait and checks are lost. sessions=aiperf adds AIPerf's session_id, and delays instead of later
times; each line still holds the whole context, and says so.
"""

import hashlib
import heapq
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final, Literal

import msgspec

from agentload.errors import TraceError
from agentload.importers.mooncake import ORIGIN
from agentload.model.trace import Segment, Session, Trace, Turn
from agentload.model.walk import contexts, families
from agentload.plugins import Count, Seconds
from agentload.tracefile.references import REACH

_WHOLE = "message_array_with_responses"  # AIPerf's name for lines that hold the whole context
_OWN: Final = 1 << 33
"""The first new block number; imported blocks keep theirs below it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One call and its send time."""

    at_s: float
    session: Session
    number: int
    turn: Turn
    context: tuple[Segment, ...]


def lines(trace: Trace, *, block: Count = 0, s_per_token: Seconds = 0.02, sessions: Literal["flat", "aiperf"] = "flat") -> Iterator[bytes]:
    """Yield a line for each call; block=0 takes the trace's."""
    blocks = Blocks(block=block or trace.header.block, source=trace.header.block)
    encode = msgspec.json.Encoder().encode
    origin_s: float | None = None
    for call in sent(trace, s_per_token=s_per_token):
        origin_s = _origin(call.session) if origin_s is None else origin_s
        line: dict[str, Any] = _named(call, origin_s) if sessions == "aiperf" else {"timestamp": _millis(origin_s + call.at_s)}
        recorded = call.turn.recorded
        line["input_length"] = sum(segment.tokens for segment in call.context)
        line["output_length"] = call.turn.output if recorded is None or recorded.output is None else recorded.output
        line["hash_ids"] = blocks.ids(call.context)
        yield encode(line) + b"\n"


def _origin(first: Session) -> float:
    found = next((msgspec.json.decode(value) for name, value in first.extra if name == ORIGIN), 0.0)
    return found if isinstance(found, float | int) else 0.0


def _named(call: Sent, origin_s: float) -> dict[str, Any]:
    time = {"delay": _millis(call.turn.wait_s)} if call.number else {"timestamp": _millis(origin_s + call.at_s)}
    return {"session_id": call.session.session, "context_mode": _WHOLE} | time


def _millis(seconds: float) -> int | float:
    """Return whole milliseconds as an integer, as in the public traces."""
    millis = round(seconds * 1000, 3)
    return int(millis) if millis.is_integer() else millis


class Blocks:
    """Number the blocks of one export: equal numbers for equal content after equal content."""

    def __init__(self, *, block: int, source: int) -> None:
        self._block = block
        self._source = source  # tokens of a block of an imported run
        self._numbers: dict[bytes, int] = {}

    def ids(self, context: Sequence[Segment]) -> list[int]:
        """Return the ids of a context's blocks, including a partial last one."""
        own = self._imported(context)
        return list(self._chained(context)) if own is None else own

    def _imported(self, context: Sequence[Segment]) -> list[int] | None:
        """Return the imported ids of a context made only of imported blocks."""
        if self._block != self._source:
            return None
        found: list[int] = []
        for number, segment in enumerate(context):
            if isinstance(segment.key, str) or (segment.tokens % self._block and number < len(context) - 1):
                return None
            first = segment.key[0]
            found += range(first, first + -(-segment.tokens // self._block))
        return found

    def _chained(self, context: Sequence[Segment]) -> Iterator[int]:
        chain = hashlib.blake2b(digest_size=12)
        room = self._block
        for name, tokens in (piece for segment in context for piece in self._pieces(segment)):
            start = 0
            while start < tokens:
                length = min(room, tokens - start)
                chain.update(f"{name} {start} {length}\0".encode("utf-8", "surrogatepass"))
                start += length
                room -= length
                if not room:
                    yield self._number(chain.digest())
                    room = self._block
        if room < self._block:
            yield self._number(chain.digest())

    def _pieces(self, segment: Segment) -> Iterator[tuple[str, int]]:
        """Yield a segment's content as (name, tokens); imported blocks one by one, since runs may share some."""
        match segment.key:
            case str() as key:
                yield f"{key!r} {segment.size}", segment.tokens
            case (first, _):
                for position, start in enumerate(range(0, segment.tokens, self._source)):
                    yield f"#{first + position}", min(self._source, segment.tokens - start)

    def _number(self, digest: bytes) -> int:
        return self._numbers.setdefault(digest, _OWN + len(self._numbers))


def sent(trace: Trace, *, s_per_token: float) -> Iterator[Sent]:
    """Yield all calls in time order; equal times keep the trace's order.

    A call without a recorded time is due when everything it depends on is complete, plus its wait. Calls take their recorded time, or
    `s_per_token` for each output token. Sessions are read one by one; only calls later than the next session's start are held.
    """
    done: OrderedDict[str, list[float]] = OrderedDict()
    held: list[tuple[float, int, Sent]] = []
    order = count()
    for family in families(trace.sessions):
        start_s = family[0].start_s or 0.0
        while held and held[0][0] < start_s:
            yield heapq.heappop(held)[2]
        starts = _starts(family, done, s_per_token)
        for session in family:
            for number, context in enumerate(contexts(trace.header, session)):
                call = Sent(
                    at_s=starts[session.session][number], session=session, number=number, turn=session.turns[number], context=context
                )
                heapq.heappush(held, (call.at_s, next(order), call))
        while len(done) > REACH:
            done.popitem(last=False)
    while held:
        yield heapq.heappop(held)[2]


def _starts(family: list[Session], done: "OrderedDict[str, list[float]]", s_per_token: float) -> dict[str, list[float]]:
    """Return the send time of each call, resolving sessions in turn; record when each call is complete."""
    spawned = {child: (session.session, number) for session in family for number, turn in enumerate(session.turns) for child in turn.spawn}
    starts: dict[str, list[float]] = {session.session: [] for session in family}
    done.update((session.session, []) for session in family)
    sizes = {session.session: len(session.turns) for session in family}
    waiting = list(family)
    while waiting:
        before = sum(map(len, starts.values()))
        for session in waiting:
            _advance(session, starts[session.session], done, spawner=spawned.get(session.session), sizes=sizes, s_per_token=s_per_token)
        waiting = [session for session in waiting if len(starts[session.session]) < len(session.turns)]
        if sum(map(len, starts.values())) == before:
            names = ", ".join(session.session for session in waiting)
            raise TraceError(f"calls of {names} wait for each other or for a missing session", hint="agentload trace check FILE")
    return starts


def _advance(
    session: Session,
    starts: list[float],
    done: "OrderedDict[str, list[float]]",
    *,
    spawner: tuple[str, int] | None,
    sizes: dict[str, int],
    s_per_token: float,
) -> None:
    """Resolve the next calls of a session, as far as what they wait for is known."""
    own = done[session.session]
    while len(starts) < len(session.turns):
        turn = session.turns[len(starts)]
        ready = [own[-1]] if own else [session.start_s] if session.start_s is not None else []
        others = [(ref.session, ref.turn) for ref in turn.after] + ([spawner] if spawner is not None and not own else [])
        for name, number in others:
            ends = done.get(name, [])
            at = sizes.get(name, len(ends)) - 1 if number < 0 else number
            if at < 0 or at >= len(ends):
                return
            ready.append(ends[at])
        recorded = turn.recorded
        at_s = recorded.start_s if recorded is not None and recorded.start_s is not None else max(ready, default=0.0) + turn.wait_s
        took_s = recorded.api_s if recorded is not None and recorded.api_s is not None else turn.output * s_per_token
        starts.append(at_s)
        own.append(at_s + took_s)
