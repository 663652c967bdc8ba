"""Mooncake traces: one call a line with its time, lengths and the ids of its blocks, sorted by time.

Times are the recorded ones, or come out of starts, waits and edges, a call taking s_per_token for each token of its output. Blocks are of
`block` tokens, the trace's own by default, so that a trace imported from Mooncake goes back as it came (lines do not say which: read
others back with block=64). Roles, edges, kinds of wait and checks are lost. sessions=aiperf adds AIPerf's session_id, and the delay in
the place of later times; each line still holds the whole context, and says so.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

from agentload.exporters.parts.blocks import Blocks
from agentload.exporters.parts.schedule import Sent, sent
from agentload.importers.mooncake import ORIGIN
from agentload.model.trace import Session, Trace
from agentload.plugins import Count, Seconds

_WHOLE = "message_array_with_responses"  # AIPerf's name for lines that hold the whole context


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
    """Return whole milliseconds as a whole number, as the public traces have them."""
    millis = round(seconds * 1000, 3)
    return int(millis) if millis.is_integer() else millis
