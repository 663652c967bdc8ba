"""OpenClaw's sessions: JSONL of all versions below 2026.7.2 and of
exports, and the SQLite store from 2026.7.2 on, opened read-only.

~/.openclaw/agents/AGENT/sessions/*.jsonl (also .reset.* and .deleted.*) with the index
sessions.json next to it, ~/.openclaw/agents/AGENT/agent/openclaw-agent.sqlite, or a bundle
of /export-trajectory (session-branch.json, with manifest and events). Calls, compactions and
branches are as in pi's sessions; sub-agents are spawned by the call whose sessions_spawn
names them, or by the index, and joined by the parent's first call after their end. The
system prompt and the tools come from the session's trajectory (SESSION.trajectory.jsonl, or
a bundle's events) if there is one, otherwise from the tokens of the first prompt beyond its
messages, assumed to be the same for an agent's sessions of a kind. Heartbeats and cron runs
wait for the schedule. Session keys contain names and numbers of people and groups: only
their kind is kept, as the workload (openclaw-main, -group, -cron, …).
"""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec

from agentload.errors import TraceError
from agentload.importers.parts import (
    AgentTranscript,
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
    head,
    parse_json,
    records,
    transcripts,
)
from agentload.model.trace import Session

FILES: Final = (
    "*.jsonl",
    "*.jsonl.reset.*",
    "*.jsonl.deleted.*",
    "*.sqlite",
    "session-branch.json",
)
Opening: TypeAlias = Callable[[], Sequence[ContextPiece]]
_HOMES: Final = (".openclaw", ".clawdbot", ".moltbot")
_BUNDLE: Final = "session-branch.json"
_BESIDE: Final = (".trajectory.jsonl", "cache-trace.jsonl", "events.jsonl")
_KINDS: Final = (
    ("subagent", "subagent"),
    ("cron", "cron"),
    ("heartbeat", "heartbeat"),
    ("hook", "hook"),
    ("group", "group"),
    ("channel", "group"),
)
_DAMAGED: Final = (
    sqlite3.DatabaseError,
    UnicodeDecodeError,
)  # a damaged schema is reported in bytes that are not text
_MAGIC: Final = b"SQLite format 3\0"


class _Branch(msgspec.Struct):
    """The session in a bundle."""

    entries: list[JsonRecord]
    header: JsonRecord | None = None


def sniff(head: Head) -> float:
    """Look for the store, for an exported bundle, or for a session in one of OpenClaw's folders."""
    if _has_events(head.path):
        return 1.0
    if head.path.name.startswith(_BUNDLE):
        return 1.0 if b'"entries"' in head.bytes else 0.0
    is_session = head.record.get("type") == "session" or head.has("type", "message", "timestamp")
    is_home = any(home in head.path.parts for home in _HOMES)
    is_listed = (head.path.parent / "sessions.json").exists()
    return 0.95 if is_session and (is_home or is_listed) else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each transcript with a call, each sub-agent after its parent."""
    return transcripts.sessions(intake, _transcripts(intake))


def _transcripts(intake: Intake) -> Iterator[AgentTranscript]:
    for path in intake.files:
        if head(path, 16).startswith(_MAGIC):
            yield from _transcripts_of_store(intake, path)
        elif path.name.startswith(_BUNDLE):
            yield _transcript_of_bundle(intake, path)
        elif not path.name.endswith(_BESIDE):
            yield _transcript_of_file(intake, path)


def _transcript_of_file(intake: Intake, path: Path) -> AgentTranscript:
    """Return the transcript in a file, under the key that the index next to it has."""
    own = path.name.split(".jsonl")[0]
    key = own
    said: JsonRecord = {}
    for name, listed in _read(path.parent / "sessions.json").items():
        if files.as_object(listed).get("sessionId") == own:
            key = name
            said = listed
            break
    first = islice(records(path, JsonRecord, ImportNotes("lenient")), 3)
    times = [fields.stamp(record) for _, record in first]
    return _transcript(
        read=partial(transcripts.entries_of_file, intake, path),
        key=key,
        agent=path.parent.parent.name,
        began_s=min((at_s for at_s in times if at_s is not None), default=0.0),
        spawned_by=said.get("spawnedBy"),
        opening=partial(_opening, intake, path.with_name(f"{own}.trajectory.jsonl")),
    )


def _read(path: Path) -> JsonRecord:
    """Return the object in a JSON file; an empty one without the file."""
    return files.as_object(parse_json(head(path, 1 << 26))) if path.exists() else {}


def _transcript_of_bundle(intake: Intake, path: Path) -> AgentTranscript:
    """Return the transcript of an exported bundle."""
    said = _read(path.with_name("manifest.json"))
    key = str(said.get("sessionKey") or said.get("sessionId") or path.parent.name)
    agent = key.split(":")[1] if key.startswith("agent:") else ""
    entries: list[JsonRecord] = []
    for _, found in records(path, _Branch, ImportNotes("lenient")):
        entries += [found.header or {}, *found.entries]
    return _transcript(
        read=lambda: list(transcripts.entries(intake, _branch(intake, path))),
        key=key,
        agent=agent,
        began_s=fields.first_known(map(fields.stamp, entries)) or 0.0,
        spawned_by=None,
        opening=partial(_opening, intake, path.with_name("events.jsonl")),
    )


def _branch(intake: Intake, path: Path) -> Placed[JsonRecord]:
    for place, found in records(path, _Branch, intake.notes):
        for number, entry in enumerate(found.entries):
            yield f"{place}, entry {number}", entry


def _transcripts_of_store(intake: Intake, path: Path) -> Iterator[AgentTranscript]:
    """Yield the transcripts of a database."""
    with closing(_open(path)) as database:
        windows = {row.get("session_id"): row for row in _rows(database, "session_windows")}
        nodes = {row.get("session_key"): row for row in _rows(database, "session_nodes")}
        found = _began(database)
    for session, began in found:
        window = windows.get(session, {})
        key = str(window.get("session_key") or session)
        spawned_by = window.get("spawned_by") or nodes.get(key, {}).get("spawned_by")
        yield _transcript(
            read=partial(_events, intake, path, session),
            key=key,
            agent=path.parent.parent.name,
            began_s=fields.seconds(began) or 0.0,
            spawned_by=spawned_by,
        )


def _events(intake: Intake, path: Path, session: str) -> list[TranscriptEntry]:
    return list(transcripts.entries(intake, _stored_events(path, session, intake.notes)))


def _transcript(
    *,
    read: Callable[[], list[TranscriptEntry]],
    key: str,
    agent: str,
    began_s: float,
    spawned_by: str | None,
    opening: Opening = tuple,
) -> AgentTranscript:
    parts = key.split(":")
    kind = next((kind for name, kind in _KINDS if name in parts), "main")
    return AgentTranscript(
        read=read,
        key=key,
        workload=f"openclaw-{kind}",
        began_s=began_s,
        lead=f"openclaw {agent} {kind}",
        spawned_by=spawned_by,
        opening=opening,
        asked="schedule" if kind in {"cron", "heartbeat"} else None,
    )


def _opening(intake: Intake, trajectory: Path) -> list[ContextPiece]:
    """Read the system prompt and the tools of the trajectory's first request, if there is one."""
    if not trajectory.exists():
        return []
    for _, event in records(trajectory, JsonRecord, ImportNotes("lenient")):
        compiled = event.get("data")
        if event.get("type") == "context.compiled" and isinstance(compiled, dict):
            system = chat.pieces(intake, "system", {"content": compiled.get("systemPrompt")})
            return [*system, *chat.schemas(intake, files.as_list(compiled.get("tools")))]
    return []


def _open(path: Path) -> sqlite3.Connection:
    """Open read-only; in a folder without write access, as immutable."""
    for mode in ("mode=ro", "mode=ro&immutable=1"):
        try:
            address = f"file:{quote(str(path.resolve()))}?{mode}"
            database = sqlite3.connect(address, uri=True)
            database.text_factory = lambda found: found.decode("utf-8", "replace")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.OperationalError:
            continue
        except _DAMAGED as error:
            raise TraceError(
                f"{path}: not a readable SQLite database: {error}",
                hint="copy it with `sqlite3 FILE .backup`",
            ) from error
        return database
    raise TraceError(
        f"{path}: the database cannot be opened",
        hint="copy it with `sqlite3 FILE .backup` and import the copy",
    )


def _has_events(path: Path) -> bool:
    """Return whether a file is a database with the table of events."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return False
    try:
        with closing(_open(path)) as database:
            return _exists(database, "transcript_events")
    except (TraceError, *_DAMAGED):
        return False


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise TraceError(f"{what} is damaged: {error}", hint="sqlite3 FILE .recover") from error


def _rows(database: sqlite3.Connection, table: str) -> Iterator[JsonRecord]:
    """Yield a table's rows by column, whatever the version's columns; none without the table."""
    with _readable(f"the table {table}"):
        if _exists(database, table):
            cursor = database.execute(f"SELECT * FROM {table}")  # noqa: S608  # the names are ours
            names = [column[0] for column in cursor.description]
            yield from (dict(zip(names, row, strict=True)) for row in cursor)


def _began(database: sqlite3.Connection) -> list[tuple[str, int]]:
    """Return the sessions with transcripts and when each
    one's first event was written, in milliseconds since 1970.
    """
    with _readable("the database"):
        return database.execute(
            "SELECT session_id, min(created_at) FROM transcript_events GROUP BY session_id "
            "ORDER BY 2, 1"
        ).fetchall()


def _stored_events(path: Path, session: str, notes: ImportNotes) -> Placed[JsonRecord]:
    """Yield (place, event) of one session's transcript, in order."""
    with closing(_open(path)) as database:
        try:
            found = database.execute(
                "SELECT seq, event_json FROM transcript_events WHERE session_id = ? ORDER BY seq",
                (session,),
            )
            for seq, text in found:
                event = parse_json(text) if isinstance(text, str | bytes) else None
                if isinstance(event, dict):
                    yield f"{path}: event {seq}", event
                else:
                    notes.skip(f"{path}: event {seq}", "not a JSON object")
        except _DAMAGED as error:
            notes.skip(str(path), f"the database is damaged ({type(error).__name__})")


def _exists(database: sqlite3.Connection, table: str) -> bool:
    found = database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,))
    return found.fetchone() is not None
