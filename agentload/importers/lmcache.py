"""LMCache agent traces (LMCache/lmcache-agent-trace): one request a line, its prompt as one text.

{"timestamp": µs, "session_id", "input", "output"}. A prompt is cut into blocks of `block`
tokens of four bytes, numbered in order of appearance with equal numbers for equal text up
to their end, so prompts share exactly what their texts share, within and between sessions.
Roles and service times are not in the source, and lines of a session may be out of order.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agentload.importers.parts import Head, Intake, Numbering, SizedCall, fields, requests
from agentload.plugins import Positive

FILES: Final = ("*.jsonl",)
LICENCE: Final = "the public agent traces are under the terms of LMCache/lmcache-agent-trace"


class _Line(msgspec.Struct):
    timestamp: float
    session_id: str
    input: str
    output: str


def sniff(head: Head) -> float:
    """Look for a prompt and an answer as texts."""
    if head.has("session_id", "input", "output", "timestamp") and isinstance(
        head.record["input"], str
    ):
        return 0.95
    return 0.0


@requests.reader(requests.sessions, workload="lmcache")
def sessions(intake: Intake, *, block: Positive = 16) -> Iterator[SizedCall]:
    """Yield a session for each `session_id`."""
    numbering = Numbering(block)
    for place, line in intake.records(_Line):
        at_s = fields.seconds(line.timestamp)
        prompt = intake.length(line.input)
        if at_s is None or not prompt:
            intake.notes.skip(place, "no time" if at_s is None else "an empty prompt")
            continue
        if intake.texts is not None:
            intake.name("user", line.input)
        intake.notes.estimate("tokens of a prompt and an answer: estimated at four bytes each")
        yield SizedCall(
            session=line.session_id,
            at_s=at_s,
            place=place,
            prompt=prompt,
            output=max(1, intake.length(line.output)),
            ids=numbering.text(line.input),
        )
