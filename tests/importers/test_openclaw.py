"""OpenClaw's sessions: files of all versions, the SQLite store, sub-agents, schedules."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.errors import TraceError
from agentload.model.trace import Session, TurnRef
from tests.importers.entries import answer, entry, result, session, user
from tests.importers.importing import imported, jsonl, lengths, written

CHILD_KEY = "agent:main:subagent:5e55"
SPAWN = '{"status": "accepted", "childSessionKey": "agent:main:subagent:5e55", "runId": "r"}'
PARENT = [
    session(),
    user("a", None, 1, "u" * 80),
    answer("b", "a", 2, 10, (1_020, 0, 0, 50)),
    result("c", "b", 10.2, SPAWN, "sessions_spawn"),
    answer("d", "c", 11, 12, (1_100, 0, 0, 7)),
    user("e", "d", 45, "[subagent done]"),
    answer("f", "e", 46, 50, (1_130, 0, 0, 9)),
]
CHILD = [
    session(10.3),
    user("a", None, 10.4, "task " * 8),
    answer("b", "a", 10.5, 40, (510, 0, 0, 20)),
]
INDEX: dict[str, dict[str, Any]] = {
    "agent:main:whatsapp:group:120363@g.us": {"sessionId": "parent", "updatedAt": 1},
    CHILD_KEY: {
        "sessionId": "child",
        "spawnedBy": "agent:main:whatsapp:group:120363@g.us",
        "spawnDepth": 1,
    },
    "cron:job-7": {"sessionId": "nightly"},
}
FOLDER = "agents/main/sessions"


def files(**records: list[dict[str, Any]]) -> dict[str, str]:
    return {f"{FOLDER}/{name}.jsonl": jsonl(*lines) for name, lines in records.items()} | {
        f"{FOLDER}/sessions.json": msgspec.json.encode(INDEX).decode()
    }


def checked(sessions: list[Session]) -> None:
    parent, child = sessions
    assert (parent.workload, child.workload) == ("openclaw-group", "openclaw-subagent")
    assert (parent.start_s, child.start_s) == (1.7 if parent.start_s == 1.7 else 2.0, None)
    assert [turn.spawn for turn in parent.turns] == [(child.session,), (), ()]
    assert [turn.after for turn in parent.turns] == [
        (),
        (),
        (TurnRef(session=child.session, turn=-1),),
    ]
    # The child begins 0.5 s behind the call that spawned it;
    # the parent goes on 6 s behind the child, which ended last.
    assert [turn.wait_s for turn in child.turns] == [0.5]
    assert [(turn.wait, turn.wait_s) for turn in parent.turns] == [
        (None, 0.0),
        ("tool", 1.0),
        ("user", 6.0),
    ]
    assert (lengths(parent), lengths(child)) == ([1_020, 1_100, 1_130], [510])


def test_sub_agents_are_started_by_a_call_and_joined_by_a_later_one(tmp_path: Path) -> None:
    sessions, summary = imported(tmp_path, files(parent=PARENT, child=CHILD))
    assert (summary.format, summary.spawned) == ("openclaw", 1)
    checked(sessions)


def test_the_index_alone_links_a_sub_agent_too(tmp_path: Path) -> None:
    silent = [
        result("c", "b", 10.2, "started", "sessions_spawn") if record.get("id") == "c" else record
        for record in PARENT
    ]
    sessions, _ = imported(tmp_path, files(parent=silent, child=CHILD))
    checked(sessions)


def test_resets_and_deleted_sessions_are_read_and_packed_ones_too(tmp_path: Path) -> None:
    found = files(parent=PARENT)
    found[f"{FOLDER}/old.jsonl.reset.2026-01-02T03"] = jsonl(*CHILD)
    found[f"{FOLDER}/older.jsonl.deleted.2026-01-02T03"] = jsonl(*CHILD)
    sessions, _ = imported(tmp_path, found)
    assert [only.workload for only in sessions] == [
        "openclaw-group",
        "openclaw-main",
        "openclaw-main",
    ]


def test_heartbeats_and_cron_runs_wait_for_the_schedule(tmp_path: Path) -> None:
    beat = [
        *PARENT,
        user("h", "f", 1800, "Read HEARTBEAT.md … reply HEARTBEAT_OK."),
        answer("i", "h", 1801, 1802, (1_200, 0, 0, 6), "HEARTBEAT_OK"),
    ]
    nightly = [*CHILD, user("c", "b", 60, "and now"), answer("d", "c", 61, 62, (560, 0, 0, 6))]
    sessions, _ = imported(tmp_path, files(parent=beat, nightly=nightly))
    by_workload = {only.workload: only for only in sessions}
    assert (
        by_workload["openclaw-group"].turns[-1].event,
        by_workload["openclaw-group"].turns[-1].wait,
    ) == ("heartbeat", "schedule")
    assert [turn.wait for turn in by_workload["openclaw-cron"].turns] == [None, "schedule"]


def test_a_trajectory_beside_a_session_gives_the_system_prompt_and_tools_their_names(
    tmp_path: Path,
) -> None:
    compiled = {
        "type": "context.compiled",
        "traceSchema": "openclaw-trajectory",
        "data": {"systemPrompt": "s" * 400, "tools": [{"name": "read"}]},
    }
    found = files(parent=PARENT, nightly=CHILD)
    for name in ("parent", "nightly"):
        found[f"{FOLDER}/{name}.trajectory.jsonl"] = jsonl({"type": "session.started"}, compiled)
    first, second = imported(tmp_path, found)[0]
    assert [segment.role for segment in first.turns[0].add] == ["system", "tools", "user"]
    assert [segment.key for segment in first.turns[0].add[:2]] == [
        segment.key for segment in second.turns[0].add[:2]
    ]
    assert (lengths(first)[0], lengths(second)) == (1_020, [510])


@pytest.mark.parametrize("indent", [None, 2])
def test_an_exported_bundle_says_what_the_session_and_its_trajectory_say(
    tmp_path: Path, indent: int | None
) -> None:
    compiled = {
        "type": "context.compiled",
        "data": {"systemPrompt": "s" * 400, "tools": [{"name": "read"}]},
    }
    plain = files(parent=PARENT) | {f"{FOLDER}/parent.trajectory.jsonl": jsonl(compiled)}
    expected, _ = imported(tmp_path / "files", plain, "openclaw")
    branch = {"header": PARENT[0], "leafId": "f", "entries": PARENT[1:]}
    bundle = {
        "manifest.json": json.dumps(
            {
                "traceSchema": "openclaw-trajectory",
                "sessionId": "parent",
                "sessionKey": "agent:main:x:group:1",
            }
        ),
        "session-branch.json": json.dumps(branch, indent=indent),
        "events.jsonl": jsonl(
            {"type": "session.started", "traceSchema": "openclaw-trajectory"}, compiled
        ),
        "system-prompt.txt": "s" * 400,
    }
    (only,), summary = imported(tmp_path / "bundle", bundle)
    assert (summary.format, only.turns) == ("openclaw", expected[0].turns)
    assert [segment.role for segment in only.turns[0].add] == ["system", "tools", "user"]


@pytest.mark.parametrize("name", ["session-branch.json", "manifest.json", "events.jsonl"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.95])
def test_a_bundle_that_was_cut_short_is_survived(tmp_path: Path, name: str, share: float) -> None:
    compiled = {
        "type": "context.compiled",
        "data": {"systemPrompt": "s" * 400, "tools": [{"name": "read"}]},
    }
    bundle = {
        "manifest.json": json.dumps({"sessionKey": "agent:main:main"}),
        "session-branch.json": json.dumps({"header": PARENT[0], "entries": PARENT[1:]}),
        "events.jsonl": jsonl(compiled),
    }
    bundle[name] = bundle[name][: round(len(bundle[name]) * share)]
    # What lies beside the session may be missing; a session
    # that breaks off in the middle of its one value is none.
    if name == "session-branch.json":
        seen = "incomplete last line" if share else "no session"
        with pytest.raises(TraceError, match=seen):
            imported(tmp_path, bundle, "openclaw", "lenient")
        return
    found, summary = imported(tmp_path, bundle, "openclaw", "lenient")
    assert [len(session.turns) for session in found] == [3]
    assert not summary.odd + summary.malformed


def test_a_sub_agent_belongs_to_the_window_of_its_parents_key_that_was_open(
    tmp_path: Path, store: Path
) -> None:
    """A reset gives a key another session: what was spawned behind it is that one's."""
    with closing(sqlite3.connect(store)) as database:
        key = next(key for key, said in INDEX.items() if said["sessionId"] == "parent")
        database.execute("INSERT INTO session_windows VALUES ('before', ?, 'initial', 0)", (key,))
        for seq, record in enumerate(
            [
                session(-500),
                user("a", None, -499, "u" * 80),
                answer("b", "a", -498, -490, (1_020, 0, 0, 50)),
            ]
        ):
            values = ("before", seq, json.dumps(record), 1_780_000_000_000 - 500_000 + seq)
            database.execute("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", values)
        database.commit()
    before, parent, child = imported(tmp_path, {"one.jsonl": "", "other.jsonl": ""}, "openclaw")[0]
    assert [turn.spawn for turn in before.turns] == [()]
    assert parent.turns[0].spawn == (child.session,)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as database:
        database.executescript(
            """
            CREATE TABLE transcript_events(session_id TEXT, seq INTEGER, event_json TEXT,
                created_at INTEGER, PRIMARY KEY(session_id, seq));
            CREATE TABLE session_windows(session_id TEXT PRIMARY KEY, session_key TEXT,
                reason TEXT, started_at INTEGER);
            CREATE TABLE session_nodes(session_key TEXT PRIMARY KEY, spawned_by TEXT);
            """
        )
        for name, records in {"parent": PARENT, "child": CHILD}.items():
            key = next(key for key, said in INDEX.items() if said["sessionId"] == name)
            database.execute("INSERT INTO session_windows VALUES (?, ?, 'initial', 0)", (name, key))
            database.execute(
                "INSERT INTO session_nodes VALUES (?, ?)", (key, INDEX[key].get("spawnedBy"))
            )
            for seq, record in reversed(list(enumerate(records))):
                at_ms = 1_780_000_000_000 + (0 if name == "parent" else 10_300) + seq
                database.execute(
                    "INSERT INTO transcript_events VALUES (?, ?, ?, ?)",
                    (name, seq, msgspec.json.encode(record).decode(), at_ms),
                )
        database.commit()
    return path


def test_the_store_says_the_same_as_the_files_and_is_not_touched(
    tmp_path: Path, store: Path
) -> None:
    before = store.read_bytes(), sorted(path.name for path in store.parent.iterdir())
    sessions, summary = imported(tmp_path / "agents", {})
    assert summary.format == "openclaw"
    checked(sessions)
    assert (store.read_bytes(), sorted(path.name for path in store.parent.iterdir())) == before


def test_an_event_of_the_store_that_is_none_is_named(tmp_path: Path, store: Path) -> None:
    with closing(sqlite3.connect(store)) as database:
        database.execute(
            "INSERT INTO transcript_events VALUES ('parent', 99, '{\"type\":', 1780000000999)"
        )
        database.commit()
    with pytest.raises(TraceError, match=r"openclaw-agent\.sqlite: event 99: not a JSON object"):
        imported(tmp_path / "agents", {})
    sessions, summary = imported(tmp_path / "agents", {}, None, "lenient")
    assert (len(sessions), summary.malformed[0][0]) == (2, "not a JSON object")


def test_a_damaged_store_is_the_users_to_mend(tmp_path: Path, store: Path) -> None:
    packed = bytearray(store.read_bytes())
    packed[100:4096] = b"x" * 3996
    written(store, bytes(packed))
    with pytest.raises(TraceError, match="sqlite"):
        imported(tmp_path / "agents", {}, "openclaw")


def test_sessions_that_spawned_each_other_are_sessions_of_their_own(tmp_path: Path) -> None:
    index = {
        "a": {"sessionId": "parent", "spawnedBy": "b"},
        "b": {"sessionId": "child", "spawnedBy": "a"},
    }
    found = files(parent=PARENT, child=CHILD) | {
        f"{FOLDER}/sessions.json": msgspec.json.encode(index).decode()
    }
    sessions, _ = imported(tmp_path, found)
    assert [only.start_s is None for only in sessions] == [False, False]


def test_nothing_of_the_keys_leaves_the_source(tmp_path: Path) -> None:
    sessions, _ = imported(
        tmp_path, files(parent=PARENT, child=CHILD, empty=[session(), entry("x", None, 1, "label")])
    )
    assert "120363" not in repr(sessions)
    assert "5e55" not in repr(sessions)
