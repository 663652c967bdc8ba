"""Turn agents' transcripts, with compactions, branches and sub-agents, into sessions.

Every recorded answer was a real call, on any branch, so all are played in file
order, each with the context of its place in the tree. A compaction's context is
its summary and the entries from the first kept one on.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from agentload.importers.parts import chat, fields
from agentload.importers.parts.chat import ContextPiece
from agentload.importers.parts.dialogue import CallTiming, CallUsage, Dialogue, Join
from agentload.importers.parts.fields import agents_usage
from agentload.importers.parts.files import JsonRecord, as_object, as_text, parse_json, records
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.order import in_order
from agentload.model.record import Record
from agentload.model.trace import Session, Wait

_SILENT: Final = frozenset(
    {"model_change", "thinking_level_change", "label", "session_info", "custom", "session"}
)
_MIRRORS: Final = frozenset({"delivery-mirror", "gateway-injected"})
"""Model names that OpenClaw writes for text not from a model."""
_HEARTBEAT: Final = "HEARTBEAT_OK"


class TranscriptEntry(Record):
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


def entries(intake: Intake, found: Iterable[tuple[str, JsonRecord]]) -> Iterator[TranscriptEntry]:
    """Read entries of all versions; older ones have no ids and are sequential."""
    before: str | None = None
    for number, (place, record) in enumerate(found):
        if record.get("type") == "session":
            continue
        own = as_text(record.get("id"))
        blank = TranscriptEntry(
            id=f"#{number}" if own is None else own,
            parent=as_text(record.get("parentId", before)),
            place=place,
            at_s=fields.stamp(record),
        )
        before = blank.id
        yield _entry(intake, record, blank)


def entries_of_file(intake: Intake, path: Path) -> list[TranscriptEntry]:
    """Read the entries of a file."""
    return list(entries(intake, records(path, JsonRecord, intake.notes)))


def play(
    dialogue: Dialogue,
    found: Iterable[TranscriptEntry],
    *,
    main: str | None = None,
    asked: Wait | None = None,
    joins: Iterable[Join] = (),
) -> None:
    """Play entries into a dialogue; `main` is the default model.

    The next call after a child of `joins` is complete waits for it.
    """
    known: dict[str, TranscriptEntry] = {}
    open_joins = deque(sorted(joins))
    tip: str | None = None
    is_heartbeat = False
    for entry in found:
        if entry.parent != tip:
            dialogue.restart(_context(dialogue.intake, known, entry.parent, entry.place))
        known[entry.id] = entry
        tip = entry.id
        if entry.compacts is not None:
            dialogue.restart(_context(dialogue.intake, known, tip, entry.place))
            continue
        if entry.timing is None:
            dialogue.add(entry.pieces)
            is_heartbeat = is_heartbeat or entry.is_heartbeat
            continue
        usage = entry.usage or CallUsage()
        if entry.grows is not None:
            dialogue.grow(usage.prompt or 1, entry.grows)
        dialogue.call(
            timing=entry.timing,
            usage=usage,
            answer=entry.pieces,
            place=entry.place,
            model=None if entry.model == main else entry.model,
            event="heartbeat" if is_heartbeat else None,
            asked="schedule" if is_heartbeat else entry.asked or asked,
            joins=_complete(open_joins, entry.timing.sent_s),
        )
        is_heartbeat = False


def _complete(joins: deque[Join], by_s: float | None) -> list[Join]:
    """Take the children that were complete by a time."""
    done: list[Join] = []
    while joins and by_s is not None and joins[0][0] <= by_s:
        done.append(joins.popleft())
    return done


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
    return [piece for entry in _after_compaction(path) for piece in entry.pieces]


def _after_compaction(path: Sequence[TranscriptEntry]) -> Sequence[TranscriptEntry]:
    """Return what the last compaction on a path leaves of it: its summary first."""
    compactions = [at for at, entry in enumerate(path) if entry.compacts is not None]
    if not compactions:
        return path
    last = compactions[-1]
    before = path[:last]
    summary = path[last]
    after = path[last + 1 :]
    ids = [entry.id for entry in before]
    kept = before[ids.index(summary.compacts) :] if summary.compacts in ids else ()
    return [summary, *kept, *after]


def _entry(intake: Intake, record: JsonRecord, blank: TranscriptEntry) -> TranscriptEntry:
    kind = record.get("type")
    message = record.get("message")
    match kind:
        case "message" if isinstance(message, dict):
            return _message(intake, message, blank)
        case "compaction":
            kept = record.get("firstKeptEntryId", record.get("firstKeptEntryIndex"))
            intake.notes.drop("the call that wrote a compaction's summary: not in the transcript")
            return replace(
                blank,
                pieces=_text_of_user(intake, record.get("summary")),
                compacts=f"#{kept}" if isinstance(kept, int) else str(kept),
            )
        case "branch_summary":
            return replace(blank, pieces=_text_of_user(intake, record.get("summary")))
        case "custom_message":
            return replace(blank, pieces=tuple(chat.pieces(intake, "user", record)))
        case _:
            if str(kind) not in _SILENT:
                intake.notes.meet(blank.place, "an entry of an unknown type")
            return blank


def _text_of_user(intake: Intake, text: object) -> tuple[ContextPiece, ...]:
    if not isinstance(text, str):
        return ()
    return tuple(chat.pieces(intake, "user", {"content": text}))


def _message(intake: Intake, message: JsonRecord, blank: TranscriptEntry) -> TranscriptEntry:
    role = message.get("role")
    match role:
        case "assistant":
            return _answer(intake, message, blank)
        case "bashExecution" if message.get("excludeFromContext"):
            return blank
        case "bashExecution":
            text = f"{message.get('command')}\n{message.get('output')}"
            return replace(blank, pieces=_text_of_user(intake, text))
        case "branchSummary" | "compactionSummary":
            return replace(blank, pieces=_text_of_user(intake, message.get("summary")))
        case _:
            is_heartbeat = role == "user" and _HEARTBEAT in chat.text_of(message.get("content"))
            return replace(
                blank,
                pieces=tuple(chat.pieces(intake, chat.role_of(role), message)),
                child=_child(message),
                is_heartbeat=is_heartbeat,
            )


def _answer(intake: Intake, message: JsonRecord, blank: TranscriptEntry) -> TranscriptEntry:
    model = as_text(message.get("model"))
    counts = message.get("usage")
    if model in _MIRRORS:
        intake.notes.drop("an answer not from a model (a copy of what was delivered)")
        return blank
    pieces = tuple(chat.pieces(intake, "assistant", message))
    usage = agents_usage(counts)
    is_stopped = str(message.get("stopReason")) in {"error", "aborted"}
    if is_stopped and isinstance(counts, dict) and not usage.output:
        intake.notes.drop("a call that failed or was stopped before its first token")
        return blank
    if not usage.output and not usage.prompt:
        intake.notes.meet(blank.place, "an answer without usage")
    sent_s = fields.stamp(message)
    return replace(
        blank,
        pieces=pieces,
        timing=CallTiming(sent_s=blank.at_s if sent_s is None else sent_s, done_s=blank.at_s),
        usage=usage,
        model=model,
    )


def _child(message: JsonRecord) -> str | None:
    if message.get("toolName") != "sessions_spawn":
        return None
    said = parse_json(chat.text_of(message.get("content")))
    keys = (as_object(found).get("childSessionKey") for found in (message.get("details"), said))
    return fields.first_known(map(as_text, keys))


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
    roots: list[AgentTranscript] = []
    for transcript in transcripts:
        parent = _parent(transcript, by_key)
        siblings = roots if parent is None else parent.children
        siblings.append(transcript)
    for number, root in enumerate(sorted(roots, key=_began)):
        family, _ = _family(intake, root, f"{name}{number}", origin_s, spawned_s=None)
        yield root.began_s - origin_s, family


def _began(transcript: AgentTranscript) -> float:
    return transcript.began_s


def _parent(
    transcript: AgentTranscript, by_key: Mapping[str, Sequence[AgentTranscript]]
) -> AgentTranscript | None:
    """Return the transcript that spawned another; None for a root, or where they form a circle."""
    parent = _spawner(transcript, by_key)
    line = [transcript]
    ancestor = parent
    while ancestor is not None:
        if any(ancestor is one for one in line):
            return None
        line.append(ancestor)
        ancestor = _spawner(ancestor, by_key)
    return parent


def _spawner(
    transcript: AgentTranscript, by_key: Mapping[str, Sequence[AgentTranscript]]
) -> AgentTranscript | None:
    """Return the last transcript with the spawner's key that began before this one.

    Resets and rollovers repeat a key.
    """
    if transcript.spawned_by is None:
        return None
    found = by_key.get(transcript.spawned_by, ())
    earlier = [one for one in found if one.began_s <= transcript.began_s]
    return max(earlier or found[:1], key=_began, default=None)


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
    calls = [entry for entry in found if entry.timing is not None]
    opening = tuple(transcript.opening())
    lead = None
    if transcript.lead is not None and not opening:
        lead = intake.identity.of("system", transcript.lead)
    dialogue = Dialogue(
        intake=intake, origin_s=origin_s, lead=lead, opening=opening, spawned_s=spawned_s
    )
    spawned = dict(spawns(found))
    children: list[Session] = []
    spawners: list[tuple[str, float]] = []
    joins: list[Join] = []
    for number, child in enumerate(sorted(transcript.children, key=_began), start=1):
        at_s = spawned.get(child.key, _last_done(calls, child.began_s))
        family, done_s = _family(intake, child, f"{name}.{number}", origin_s, spawned_s=at_s)
        if not family:
            continue
        children += family
        spawners.append((family[0].session, at_s))
        if done_s is not None:
            joins.append((done_s, family[0].session))
    main = calls[0].model if calls else None
    play(dialogue, found, main=main, asked=transcript.asked, joins=joins)
    if not dialogue.turns:
        intake.notes.drop("a session without a call")
        return [], None
    for own, at_s in spawners:
        dialogue.spawn(own, at_s)
    return [dialogue.session(name, workload=transcript.workload), *children], dialogue.ready_s


def _last_done(calls: Iterable[TranscriptEntry], until_s: float) -> float:
    """Return when the last call by a time was complete, else the first one."""
    ends = [call.timing.done_s for call in calls if call.timing is not None]
    known = [end_s for end_s in ends if end_s is not None]
    earlier = [end_s for end_s in known if end_s <= until_s]
    return max(earlier, default=min(known, default=until_s))
