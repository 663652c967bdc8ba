"""A small file, or a few, of every format, with words that
must not leave it: for tests that hold for all formats.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from agentload.importers import catalog
from tests.importers import (
    entries,
    test_bailian,
    test_mooncake,
    test_prometheus,
    test_ragpulse,
    test_tables_of_requests,
    test_tracelab,
    test_weka,
)
from tests.importers.entries import answer, result, session, user
from tests.importers.importing import jsonl, written
from tests.importers.test_codex import count, item, line, usage

_rng = Random(5)
SECRETS: list[str] = []
"""Every text that stands in a sample and is its content: words, arguments, paths, names, ids."""


def secret(words: int = 12) -> str:
    """Return new words."""
    text = " ".join(
        "".join(_rng.choice("bcdfghjklmnpqrstvwxzäöü") for _ in range(_rng.randint(4, 9)))
        for _ in range(words)
    )
    SECRETS.append(text)
    return text


def chat() -> list[dict[str, Any]]:
    """Return a conversation with a tool."""
    arguments = msgspec.json.encode({"path": secret(3)}).decode()
    calls = [
        {"id": secret(1), "type": "function", "function": {"name": "read", "arguments": arguments}}
    ]
    return [
        {"role": "system", "content": secret(30)},
        {"role": "user", "content": [{"type": "text", "text": secret()}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[0]["id"], "name": "read", "content": secret(40)},
        {"role": "assistant", "content": secret()},
    ]


def _pi() -> list[dict[str, Any]]:
    return [
        session(cwd=secret(2), id=secret(1)),
        user("a", None, 1, secret()),
        answer("b", "a", 1.5, 4.0, (900, 100, 20, 50), secret()),
        result("c", "b", 4.5, secret(60)),
        answer("d", "c", 5.0, 6.0, (10, 1_000, 160, 7), secret()),
        entries.entry(
            "k", "d", 8.0, "compaction", summary=secret(20), firstKeptEntryId="c", tokensBefore=9
        ),
        answer("e", "k", 9.0, 9.5, (300, 0, 0, 7), secret()),
    ]


def _claude() -> str:
    envelope = {
        "sessionId": secret(1),
        "cwd": secret(2),
        "version": "2",
        "gitBranch": secret(1),
        "isSidechain": False,
    }
    counts = {
        "input_tokens": 5,
        "cache_read_input_tokens": 900,
        "cache_creation_input_tokens": 60,
        "output_tokens": 40,
    }

    def one(
        uuid: str, parent: str | None, at: float, kind: str, message: dict[str, Any], **more: Any
    ) -> dict[str, Any]:
        return (
            envelope
            | {
                "uuid": uuid,
                "parentUuid": parent,
                "timestamp": entries.iso(at),
                "type": kind,
                "message": message,
            }
            | more
        )

    use = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"file_path": secret(2)}}
    told = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [{"type": "text", "text": secret(40)}],
    }
    return jsonl(
        {"type": "summary", "summary": secret(), "leafUuid": "x"},
        one("u", None, 0, "user", {"role": "user", "content": secret()}),
        one(
            "a",
            "u",
            3,
            "assistant",
            {
                "id": "m",
                "model": "opus",
                "content": [{"type": "text", "text": secret()}],
                "usage": counts,
            },
            requestId="r",
        ),
        one(
            "b",
            "a",
            4,
            "assistant",
            {"id": "m", "model": "opus", "content": [use], "usage": counts},
            requestId="r",
        ),
        one(
            "c",
            "b",
            5,
            "user",
            {"role": "user", "content": [told]},
            toolUseResult={"stdout": secret(9)},
        ),
        one(
            "d",
            "c",
            9,
            "assistant",
            {
                "id": "n",
                "model": "opus",
                "content": [{"type": "text", "text": secret()}],
                "usage": counts,
            },
            requestId="s",
        ),
    )


def _codex() -> str:
    first, total = usage(1_000, 0, 60, 30), usage(2_300, 900, 70, 30)
    return jsonl(
        line(
            0, "session_meta", id=secret(1), cwd=secret(2), cli_version="1", instructions=secret(30)
        ),
        item(1, "message", role="user", content=[{"type": "input_text", "text": secret()}]),
        item(
            5,
            "reasoning",
            summary=[{"type": "summary_text", "text": secret()}],
            encrypted_content=secret(3),
        ),
        item(7, "function_call", name="shell", arguments=secret(4), call_id="c1"),
        count(7.1, first, first),
        item(9, "function_call_output", call_id="c1", output=secret(40)),
        item(12, "message", role="assistant", content=[{"type": "output_text", "text": secret()}]),
        count(12.1, None, total),
    )


def _openclaw(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "CREATE TABLE transcript_events(session_id TEXT, seq INTEGER, event_json TEXT, "
            "created_at INTEGER)"
        )
        name = secret(1)
        for seq, record in enumerate(_pi()):
            database.execute(
                "INSERT INTO transcript_events VALUES (?, ?, ?, ?)",
                (name, seq, msgspec.json.encode(record).decode(), entries.DAY + seq),
            )
        database.commit()
    found = path.read_bytes()
    path.unlink()
    return found


def _cache_trace() -> str:
    base = {
        "seq": 1,
        "stage": "stream:context",
        "sessionId": secret(1),
        "sessionKey": secret(1),
        "system": secret(30),
    }
    first = [{"role": "user", "content": secret()}]
    said = {
        "role": "assistant",
        "content": [{"type": "text", "text": secret()}],
        "usage": {"input": 90, "output": 7},
    }
    later = [
        *first,
        said,
        {
            "role": "toolResult",
            "toolName": "read",
            "content": [{"type": "text", "text": secret(40)}],
        },
    ]
    return jsonl(
        base | {"ts": entries.iso(0), "messages": first},
        base | {"ts": entries.iso(4), "messages": later},
    )


def _jobs() -> str:
    schedule = {"kind": "every", "everyMs": 3_600_000, "anchorMs": entries.DAY}
    job = {
        "id": secret(1),
        "name": secret(2),
        "createdAtMs": entries.DAY,
        "schedule": schedule,
        "payload": {"message": secret()},
    }
    return msgspec.json.encode({"version": 1, "jobs": [job]}).decode()


def _otel() -> str:
    asked = msgspec.json.encode(
        [{"role": "user", "parts": [{"type": "text", "content": secret()}]}]
    ).decode()
    said = msgspec.json.encode(
        [{"role": "assistant", "parts": [{"type": "text", "content": secret()}]}]
    ).decode()
    told = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 9,
        "gen_ai.system_instructions": secret(),
        "gen_ai.tool.definitions": msgspec.json.encode(
            [{"name": "read", "description": secret()}]
        ).decode(),
    }
    base = {"trace_id": secret(1), "start_time": entries.iso(0), "end_time": entries.iso(3)}
    first = base | {
        "span_id": "1",
        "attributes": told | {"gen_ai.input.messages": asked, "gen_ai.output.messages": said},
    }
    return jsonl(
        first, first | {"span_id": "2", "start_time": entries.iso(5), "end_time": entries.iso(6)}
    )


def _litellm() -> str:
    known = {
        "call_type": "completion",
        "model": "m",
        "user": secret(1),
        "api_key": secret(1),
        "prompt_tokens": 300,
        "completion_tokens": 9,
    }
    times = {"startTime": entries.iso(0), "endTime": entries.iso(2)}
    messages = chat()
    response = {"choices": [{"message": {"role": "assistant", "content": secret()}}]}
    return jsonl(
        known
        | times
        | {"request_id": "1", "trace_id": secret(1), "messages": messages[:2], "response": response}
    )


def _vllm() -> str:
    log = (
        "INFO 11-05 12:39:35 [logger.py:40] Received request {}: prompt: {!r}, params: "
        "SamplingParams(max_tokens=7), x\n"
    )
    return (
        log.format("r1", secret(60))
        + log.format("r2", secret(60))
        + f"INFO 11-05 12:39:39 [x] Generated response r1: output: {secret()!r}\n"
    )


def _access() -> str:
    line = (
        '10.0.0.9 - {} [10/Oct/2026:13:55:36 +0200] "POST /v1/chat/completions?key={} '
        'HTTP/1.1" 200 880 "-" "{}" request_length=2000\n'
    )
    return line.format(secret(1), secret(1), secret(2)) * 2


def _servegen() -> dict[str, str]:
    tables = {
        "0": {
            "input_tokens": "{50: 0.5, 60: 0.5}",
            "output_tokens": "{7: 1.0}",
            "reason_ratio": "{0.5: 1.0}",
        }
    }
    return {
        "chunk-1-trace.csv": "0,0.05,1.0,Gamma,1.0,20.0\n600,0,0,,0,0\n",
        "chunk-1-dataset.json": msgspec.json.encode(tables).decode(),
    }


def samples(scratch: Path) -> dict[str, dict[str, str | bytes]]:
    """Return each format's files by name."""
    prompt = secret(60)
    tools = [{"type": "function", "function": {"name": "read", "description": secret()}}]
    system = {
        "timestamp": 1_760_428_436_000_000,
        "session_id": secret(1),
        "input": prompt,
        "output": secret(),
    }
    trajectory = {
        "history": chat(),
        "trajectory": [{"execution_time": 1.0}],
        "info": {"model_stats": {"tokens_sent": 9}},
    }
    made: dict[str, dict[str, str | bytes]] = {
        "access_log": {"a.log": _access()},
        "azure": {"a.csv": test_tables_of_requests.AZURE},
        "bailian": {"b.jsonl": test_bailian.TEXT},
        "burstgpt": {"b.csv": test_tables_of_requests.BURST},
        "claude_code": {"c.jsonl": _claude()},
        "codex": {"rollout-c.jsonl": _codex()},
        "litellm": {"l.jsonl": _litellm()},
        "lmcache": {"l.jsonl": jsonl(system, system | {"input": prompt + secret()})},
        "llmservingsim": {
            "w.jsonl": jsonl(
                {
                    "session_id": secret(1),
                    "arrival_time_ns": 10**9,
                    "sub_requests": [
                        {"input_toks": 40, "output_toks": 9, "tool_duration_ns": 10**8},
                        {"input_toks": 90, "output_toks": 9, "tool_duration_ns": 0},
                    ],
                },
                {"input_toks": 20, "output_toks": 5, "arrival_time_ns": 2 * 10**9},
            )
        },
        "mooncake": {
            "m.jsonl": test_mooncake.LINES
            + jsonl(
                {"timestamp": 9, "text_input": secret(), "output_length": 3},
                {
                    "timestamp": 9,
                    "payload": {"messages": chat()[:2], "tools": tools},
                    "output_length": 3,
                },
            )
        },
        "openai_chat": {
            "o.jsonl": jsonl(
                {"messages": chat(), "tools": tools},
                {"messages": chat()[:2], "user": secret(1), "max_tokens": 5},
            )
        },
        "openclaw": {"openclaw-agent.sqlite": _openclaw(scratch / "s.sqlite")},
        "openclaw_cache_trace": {"cache-trace.jsonl": _cache_trace()},
        "openclaw_jobs": {"jobs.json": _jobs()},
        "otel": {"o.jsonl": _otel()},
        "pi": {"p.jsonl": jsonl(*_pi())},
        "prometheus": {"m.prom": test_prometheus.CHAT},
        "ragpulse": {"0.jsonl": test_ragpulse.TRACE, **test_ragpulse.TABLES},
        "servegen": dict(_servegen()),
        "swe_agent": {"s.traj": msgspec.json.encode(trajectory).decode()},
        "tau_bench": {
            "t.json": msgspec.json.encode(
                [{"task_id": 0, "reward": 1.0, "info": {"instruction": secret()}, "traj": chat()}]
            ).decode()
        },
        "tracelab": {"t.jsonl": jsonl(test_tracelab.FIRST, test_tracelab.SECOND)},
        "vllm_log": {"v.log": _vllm()},
        "weka": {"w.jsonl": jsonl(test_weka.TRACE | {"block_size": 64, "id": secret(1)})},
    }
    assert made.keys() == set(catalog.names()), "every format has a sample here"
    return made


def laid_out(folder: Path, files: dict[str, str | bytes]) -> list[Path]:
    """Write a sample, and return what is to be imported."""
    paths = [written(folder / name, content) for name, content in files.items()]
    return [folder] if len(paths) > 1 else paths
