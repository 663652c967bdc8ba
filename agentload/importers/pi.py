"""Sessions of the pi coding agent (badlogic/pi-mono):
~/.pi/agent/sessions/*/*.jsonl, versions 1 (a line) to 3 (a tree).

{"type": "session", "version", "cwd", ...}, then {"type": "message" | "compaction" |
"branch_summary" | ..., "id", "parentId", ...}. Every answer with usage is a call: its prompt is
input + cacheRead + cacheWrite, it was sent when the message was made and complete when the
entry was written. The system prompt and tools are not in the files: they have the tokens of the
first prompt beyond its messages, and are assumed to be the same for all sessions in a folder.
"""

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from agentload.importers.parts import (
    AgentTranscript,
    Head,
    ImportNotes,
    Intake,
    JsonRecord,
    fields,
    files,
    records,
    transcripts,
)
from agentload.model.trace import Session

FILES: Final = ("*.jsonl",)
_LOOKED_AT: Final = 50
"""Entries of a file among which its earliest is."""


def sniff(head: Head) -> float:
    """Look for the session's first line, or for an entry."""
    if head.record.get("type") == "session" and "timestamp" in head.record:
        return 0.9
    if head.has("type", "message", "timestamp") and not head.has("uuid"):
        return 0.5
    return 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each file with a call."""
    return transcripts.sessions(intake, (_transcript(intake, path) for path in intake.files))


def _transcript(intake: Intake, path: Path) -> AgentTranscript:
    return AgentTranscript(
        read=partial(transcripts.entries_of_file, intake, path),
        key=str(path),
        workload="pi",
        began_s=_first(path),
        lead=f"pi {Head(path).record.get('cwd')}",
    )


def _first(path: Path) -> float:
    """Return the earliest time of a file's first entries; a branched
    session's header is younger than the entries it starts with.
    """
    times = []
    for _, record in islice(records(path, JsonRecord, ImportNotes("lenient")), _LOOKED_AT):
        message = files.as_object(record.get("message"))
        at_s = fields.first_known((fields.stamp(message), fields.stamp(record)))
        if at_s is not None:
            times.append(at_s)
    return min(times, default=0.0)
