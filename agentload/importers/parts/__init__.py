"""Share the steps by which importers turn a source into sessions.

All importers take an `Intake` (`intake`): its files, its `Notes` of what was odd, estimated or
dropped (`notes`), and the identities of contents.

1. Read. `files` yields JSON values and lines of plain or compressed files, `fields` rows of
   tables, times and usages. `Head` is what `sniff` sees.
2. Sort. `order` groups the rows of interleaved sessions, and orders sessions by their starts, in
   bounded memory.
3. Make sessions, by what the source knows of a prompt:
   - Lengths, perhaps with block ids, are a `Request`; `requests.sessions` makes sessions of them,
     in which `blocks` names what the prompts of a conversation share.
   - The messages of single calls are `chat.Piece`s in a `Logged`; `requests.conversations` makes
     sessions of them.
   - A transcript of an agent, with branches and sub-agents, is a `Transcript` of `Entry`s;
     `transcripts.sessions` makes sessions of them.
   - Block ids that mean something in one conversation alone grow its `Prompt`s in a `Growth`, and
     `change` says what a turn keeps and adds.
   Messages and transcripts take one way: `requests.entries` makes entries of messages, and
   `transcripts.play` plays entries into a `Dialogue`, which alone knows how a context grows.
4. Check. `reuse` computes the ideal hit rate of the source while it is read, and the one of the
   sessions made from it.
"""

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
from agentload.importers.parts.files import head, lines, parse_json, records
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.order import Grid, by_session, in_order, with_starts
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
    "files",
    "head",
    "in_order",
    "lines",
    "order",
    "parse_json",
    "records",
    "requests",
    "reuse",
    "rows",
    "seconds",
    "transcripts",
    "with_starts",
]
