"""OpenClaw's sessions: JSONL of all versions below 2026.7.2 and of exports, and the SQLite store from 2026.7.2 on, opened read-only.

~/.openclaw/agents/AGENT/sessions/*.jsonl (also .reset.* and .deleted.*) with the index sessions.json beside it, or
~/.openclaw/agents/AGENT/agent/openclaw-agent.sqlite. Calls, compactions and branches as in pi's sessions; sub-agents are started by
the call whose sessions_spawn names them, or by the index, and joined by the parent's first call behind their end. The system prompt and
the tools come from a trajectory beside the session (SESSION.trajectory.jsonl) if there is one, else from what the first prompt has
more than its messages, taken to be one for an agent's sessions of a kind. Heartbeats and cron runs wait for the schedule.
Session keys hold names and numbers of people and groups: only their kind is kept, as the workload (openclaw-main, -group, -cron, …).
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from agentload.importers.parts import chat, entries, sqlite, stamps
from agentload.importers.parts.dialogue import Dialogue
from agentload.importers.parts.entries import Entry, Joined
from agentload.importers.parts.files import head, parsed, records
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.order import in_order
from agentload.importers.parts.pieces import Piece
from agentload.model.trace import Session, TurnRef, Wait

FILES: Final = ("*.jsonl", "*.jsonl.reset.*", "*.jsonl.deleted.*", "*.sqlite")
LICENCE: Final = None

_HOMES: Final = (".openclaw", ".clawdbot", ".moltbot")
_BESIDE: Final = (".trajectory.jsonl", "cache-trace.jsonl")
_KINDS: Final = (
    ("subagent", "subagent"),
    ("cron", "cron"),
    ("heartbeat", "heartbeat"),
    ("hook", "hook"),
    ("group", "group"),
    ("channel", "group"),
)


@dataclass(slots=True, kw_only=True)
class _Transcript:
    """One session's entries, to be read when its turn comes."""

    read: Callable[[Notes], Iterator[tuple[str, entries.Record]]]
    key: str
    agent: str
    began_s: float
    spawned_by: str | None = None
    trajectory: Path | None = None
    children: "list[_Transcript]" = field(default_factory=list)

    @property
    def kind(self) -> str:
        """Return what the session's key says of it."""
        parts = self.key.split(":")
        return next((kind for name, kind in _KINDS if name in parts), "main")


def sniff(head: Head) -> float:
    """Look for the store, or for a session in one of OpenClaw's folders."""
    if sqlite.has_table(head.path, "transcript_events"):
        return 1.0
    is_session = head.record.get("type") == "session" or head.has("type", "message", "timestamp")
    is_home = any(home in head.path.parts for home in _HOMES) or (head.path.parent / "sessions.json").exists()
    return 0.95 if is_session and is_home else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each transcript with a call, each sub-agent behind the one that started it."""
    found = list(_transcripts(intake))
    by_key: dict[str, _Transcript] = {}
    for transcript in found:
        by_key.setdefault(transcript.key, transcript)
    roots = [transcript for transcript in found if not _adopted(transcript, by_key)]
    origin_s = min((transcript.began_s for transcript in found), default=0.0)
    roots.sort(key=lambda transcript: transcript.began_s)
    yield from in_order(
        (root.began_s - origin_s, _family(intake, root, f"s{number}", origin_s, spawned_s=None)[0]) for number, root in enumerate(roots)
    )


def _adopted(transcript: _Transcript, by_key: Mapping[str, _Transcript]) -> bool:
    parent = by_key.get(transcript.spawned_by or "")
    ancestor = parent
    while ancestor is not None:
        if ancestor is transcript:
            return False
        ancestor = by_key.get(ancestor.spawned_by or "")
        if ancestor is parent:
            return False
    if parent is not None:
        parent.children.append(transcript)
    return parent is not None


def _family(
    intake: Intake, transcript: _Transcript, name: str, origin_s: float, *, spawned_s: float | None
) -> tuple[list[Session], float | None]:
    """Return a session and those that it started, and when it was over."""
    found = list(entries.entries(intake, transcript.read(intake.notes)))
    main = next((entry.model for entry in found if entry.timing is not None), None)
    opening = tuple(_opening(intake, transcript))
    lead = None if opening else intake.identity.of("system", f"{transcript.agent} {transcript.kind}")
    dialogue = Dialogue(intake=intake, origin_s=origin_s, lead=lead, opening=opening, spawned_s=spawned_s)
    told = dict(entries.spawns(found))
    families: list[tuple[float, list[Session], float | None]] = []
    for position, child in enumerate(transcript.children):
        at_s = told.get(child.key, _last_done(found, child.began_s))
        grown, done_s = _family(intake, child, f"{name}.{position + 1}", origin_s, spawned_s=at_s)
        if grown:
            families.append((at_s, grown, done_s))
    joins = [Joined(ref=TurnRef(session=grown[0].session, turn=-1), done_s=done_s) for _, grown, done_s in families if done_s is not None]
    asked: Wait | None = "schedule" if transcript.kind in {"cron", "heartbeat"} else None
    entries.play(dialogue, found, main=main, asked=asked, joins=joins)
    if not dialogue.turns:
        intake.notes.drop("a session without a call")
        return [], None
    for at_s, grown, _ in families:
        dialogue.spawn(grown[0].session, at_s)
    own = dialogue.session(name, workload=f"openclaw-{transcript.kind}")
    return [own, *(session for _, grown, _ in families for session in grown)], dialogue.ready_s


def _last_done(found: list[Entry], until_s: float) -> float:
    ends = [entry.timing.done_s for entry in found if entry.timing is not None and entry.timing.done_s is not None]
    return max((at for at in ends if at <= until_s), default=min(ends, default=until_s))


def _opening(intake: Intake, transcript: _Transcript) -> Iterator[Piece]:
    """Read the system prompt and the tools of the first request that the trajectory holds."""
    if transcript.trajectory is None:
        return
    for _, event in records(transcript.trajectory, dict[str, Any], Notes("lenient")):
        compiled = event.get("data")
        if event.get("type") == "context.compiled" and isinstance(compiled, dict):
            yield from chat.pieces(intake, "system", {"content": compiled.get("systemPrompt")})
            tools = compiled.get("tools")
            yield from chat.schemas(intake, tools if isinstance(tools, list) else ())
            return


def _transcripts(intake: Intake) -> Iterator[_Transcript]:
    for path in intake.files:
        if head(path, 16).startswith(sqlite.MAGIC):
            yield from _stored(path)
        elif not path.name.endswith(_BESIDE):
            yield from _filed(path)


def _filed(path: Path) -> Iterator[_Transcript]:
    own = path.name.split(".jsonl")[0]
    index = path.parent / "sessions.json"
    told = parsed(head(index, 1 << 26)) if index.exists() else None
    key, said = next(
        ((key, said) for key, said in (told or {}).items() if isinstance(said, dict) and said.get("sessionId") == own), (own, {})
    )
    trajectory = path.with_name(f"{own}.trajectory.jsonl")
    times = [stamps.seconds(record.get("timestamp")) for (_, record), _ in zip(_records(path, Notes("lenient")), range(3), strict=False)]
    yield _Transcript(
        read=lambda notes: _records(path, notes),
        key=key,
        agent=path.parent.parent.name,
        began_s=min((at for at in times if at is not None), default=0.0),
        spawned_by=said.get("spawnedBy"),
        trajectory=trajectory if trajectory.exists() else None,
    )


def _records(path: Path, notes: Notes) -> Iterator[tuple[str, entries.Record]]:
    return records(path, entries.Record, notes)


def _stored(path: Path) -> Iterator[_Transcript]:
    with closing(sqlite.opened(path)) as database:
        windows = {row["session_id"]: row for row in sqlite.rows(database, "session_windows")}
        nodes = {row["session_key"]: row for row in sqlite.rows(database, "session_nodes")}
        found = database.execute("SELECT session_id, min(created_at) FROM transcript_events GROUP BY session_id ORDER BY 2, 1").fetchall()
    for session, began in found:
        window = windows.get(session, {})
        key = window.get("session_key") or session
        yield _Transcript(
            read=lambda notes, session=session: sqlite.events(path, session, notes),  # type: ignore[misc]  # a default binds the loop's value
            key=key,
            agent=path.parent.parent.name,
            began_s=stamps.seconds(began) or 0.0,
            spawned_by=window.get("spawned_by") or nodes.get(key, {}).get("spawned_by"),
        )
