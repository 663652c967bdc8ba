"""Claude Code's sessions: ~/.claude/projects/*/*.jsonl, with sub-agents
in SESSION/subagents/, next to them, or inside (isSidechain).

Several lines with one message.id and requestId are one call, with the largest usage among them; a
resumed session repeats earlier calls in a new file, and these are counted once. A prompt is input
+ cache_read + cache_creation. Often the log has only the output tokens of the stream's start (2,
say): then they are estimated from the answer's length. The log has no send times: a call is taken
as sent when the last entry it answers was written. Results of parallel tools are siblings in the
log's tree and sequential here. The system prompt and tools are the tokens of the first prompt
beyond its messages, assumed to be the same for a project and version, or a kind of sub-agent.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from agentload.importers.parts import (
    AgentTranscript,
    CallTiming,
    CallUsage,
    ContextPiece,
    Head,
    ImportNotes,
    Intake,
    JsonRecord,
    Placed,
    TranscriptEntry,
    chat,
    fields,
    files,
    reuse,
    transcripts,
)
from agentload.model.trace import Session

FILES: Final = ("*.jsonl",)
_KNOWN: Final = frozenset(
    {
        "agent-color",
        "agent-name",
        "ai-title",
        "assistant",
        "attachment",
        "content-replacement",
        "custom-title",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "summary",
        "system",
        "tag",
        "user",
        "worktree-state",
    }
)
"""Types of lines, of those that say something and of others."""
_PROMPT: Final = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")


def sniff(head: Head) -> float:
    """Look for log lines, linked by parentUuid, or for leading titles."""
    for record in head.records:
        if "sessionId" in record and ("parentUuid" in record or "uuid" in record):
            return 0.95
    if head.has("summary", "leafUuid") or head.record.get("type") == "file-history-snapshot":
        return 0.6
    return 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each file with a call, and one for each sub-agent."""
    seen: set[int] = set()
    found: list[AgentTranscript] = []
    for path in intake.files:
        if path.name != "journal.jsonl":
            found += _transcripts(intake, path, seen)
    return transcripts.sessions(intake, found)


def _transcripts(intake: Intake, path: Path, seen: set[int]) -> Iterator[AgentTranscript]:
    """Return the transcripts of a file: a session or a sub-agent, and
    the sub-agents inside it, found by a first pass over its links.
    """
    agents: dict[str, tuple[float, str]] = {}
    for agent, _, record in _by_agent(
        _count_unknown(intake, files.records(path, JsonRecord, intake.notes))
    ):
        at_s = fields.stamp(record)
        if agent not in agents and at_s is not None:
            agents[agent] = (at_s, f"{record.get('cwd')} {record.get('version')}")
    is_own = len(agents) == 1 and "" not in agents
    for agent, (began_s, lead) in agents.items():
        spawned_by = None
        if agent:
            spawned_by = _parent(path) if is_own else path.stem
        yield AgentTranscript(
            read=partial(_read, intake, path, agent, seen),
            key=agent or path.stem,
            workload="claude_code-subagent" if agent else "claude_code",
            began_s=began_s,
            lead=f"claude_code agent {_kind(path)}" if agent else f"claude_code {lead}",
            spawned_by=spawned_by,
        )


def _parent(path: Path) -> str | None:
    """Return the session that a sub-agent's file belongs to."""
    if "subagents" in path.parts:
        return path.parts[path.parts.index("subagents") - 1]
    return Head(path).record.get("sessionId")


def _kind(path: Path) -> str:
    """Return the kind of the sub-agents in a file, from the description next to it."""
    beside = path.with_name(f"{path.stem}.meta.json")
    said = files.parse_json(beside.read_bytes()) if beside.exists() else None
    if not isinstance(said, dict):
        return ""
    return str(said.get("agentType"))


@dataclass(slots=True, kw_only=True, eq=False)
class _Node:
    """An answer and what follows it, or a message."""

    id: str
    parent: "_Node | None"
    place: str
    last_s: float | None
    """When its latest line was written."""
    sent_s: float | None = None
    done_s: float | None = None
    said: list[ContextPiece] = field(default_factory=list)
    """The message, or the answer."""
    more: list[tuple[tuple[ContextPiece, ...], str | None]] = field(default_factory=list)
    """What follows an answer, each with the sub-agent it reports on."""
    usage: dict[str, int] | None = None
    """Usage of an answer: the largest count of each kind in its lines."""
    model: str | None = None
    name: int = 0
    """Identifies message and request of an answer, which a resumed session repeats."""

    @property
    def tip(self) -> str:
        """Return the name of its last entry."""
        if self.more:
            return f"{self.id}/{len(self.more)}"
        return self.id


def _by_agent(found: Iterable[tuple[str, JsonRecord]]) -> Iterator[tuple[str, str, JsonRecord]]:
    """Yield (sub-agent or nothing, place, line) of linked lines; in
    old logs, which name no agents, the first line identifies one.
    """
    agents: dict[str, str] = {}
    for place, record in found:
        uuid = record.get("uuid")
        if not isinstance(uuid, str):
            continue
        agent = ""
        if record.get("isSidechain"):
            above = agents.get(str(record.get("parentUuid")))
            agent = str(record.get("agentId") or above or uuid)
        agents[uuid] = agent
        yield agent, place, record


def _count_unknown(intake: Intake, found: Iterable[tuple[str, JsonRecord]]) -> Placed[JsonRecord]:
    """Pass lines through and count those of an unknown type."""
    for place, record in found:
        if str(record.get("type")) not in _KNOWN:
            intake.notes.meet(place, "a line of an unknown type")
        yield place, record


def _read(intake: Intake, path: Path, agent: str, seen: set[int]) -> list[TranscriptEntry]:
    """Return the entries of one agent in a file; `seen` are the calls of earlier files."""
    tree = _Tree(intake)
    # Errors were reported in the first pass.
    for whose, place, record in _by_agent(files.records(path, JsonRecord, ImportNotes("lenient"))):
        if whose == agent:
            tree.add(place, record)
    return [entry for node in tree.nodes for entry in _entries(intake, node, seen)]


class _Tree:
    """The nodes of one agent's lines."""

    def __init__(self, intake: Intake) -> None:
        self.nodes: list[_Node] = []
        self._intake = intake
        self._owners: dict[str, _Node] = {}  # the node of each line
        self._by_call: dict[str, _Node] = {}  # by the id of a tool call
        self._by_name: dict[int, _Node] = {}  # by message and request

    def add(self, place: str, record: JsonRecord) -> None:
        """Add a line: to the answer it belongs to or follows, or as a message of its own."""
        above = self._owners.get(str(record.get("parentUuid")))
        message = record.get("message")
        if record.get("type") == "assistant" and isinstance(message, dict):
            node = self._node_of_answer(record, message, above, place)
        else:
            node = self._node_of_input(record, message, above, place)
        self._owners[record["uuid"]] = node

    def _node_of_answer(
        self, record: JsonRecord, message: JsonRecord, above: _Node | None, place: str
    ) -> _Node:
        """Return the node of an answer, of which a line may be the first or another one."""
        own = message.get("id") or record["uuid"]
        name = reuse.identity(f"{own} {record.get('requestId')}")
        node = self._by_name.get(name)
        if node is None:
            node = self._new_node(record, above, place, name=name)
            self._by_name[name] = node
        _extend_answer(self._intake, node, record, message)
        self._by_call.update(dict.fromkeys(_ids(message, "tool_use", "id"), node))
        return node

    def _node_of_input(
        self, record: JsonRecord, message: object, above: _Node | None, place: str
    ) -> _Node:
        """Return the node that a line follows as a result or a note, or a new one for a message."""
        results = _ids(files.as_object(message), "tool_result", "tool_use_id")
        answered = above
        for result in reversed(results):
            answered = self._by_call.get(result, answered)
        pieces = tuple(_pieces(self._intake, record))
        if answered is None or (record.get("type") == "user" and not results):
            node = self._new_node(record, above, place)
            node.said += pieces
            return node
        if pieces:
            answered.more.append((pieces, _sub_agent(record)))
            answered.last_s = fields.stamp(record) or answered.last_s
        return answered

    def _new_node(
        self, record: JsonRecord, above: _Node | None, place: str, *, name: int = 0
    ) -> _Node:
        """Add a node for a line that belongs to no other."""
        at_s = fields.stamp(record)
        sent_s = None if above is None else above.last_s
        node = _Node(
            id=record["uuid"],
            parent=above,
            place=place,
            last_s=at_s,
            sent_s=at_s if sent_s is None else sent_s,
            name=name,
        )
        self.nodes.append(node)
        return node


def _extend_answer(intake: Intake, node: _Node, record: JsonRecord, message: JsonRecord) -> None:
    """Add what another line of an answer says; usage grows from line to line."""
    node.said += chat.pieces(intake, "assistant", message)
    node.last_s = fields.stamp(record) or node.last_s
    node.done_s = node.last_s
    model = files.as_text(message.get("model"))
    if model is not None:
        node.model = model
    node.usage = node.usage or {}
    for kind, count in files.as_object(message.get("usage")).items():
        if type(count) is int:
            node.usage[kind] = max(count, node.usage.get(kind, 0))


def _pieces(intake: Intake, record: JsonRecord) -> Iterator[ContextPiece]:
    """Yield what a line adds to the context: a message, or an attachment."""
    message = record.get("message")
    if isinstance(message, dict):
        yield from chat.pieces(intake, "user", message)
    elif record.get("type") == "attachment":
        text = msgspec.json.encode(record.get("attachment")).decode()
        yield chat.words(intake, "user", text)


def _ids(message: JsonRecord, kind: str, name: str) -> list[str]:
    """Return the ids, in the field *name*, of a message's blocks of a kind."""
    blocks = files.objects(message.get("content"))
    return [str(block.get(name)) for block in blocks if block.get("type") == kind]


def _sub_agent(record: JsonRecord) -> str | None:
    agent = files.as_object(record.get("toolUseResult")).get("agentId")
    return str(agent) if agent else None


def _entries(intake: Intake, node: _Node, seen: set[int]) -> Iterator[TranscriptEntry]:
    """Yield a node's entry, a call where it is an answer not *seen* before, then what follows."""
    parent = None if node.parent is None else node.parent.tip
    said = tuple(node.said)
    entry = TranscriptEntry(
        id=node.id, parent=parent, place=node.place, at_s=node.done_s, pieces=said
    )
    if node.usage is None:
        yield entry
    elif node.model == "<synthetic>":
        intake.notes.drop("an answer not from a model (an error shown to the user)")
        yield replace(entry, pieces=())
    elif node.name in seen:
        intake.notes.drop("a call repeated from an earlier file (a resumed session)")
        yield entry
    else:
        seen.add(node.name)
        yield replace(
            entry,
            timing=CallTiming(sent_s=node.sent_s, done_s=node.done_s),
            usage=_usage(intake, node, said),
            model=node.model,
        )
    above = node.id
    for number, (pieces, child) in enumerate(node.more, start=1):
        own = f"{node.id}/{number}"
        yield TranscriptEntry(
            id=own, parent=above, place=node.place, at_s=node.last_s, pieces=pieces, child=child
        )
        above = own


def _usage(intake: Intake, node: _Node, said: Sequence[ContextPiece]) -> CallUsage:
    """Return the usage of an answer, whose output is estimated where the log has only its start."""
    usage = node.usage or {}
    if not usage:
        intake.notes.meet(node.place, "an answer without usage")
    output = usage.get("output_tokens")
    length = chat.total(said)
    if output is not None and output < length // 2:
        intake.notes.estimate(
            "output tokens of a call: estimated from its answer, since the log has only "
            "the start of the stream"
        )
        output = length
    return CallUsage(
        prompt=sum(usage.get(kind, 0) for kind in _PROMPT) or None,
        output=output,
        cached=usage.get("cache_read_input_tokens"),
    )
