"""Mooncake traces: one call a line with its time, lengths and block ids, sorted by time.

Times are the recorded ones, or follow from starts, waits and edges, with s_per_token for each
output token of a call. Blocks have `block` tokens, by default the trace's own, so that an import
from Mooncake is exported unchanged (lines do not state the size: import others with block=64).
Roles, edges, kinds of wait and checks are lost. sessions=aiperf adds AIPerf's session_id, and
delays instead of later times; each line still holds the whole context, and says so.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, Literal

import msgspec

from agentload.errors import TraceError
from agentload.importers.mooncake import ORIGIN
from agentload.model.trace import Recorded, Segment, Session, Trace, Turn, total_tokens
from agentload.model.walk import contexts
from agentload.plugins import Count, Seconds
from agentload.tracefile.pace import Paced, TimedCall

_WHOLE = "message_array_with_responses"  # AIPerf's name for lines that hold the whole context
_OWN: Final = 1 << 33
"""The first new block number; imported blocks keep theirs below it."""


def lines(
    trace: Trace,
    *,
    block: Count = 0,
    s_per_token: Seconds = 0.02,
    sessions: Literal["flat", "aiperf"] = "flat",
) -> Iterator[bytes]:
    """Yield a line for each call; block=0 takes the trace's."""
    blocks = Blocks(block=block or trace.header.block, source=trace.header.block)
    encode = msgspec.json.Encoder().encode
    origin_s: float | None = None
    kept: dict[
        str, dict[int, tuple[Segment, ...]]
    ] = {}  # contexts of sessions whose calls were not all sent yet
    paced = Paced(trace, partial(_times_of_record, s_per_token=s_per_token))
    for call in paced:
        origin_s = _origin(call.session) if origin_s is None else origin_s
        line: dict[str, Any] = (
            _name_and_time(call, origin_s)
            if sessions == "aiperf"
            else {"timestamp": _millis(origin_s + call.start_s)}
        )
        name, recorded = call.session.session, call.turn.recorded
        if name not in kept:
            kept[name] = dict(enumerate(contexts(trace.header, call.session)))
        context = kept[name].pop(call.number)
        if not kept[name]:
            del kept[name]
        line["input_length"] = total_tokens(context)
        line["output_length"] = (
            call.turn.output if recorded is None or recorded.output is None else recorded.output
        )
        line["hash_ids"] = blocks.ids(context)
        yield encode(line) + b"\n"
    if paced.missing:
        what = f"calls of {', '.join(paced.missing)} wait for each other or for a missing session"
        raise TraceError(what, hint="agentload trace check FILE")


def _times_of_record(turn: Turn, at_s: float, *, s_per_token: float) -> tuple[float, float]:
    """Send a call when it was sent and let it take what it took, where that was recorded."""
    recorded = turn.recorded or Recorded()
    start_s = at_s if recorded.start_s is None else recorded.start_s
    return start_s, start_s + (
        turn.output * s_per_token if recorded.api_s is None else recorded.api_s
    )


def _origin(first: Session) -> float:
    found = next((msgspec.json.decode(value) for name, value in first.extra if name == ORIGIN), 0.0)
    if not isinstance(found, float | int):
        return 0.0
    return found


def _name_and_time(call: TimedCall, origin_s: float) -> dict[str, Any]:
    """Return a call's session, and when it starts or how long it waits."""
    time = (
        {"delay": _millis(call.turn.wait_s)}
        if call.number
        else {"timestamp": _millis(origin_s + call.start_s)}
    )
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
        own = self._imported_ids(context)
        if own is None:
            return list(self._chain_ids(context))
        return own

    def _imported_ids(self, context: Sequence[Segment]) -> list[int] | None:
        """Return the imported ids of a context made only of imported blocks."""
        if self._block != self._source:
            return None
        found: list[int] = []
        for number, segment in enumerate(context):
            if isinstance(segment.key, str) or (
                segment.tokens % self._block and number < len(context) - 1
            ):
                return None
            first = segment.key[0]
            found += range(first, first + -(-segment.tokens // self._block))
        return found

    def _chain_ids(self, context: Sequence[Segment]) -> Iterator[int]:
        """Yield the numbers of a context's blocks, each by all content up to its end."""
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
        """Yield a segment's content as (name, tokens);
        imported blocks one by one, since runs may share some.
        """
        match segment.key:
            case str() as key:
                yield f"{key!r} {segment.pixels}", segment.tokens
            case (first, _):
                for position, start in enumerate(range(0, segment.tokens, self._source)):
                    yield f"#{first + position}", min(self._source, segment.tokens - start)

    def _number(self, digest: bytes) -> int:
        return self._numbers.setdefault(digest, _OWN + len(self._numbers))
