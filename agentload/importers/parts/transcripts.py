"""Turn agents' transcripts, with compactions, branches and sub-agents, into sessions.

Every recorded answer was a real call, on any branch, so all are played in file
order, each with the context of its place in the tree. A compaction's context is
its summary and the entries from the first kept one on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from agentload.importers.parts import chat, fields
from agentload.importers.parts.chat import ContextPiece
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue
from agentload.importers.parts.fields import agents_usage
from agentload.importers.parts.files import parse_json
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.order import in_order
from agentload.model.trace import Session, Wait

Record = dict[str, Any]
_SILENT: Final = frozenset(
    {"model_change", "thinking_level_change", "label", "session_info", "custom", "session"}
)
_MIRRORS: Final = frozenset({"delivery-mirror", "gateway-injected"})
"""Model names that OpenClaw writes for text not from a model."""
_HEARTBEAT: Final = "HEARTBEAT_OK"


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptEntry:
    """One entry, without its content."""

    id: str
    parent: str | None
    place: str
    at_s: float | None
    pieces: tuple[ContextPiece, ...] = ()
    timing: CallTiming | None = None
    """Times of a call; None for other entries."""
    usage: CallUsage | None = None
    model: str | None = None
    compacts: str | None = None
    """The first entry that a compaction keeps."""
    child: str | None = None
    """Key of the session that this result reports as spawned."""
    is_heartbeat: bool = False
    grows: str | None = None
    """Key of what a call adds, if its context is not shown."""
    asked: Wait | None = None
    """What a call waited for, if roles do not show it."""


def entries(intake: Intake, records: Iterable[tuple[str, Record]]) -> Iterator[TranscriptEntry]:
    """Read entries of all versions; older ones have no ids and are sequential."""
    before: str | None = None
    for number, (place, record) in enumerate(records):
        if record.get("type") == "session":
            continue
        found = record.get("id")
        own = found if isinstance(found, str) else f"#{number}"
        parent = record.get("parentId", before)
        entry = _entry(intake, record, own, parent if isinstance(parent, str) else None, place)
        before = own
        yield entry


def play(
    dialogue: Dialogue,
    found: Iterable[TranscriptEntry],
    *,
    main: str | None = None,
    asked: Wait | None = None,
    joins: Iterable[tuple[float, str]] = (),
) -> None:
    """Play entries into a dialogue; `main` is the default model.

    The next call after a child of `joins` is complete waits for it.
    """
    known: dict[str, TranscriptEntry] = {}
    open_joins = deque(sorted(joins))
    tip: str | None = None
    heartbeat = False
    for entry in found:
        if entry.parent != tip:
            dialogue.restart(_context(dialogue.intake, known, entry.parent, entry.place))
        known[entry.id] = entry
        tip = entry.id
        if entry.compacts is not None:
            dialogue.restart(_context(dialogue.intake, known, entry.id, entry.place))
        elif entry.timing is None:
            dialogue.add(entry.pieces)
            heartbeat = heartbeat or entry.is_heartbeat
        else:
            if entry.grows is not None:
                dialogue.grow((entry.usage and entry.usage.prompt) or 1, entry.grows)
            sent_s = entry.timing.sent_s
            done = []
            while open_joins and sent_s is not None and open_joins[0][0] <= sent_s:
                done.append(open_joins.popleft())
            dialogue.call(
                timing=entry.timing,
                usage=entry.usage or CallUsage(),
                answer=entry.pieces,
                place=entry.place,
                model=None if entry.model == main else entry.model,
                event="heartbeat" if heartbeat else None,
                asked="schedule" if heartbeat else entry.asked or asked,
                joins=done,
            )
            heartbeat = False


def spawns(found: Iterable[TranscriptEntry]) -> Iterator[tuple[str, float]]:
    """Yield the key of each spawned session, and when the spawning call was complete."""
    done_s: float | None = None
    for entry in found:
        if entry.timing is not None and entry.timing.done_s is not None:
            done_s = entry.timing.done_s
        if entry.child is not None and done_s is not None:
            yield entry.child, done_s


def _context(
    intake: Intake, known: Mapping[str, TranscriptEntry], tip: str | None, place: str
) -> list[ContextPiece]:
    """Return the context of a call after this entry."""
    path: list[TranscriptEntry] = []
    seen: set[str] = set()
    while tip is not None:
        if tip in seen or tip not in known:
            intake.notes.meet(place, "a cycle of parents" if tip in seen else "a missing parent")
            break
        seen.add(tip)
        path.append(known[tip])
        tip = known[tip].parent
    path.reverse()
    for number in range(len(path) - 1, -1, -1):
        entry = path[number]
        if entry.compacts is not None:
            kept = next(
                (at for at, other in enumerate(path[:number]) if other.id == entry.compacts), number
            )
            path = [entry, *path[kept:number], *path[number + 1 :]]
            break
    return [piece for entry in path for piece in entry.pieces]


def _entry(
    intake: Intake, record: Record, own: str, parent: str | None, place: str
) -> TranscriptEntry:
    kind = record.get("type")
    at_s = fields.seconds(record.get("timestamp"))
    common: dict[str, Any] = {"id": own, "parent": parent, "place": place, "at_s": at_s}
    message = record.get("message")
    if kind == "message" and isinstance(message, dict):
        return _message(intake, message, common)
    if kind == "compaction":
        kept = record.get("firstKeptEntryId", record.get("firstKeptEntryIndex"))
        intake.notes.drop("the call that wrote a compaction's summary: not in the transcript")
        return TranscriptEntry(
            **common,
            pieces=_said(intake, record.get("summary")),
            compacts=f"#{kept}" if isinstance(kept, int) else str(kept),
        )
    if kind == "branch_summary":
        return TranscriptEntry(**common, pieces=_said(intake, record.get("summary")))
    if kind == "custom_message":
        return TranscriptEntry(**common, pieces=tuple(chat.pieces(intake, "user", record)))
    if kind not in _SILENT:
        intake.notes.meet(place, "an entry of an unknown type")
    return TranscriptEntry(**common)


def _said(intake: Intake, text: object) -> tuple[ContextPiece, ...]:
    return tuple(chat.pieces(intake, "user", {"content": text})) if isinstance(text, str) else ()


def _message(intake: Intake, message: Record, common: dict[str, Any]) -> TranscriptEntry:
    role = message.get("role")
    if role == "assistant":
        return _answer(intake, message, common)
    if role == "bashExecution":
        if message.get("excludeFromContext"):
            return TranscriptEntry(**common)
        return TranscriptEntry(
            **common, pieces=_said(intake, f"{message.get('command')}\n{message.get('output')}")
        )
    if role in {"branchSummary", "compactionSummary"}:
        return TranscriptEntry(**common, pieces=_said(intake, message.get("summary")))
    pieces = tuple(chat.pieces(intake, chat.role_of(role), message))
    text = chat.text_of(message.get("content")) if role == "user" else ""
    return TranscriptEntry(
        **common, pieces=pieces, child=_child(message), is_heartbeat=_HEARTBEAT in text
    )


def _answer(intake: Intake, message: Record, common: dict[str, Any]) -> TranscriptEntry:
    model = message.get("model")
    if model in _MIRRORS:
        intake.notes.drop("an answer not from a model (a copy of what was delivered)")
        return TranscriptEntry(**common)
    pieces = tuple(chat.pieces(intake, "assistant", message))
    usage = agents_usage(message.get("usage"))
    if (
        isinstance(message.get("usage"), dict)
        and not usage.output
        and message.get("stopReason") in {"error", "aborted"}
    ):
        intake.notes.drop("a call that failed or was stopped before its first token")
        return TranscriptEntry(**common)
    if not usage.output and not usage.prompt:
        intake.notes.meet(common["place"], "an answer without usage")
    sent_s = fields.seconds(message.get("timestamp"))
    return TranscriptEntry(
        **common,
        pieces=pieces,
        timing=CallTiming(
            sent_s=common["at_s"] if sent_s is None else sent_s, done_s=common["at_s"]
        ),
        usage=usage,
        model=model if isinstance(model, str) else None,
    )


def _child(message: Record) -> str | None:
    if message.get("toolName") != "sessions_spawn":
        return None
    for found in (message.get("details"), parse_json(chat.text_of(message.get("content")))):
        if isinstance(found, dict) and isinstance(found.get("childSessionKey"), str):
            return str(found["childSessionKey"])
    return None


@dataclass(slots=True, kw_only=True, eq=False)
class AgentTranscript:
    """One conversation's entries, read when needed."""

    read: Callable[[], Sequence[TranscriptEntry]]
    key: str
    """Its key in other transcripts."""
    workload: str
    began_s: float
    """A lower bound for the time of its first call."""
    lead: str | None = None
    """Key of a system prompt and tools that the transcript does not show; equal keys share.

    None if it shows all.
    """
    spawned_by: str | None = None
    opening: Callable[[], Sequence[ContextPiece]] = tuple
    """Reads the system prompt and tools, if recorded."""
    asked: Wait | None = None
    """What all its calls waited for, if roles do not show it."""
    children: "list[AgentTranscript]" = field(default_factory=list)


def sessions(intake: Intake, found: Iterable[AgentTranscript]) -> Iterator[Session]:
    """Yield a session for each transcript with a call, each sub-agent after its parent."""
    transcripts = list(found)
    origin_s = min((one.began_s for one in transcripts), default=0.0)
    yield from in_order(families(intake, transcripts, name="s", origin_s=origin_s))


def families(
    intake: Intake, found: Iterable[AgentTranscript], *, name: str, origin_s: float
) -> Iterator[tuple[float, list[Session]]]:
    """Yield (lower bound of its start, sessions) of each family, in order of that bound."""
    transcripts = list(found)
    by_key: dict[str, list[AgentTranscript]] = {}
    for transcript in transcripts:
        by_key.setdefault(transcript.key, []).append(transcript)
    roots = sorted(
        (one for one in transcripts if not _is_adopted(one, by_key)), key=lambda one: one.began_s
    )
    for number, root in enumerate(roots):
        yield (
            root.began_s - origin_s,
            _family(intake, root, f"{name}{number}", origin_s, spawned_s=None)[0],
        )


def _is_adopted(
    transcript: AgentTranscript, by_key: Mapping[str, Sequence[AgentTranscript]]
) -> bool:
    """Attach a transcript to its parent, unless they spawned each other."""
    parent = _above(transcript, by_key)
    seen = [transcript]
    ancestor = parent
    while ancestor is not None:
        if any(ancestor is one for one in seen):
            return False
        seen.append(ancestor)
        ancestor = _above(ancestor, by_key)
    if parent is not None:
        parent.children.append(transcript)
    return parent is not None


def _above(
    transcript: AgentTranscript, by_key: Mapping[str, Sequence[AgentTranscript]]
) -> AgentTranscript | None:
    """Return the parent: the last started one with its key, which resets and rollovers repeat."""
    found = () if transcript.spawned_by is None else by_key.get(transcript.spawned_by, ())
    return max(
        (one for one in found if one.began_s <= transcript.began_s),
        key=lambda one: one.began_s,
        default=next(iter(found), None),
    )


def _family(
    intake: Intake,
    transcript: AgentTranscript,
    name: str,
    origin_s: float,
    *,
    spawned_s: float | None,
) -> tuple[list[Session], float | None]:
    """Return a session with its descendants, and when it ended."""
    found = transcript.read()
    main = next((entry.model for entry in found if entry.timing is not None), None)
    opening = tuple(transcript.opening())
    lead = (
        None
        if opening or transcript.lead is None
        else intake.identity.of("system", transcript.lead)
    )
    dialogue = Dialogue(
        intake=intake, origin_s=origin_s, lead=lead, opening=opening, spawned_s=spawned_s
    )
    told = dict(spawns(found))
    families: list[tuple[float, list[Session], float | None]] = []
    for position, child in enumerate(sorted(transcript.children, key=lambda one: one.began_s)):
        at_s = told.get(child.key, _last_done(found, child.began_s))
        family, done_s = _family(intake, child, f"{name}.{position + 1}", origin_s, spawned_s=at_s)
        if family:
            families.append((at_s, family, done_s))
    joins = [(done_s, family[0].session) for _, family, done_s in families if done_s is not None]
    play(dialogue, found, main=main, asked=transcript.asked, joins=joins)
    if not dialogue.turns:
        intake.notes.drop("a session without a call")
        return [], None
    for at_s, family, _ in families:
        dialogue.spawn(family[0].session, at_s)
    own = dialogue.session(name, workload=transcript.workload)
    return [own, *(session for _, family, _ in families for session in family)], dialogue.ready_s


def _last_done(found: Sequence[TranscriptEntry], until_s: float) -> float:
    ends = [
        entry.timing.done_s
        for entry in found
        if entry.timing is not None and entry.timing.done_s is not None
    ]
    return max((at for at in ends if at <= until_s), default=min(ends, default=until_s))
