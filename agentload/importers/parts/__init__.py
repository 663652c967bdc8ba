"""Turn a source into sessions: source, then record, then session. The map of what importers share.

Source. An importer takes an `Intake` (`intake`): its files, its `ImportNotes` of what was odd,
estimated or dropped (`notes`), and the keys of contents. `files` yields JSON values and lines of
plain or compressed files, `fields` rows of tables, times and usages. `Head` is what `sniff` sees.

JsonRecord. An importer turns each call of its source into one of three records, by what the source
knows of a prompt:

- its length, perhaps with block ids: a `SizedCall`;
- its messages, as `ContextPiece`s (`chat` reads them): a `SpokenCall`;
- its place in a transcript with branches, compactions and sub-agents: a `TranscriptEntry` of an
  `AgentTranscript`.

`order` groups the records of interleaved sessions, in bounded memory.

Session. `requests.sessions` makes turns of sized calls, and `blocks` names what prompts share.
`requests.conversations` makes entries of spoken calls, `transcripts.sessions` takes entries as
they are, and `transcripts.play` plays entries into a `Dialogue`, which alone knows how a context
of messages grows. Block ids that mean something in one conversation alone grow its `BlockPrompt`s
in a `PromptTree`, and `change` says what a turn keeps and adds.

Check. `reuse` computes the ideal hit rate of the source while the source is read, and the one of
the sessions made from it: the two must agree.
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
from agentload.importers.parts.blocks import BlockPrompt, Numbering, PromptTree, change
from agentload.importers.parts.chat import ContextPiece
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue
from agentload.importers.parts.fields import agents_usage, rows, seconds
from agentload.importers.parts.files import JsonRecord, Placed, head, lines, parse_json, records
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import ImportNotes
from agentload.importers.parts.order import CallGroup, Grid, by_session, groups, in_order
from agentload.importers.parts.requests import Continuations, SizedCall, SpokenCall
from agentload.importers.parts.reuse import Trail
from agentload.importers.parts.transcripts import AgentTranscript, TranscriptEntry

__all__ = [
    "AgentTranscript",
    "BlockPrompt",
    "CallGroup",
    "CallTiming",
    "CallUsage",
    "ContextPiece",
    "Continuations",
    "Dialogue",
    "Grid",
    "Head",
    "ImportNotes",
    "Intake",
    "JsonRecord",
    "Numbering",
    "Placed",
    "PromptTree",
    "SizedCall",
    "SpokenCall",
    "Trail",
    "TranscriptEntry",
    "agents_usage",
    "blocks",
    "by_session",
    "change",
    "chat",
    "fields",
    "files",
    "groups",
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
]
