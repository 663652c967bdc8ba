"""What OpenClaw writes beside its sessions: the cache trace, and the list of jobs."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from agentload.errors import TraceError
from tests.importers.entries import DAY, iso
from tests.importers.importing import imported, jsonl, lengths, sent

ASKED = {"role": "user", "content": "u" * 80}
SAID = {
    "role": "assistant",
    "content": [{"type": "toolCall", "id": "1", "name": "read", "arguments": {}}],
}
RESULT = {
    "role": "toolResult",
    "toolCallId": "1",
    "toolName": "read",
    "content": [{"type": "text", "text": "r" * 200}],
}


def event(seq: int, at: float, stage: str, messages: list[Any], **more: Any) -> dict[str, Any]:
    return {
        "ts": iso(at),
        "seq": seq,
        "stage": stage,
        "runId": "r",
        "sessionId": "s",
        "modelId": "m",
        "messages": messages,
    } | more


def usage(prompt: int, cached: int, output: int) -> dict[str, Any]:
    return {
        "usage": {"input": prompt - cached, "cacheRead": cached, "cacheWrite": 0, "output": output}
    }


def test_the_cache_traces_requests_are_calls_and_the_next_event_tells_the_answer(
    tmp_path: Path,
) -> None:
    events = [
        event(1, 0, "session:loaded", []),
        event(2, 1, "stream:context", [ASKED], system="s" * 400),
        event(3, 5, "stream:context", [ASKED, SAID | usage(130, 0, 9), RESULT], system="s" * 400),
        event(
            4,
            9,
            "session:after",
            [ASKED, SAID, RESULT, {"role": "assistant", "content": "done"} | usage(200, 120, 4)],
        ),
    ]
    (only,), summary = imported(tmp_path, {"cache-trace.jsonl": jsonl(*events)})
    assert summary.format == "openclaw_cache_trace"
    assert [[(segment.role, segment.tokens) for segment in context] for context in sent(only)] == [
        [("system", 108), ("user", 22)],
        [("system", 108), ("user", 22), ("assistant", 9), ("tool", 61)],
    ]
    assert (
        lengths(only),
        [turn.output for turn in only.turns],
        [turn.wait for turn in only.turns],
    ) == ([130, 200], [9, 4], [None, "tool"])
    assert summary.recorded_hits == 120 / 330


def test_a_request_whose_answer_never_came_is_a_call_too(tmp_path: Path) -> None:
    events = [event(1, 1, "stream:context", [ASKED]), event(2, 3, "stream:context", [ASKED])]
    (only,), _ = imported(tmp_path, {"cache-trace.jsonl": jsonl(*events)})
    assert len(only.turns) == 2


def job(own: str, schedule: dict[str, Any], **more: Any) -> dict[str, Any]:
    payload = {"kind": "agentTurn", "message": f"{own} " * 20}
    return {
        "id": own,
        "enabled": True,
        "createdAtMs": DAY,
        "schedule": schedule,
        "sessionTarget": "isolated",
        "payload": payload,
    } | more


def fired(
    folder: Path, *jobs: dict[str, Any], **options: Any
) -> list[tuple[float | None, float | None]]:
    text = msgspec.json.encode({"version": 1, "jobs": jobs}).decode()
    sessions, _ = imported(folder, {"jobs.json": text}, "openclaw_jobs", **options)
    return [(session.start_s, session.turns[0].deadline_s) for session in sessions]


HOUR = 3_600.0
FULL = (-(DAY / 1000)) % HOUR  # seconds to the first full hour


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            {"kind": "every", "everyMs": 1_800_000, "anchorMs": DAY - 600_000},
            [(1_200.0, 1_800.0), (3_000.0, 1_800.0), (4_800.0, 1_800.0), (6_600.0, None)],
        ),
        ({"kind": "at", "at": DAY + 60_000}, [(60.0, None)]),
        ({"kind": "at", "at": iso(90)}, [(90.0, None)]),
        (
            {"kind": "cron", "expr": "0 * * * *", "staggerMs": 0},
            [(FULL, HOUR), (FULL + HOUR, None)],
        ),
    ],
    ids=["every", "at", "at, as a date", "cron"],
)
def test_jobs_fire_by_their_schedules_until_the_next_is_due(
    tmp_path: Path, schedule: dict[str, Any], expected: list[Any]
) -> None:
    assert fired(tmp_path, job("j", schedule), hours=2) == expected


def test_full_hours_are_staggered_but_each_job_by_the_same(tmp_path: Path) -> None:
    found = fired(
        tmp_path, job("j", {"kind": "cron", "expr": "0 * * * *", "tz": "Europe/Berlin"}), hours=3
    )
    late = {round(((start or 0.0) - FULL) % HOUR, 3) for start, _ in found}
    assert len(found) == 3
    assert len(late) == 1
    assert 0 <= late.pop() < 300


def test_runs_share_the_prefix_and_disabled_jobs_do_not_fire(tmp_path: Path) -> None:
    every = {"kind": "every", "everyMs": 3_600_000, "anchorMs": DAY}
    jobs = [
        job("a", every),
        job("b", every),
        job("c", every, enabled=False),
        job("d", {"kind": "stream"}),
        job("e", {"kind": "moon"}),
    ]
    jobs.append(job("f", every, payload={"kind": "command", "command": "make"}))
    text = msgspec.json.encode({"jobs": jobs}).decode()
    sessions, summary = imported(tmp_path, {"jobs.json": text}, hours=1, prefix=100, output=7)
    assert summary.format == "openclaw_jobs"
    assert [
        [(segment.role, segment.tokens) for segment in session.turns[0].add] for session in sessions
    ] == 2 * [[("system", 100), ("user", 10)]]
    assert len({session.turns[0].add[0].key for session in sessions}) == 1
    assert [what for what, _, _ in summary.odd] == ["a schedule of an unknown kind"]
    assert {what for what, _, _ in summary.dropped} == {
        "a job fired by an event, not by the clock",
        "a job that runs a program, not an agent",
    }


def test_a_schedule_that_cannot_be_read_is_counted(tmp_path: Path) -> None:
    jobs = [
        job("a", {"kind": "cron", "expr": "99 * * * *"}),
        job("b", {"kind": "cron", "expr": "* * * * *", "tz": "Mars/Olympus"}),
    ]
    with pytest.raises(TraceError, match=r"no session of .*: 2 × an unreadable schedule"):
        fired(tmp_path, *jobs, hours=1)


def test_jobs_that_do_not_fire_again_are_no_session(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no session of format openclaw_jobs"):
        fired(tmp_path, job("j", {"kind": "at", "at": DAY - 60_000}), hours=2)
