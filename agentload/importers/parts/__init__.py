"""What importers share, in one place: reading, identity, anomalies, sizes, time, structure."""

from agentload.importers.parts import (
    blocks,
    chat,
    fields,
    files,
    order,
    requests,
    reuse,
    transcripts,
)
from agentload.importers.parts.blocks import Growth, Numbering, Prompt, change
from agentload.importers.parts.chat import Piece
from agentload.importers.parts.dialogue import Dialogue, Timing, Usage
from agentload.importers.parts.fields import agents_usage, rows, seconds
from agentload.importers.parts.files import head, lines, parsed, records
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.order import Grid, by_session, in_order, started
from agentload.importers.parts.requests import Continuations, Logged, Request
from agentload.importers.parts.reuse import Trail
from agentload.importers.parts.transcripts import Entry, Transcript

__all__ = [
    "Continuations",
    "Dialogue",
    "Entry",
    "Grid",
    "Growth",
    "Head",
    "Intake",
    "Logged",
    "Notes",
    "Numbering",
    "Piece",
    "Prompt",
]
__all__ += [
    "Request",
    "Timing",
    "Trail",
    "Transcript",
    "Usage",
    "agents_usage",
    "blocks",
    "by_session",
    "change",
    "chat",
    "fields",
]
__all__ += [
    "files",
    "head",
    "in_order",
    "lines",
    "order",
    "parsed",
    "records",
    "requests",
    "reuse",
    "rows",
    "seconds",
    "started",
]
__all__ += ["transcripts"]
