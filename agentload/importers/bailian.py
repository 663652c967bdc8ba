"""Bailian traces (alibaba-edu/qwen-bailian-usagetraces-anon): one
request a line, linked to its parent, with ids of 16-token blocks.

{"chat_id", "parent_chat_id": -1 or a chat, "timestamp": s, "input_length", "output_length",
"type", "turn", "hash_ids"}. A chat and its descendants are one session; every line holds
its whole context, so that sharing is exact within and between sessions. Waits between turns
include the service time of the previous answer, which is not in the source.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from agentload.importers.parts import Head, Intake, SizedCall, requests
from agentload.plugins import Count, Positive, Seconds

FILES: Final = ("*.jsonl",)
LICENCE: Final = (
    "the public Bailian traces are Apache-2.0 (alibaba-edu/qwen-bailian-usagetraces-anon)"
)
_ROOT: Final = -1


class _Line(msgspec.Struct):
    chat_id: int
    timestamp: Seconds
    input_length: Positive
    output_length: Count
    parent_chat_id: int = _ROOT
    type: str = ""
    hash_ids: list[int] = []


def sniff(head: Head) -> float:
    """Look for the link to the parent."""
    return 1.0 if head.has("chat_id", "parent_chat_id", "input_length") else 0.0


@requests.reader(requests.sessions, workload="bailian")
def sessions(intake: Intake, *, block: Positive = 16) -> Iterator[SizedCall]:
    """Yield a session for each chat without a parent."""
    roots: dict[int, int] = {}
    for place, line in intake.records(_Line):
        root = line.chat_id
        if line.parent_chat_id != _ROOT:
            root = roots.get(line.parent_chat_id, line.parent_chat_id)
            if line.parent_chat_id not in roots:
                intake.notes.meet(place, "the parent is not in the source, or follows later")
        roots[line.chat_id] = root
        if len(line.hash_ids) > -(-line.input_length // block):
            intake.notes.meet(
                place, f"more block ids than fit a prompt of this length (block={block})"
            )
        yield SizedCall(
            session=str(root),
            at_s=line.timestamp,
            place=place,
            prompt=line.input_length,
            output=line.output_length,
            ids=[intake.identity.block(found) for found in line.hash_ids],
            workload=f"bailian-{line.type}" if line.type else None,
        )
