"""OpenClaw's sessions: JSONL of all versions below 2026.7.2 and of exports, and the SQLite store from 2026.7.2 on, opened read-only.

~/.openclaw/agents/AGENT/sessions/*.jsonl (also .reset.* and .deleted.*) with the index sessions.json beside it,
~/.openclaw/agents/AGENT/agent/openclaw-agent.sqlite, or a bundle of /export-trajectory (session-branch.json, with manifest and events
beside it). Calls, compactions and branches as in pi's sessions; sub-agents are started by the call whose sessions_spawn names them, or
by the index, and joined by the parent's first call behind their end. The system prompt and the tools come from a trajectory beside the
session (SESSION.trajectory.jsonl, or a bundle's events) if there is one, else from what the first prompt has more than its messages,
taken to be one for an agent's sessions of a kind. Heartbeats and cron runs wait for the schedule.
Session keys hold names and numbers of people and groups: only their kind is kept, as the workload (openclaw-main, -group, -cron, …).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import msgspec

from agentload.importers.parts import chat, entries, families, sqlite, stamps
from agentload.importers.parts.entries import Entry
from agentload.importers.parts.families import Transcript
from agentload.importers.parts.files import head, parsed, records
from agentload.importers.parts.intake import Head, Intake
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.pieces import Piece
from agentload.model.trace import Session

FILES: Final = ("*.jsonl", "*.jsonl.reset.*", "*.jsonl.deleted.*", "*.sqlite", "session-branch.json")
LICENCE: Final = None
Opening: TypeAlias = Callable[[], Sequence[Piece]]

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


class _Branch(msgspec.Struct):
    """What a bundle holds of its session."""

    entries: list[dict[str, Any]]
    header: dict[str, Any] | None = None


def sniff(head: Head) -> float:
    """Look for the store, for an exported bundle, or for a session in one of OpenClaw's folders."""
    if sqlite.has_table(head.path, "transcript_events"):
        return 1.0
    if head.path.name.startswith(_BUNDLE):
        return 1.0 if b'"entries"' in head.bytes else 0.0
    is_session = head.record.get("type") == "session" or head.has("type", "message", "timestamp")
    is_home = any(home in head.path.parts for home in _HOMES) or (head.path.parent / "sessions.json").exists()
    return 0.95 if is_session and is_home else 0.0


def sessions(intake: Intake) -> Iterator[Session]:
    """Yield a session for each transcript with a call, each sub-agent behind the one that started it."""
    return families.sessions(intake, _transcripts(intake))


def _transcripts(intake: Intake) -> Iterator[Transcript]:
    for path in intake.files:
        if head(path, 16).startswith(sqlite.MAGIC):
            yield from _stored(intake, path)
        elif path.name.startswith(_BUNDLE):
            yield _bundled(intake, path)
        elif not path.name.endswith(_BESIDE):
            yield _filed(intake, path)


def _filed(intake: Intake, path: Path) -> Transcript:
    own = path.name.split(".jsonl")[0]
    index = path.parent / "sessions.json"
    told = parsed(head(index, 1 << 26)) if index.exists() else None
    known = told.items() if isinstance(told, dict) else ()
    key, said = next(((key, said) for key, said in known if isinstance(said, dict) and said.get("sessionId") == own), (own, {}))
    trajectory = path.with_name(f"{own}.trajectory.jsonl")
    first = zip(records(path, entries.Record, Notes("lenient")), range(3), strict=False)
    times = [at_s for (_, record), _ in first if (at_s := stamps.seconds(record.get("timestamp"))) is not None]
    return _transcript(
        read=lambda: list(entries.entries(intake, records(path, entries.Record, intake.notes))),
        key=key,
        agent=path.parent.parent.name,
        began_s=min(times, default=0.0),
        spawned_by=said.get("spawnedBy"),
        opening=lambda: tuple(_opening(intake, trajectory)) if trajectory.exists() else (),
    )


def _bundled(intake: Intake, path: Path) -> Transcript:
    told = parsed(head(path.with_name("manifest.json"), 1 << 26)) if path.with_name("manifest.json").exists() else None
    said = told if isinstance(told, dict) else {}
    key = str(said.get("sessionKey") or said.get("sessionId") or path.parent.name)
    agent = key.split(":")[1] if key.startswith("agent:") else ""
    events = path.with_name("events.jsonl")
    branch = [entry for _, found in records(path, _Branch, Notes("lenient")) for entry in (found.header or {}, *found.entries)]
    return _transcript(
        read=lambda: list(entries.entries(intake, _branch(intake, path))),
        key=key,
        agent=agent,
        began_s=next((at_s for entry in branch if (at_s := stamps.seconds(entry.get("timestamp"))) is not None), 0.0),
        spawned_by=None,
        opening=lambda: tuple(_opening(intake, events)) if events.exists() else (),
    )


def _branch(intake: Intake, path: Path) -> Iterator[tuple[str, entries.Record]]:
    for place, found in records(path, _Branch, intake.notes):
        yield from ((f"{place}, entry {number}", entry) for number, entry in enumerate(found.entries))


def _stored(intake: Intake, path: Path) -> Iterator[Transcript]:
    with closing(sqlite.opened(path)) as database:
        windows = {row.get("session_id"): row for row in sqlite.rows(database, "session_windows")}
        nodes = {row.get("session_key"): row for row in sqlite.rows(database, "session_nodes")}
        found = sqlite.began(database)
    for session, began in found:
        key = str(windows.get(session, {}).get("session_key") or session)
        yield _transcript(
            read=partial(_events, intake, path, session),
            key=key,
            agent=path.parent.parent.name,
            began_s=stamps.seconds(began) or 0.0,
            spawned_by=windows.get(session, {}).get("spawned_by") or nodes.get(key, {}).get("spawned_by"),
        )


def _events(intake: Intake, path: Path, session: str) -> list[Entry]:
    return list(entries.entries(intake, sqlite.events(path, session, intake.notes)))


def _transcript(
    *, read: Callable[[], list[Entry]], key: str, agent: str, began_s: float, spawned_by: str | None, opening: Opening = tuple
) -> Transcript:
    parts = key.split(":")
    kind = next((kind for name, kind in _KINDS if name in parts), "main")
    return Transcript(
        read=read,
        key=key,
        workload=f"openclaw-{kind}",
        began_s=began_s,
        lead=f"openclaw {agent} {kind}",
        spawned_by=spawned_by,
        opening=opening,
        asked="schedule" if kind in {"cron", "heartbeat"} else None,
    )


def _opening(intake: Intake, trajectory: Path) -> Iterator[Piece]:
    """Read the system prompt and the tools of the first request that the trajectory holds."""
    for _, event in records(trajectory, dict[str, Any], Notes("lenient")):
        compiled = event.get("data")
        if event.get("type") == "context.compiled" and isinstance(compiled, dict):
            yield from chat.pieces(intake, "system", {"content": compiled.get("systemPrompt")})
            tools = compiled.get("tools")
            yield from chat.schemas(intake, tools if isinstance(tools, list) else ())
            return
