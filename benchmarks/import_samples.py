"""Logs of any size for `importers.py`: sessions of
agents in several formats, no two with the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload.exporters import mooncake
from agentload.exporters.mooncake import Blocks
from agentload.model.walk import contexts
from agentload.workloads import catalog

CALLS: Final = 20
_BLOCK: Final = 64
_TEXT: Final = (
    "The quick brown fox jumps over the lazy dog and looks at the log of the build once more. " * 20
)
_DAY_S: Final = 1_790_000_000
_PER_FILE: Final = 25
"""Sessions that share a file where a format has files
of a session, so that a file is one long session.
"""

Record = dict[str, Any]
encode = msgspec.json.Encoder().encode


def said(session: int, number: int) -> str:
    """Return some words, about as many as a tool's result has."""
    return f"{session} {number} {_TEXT}"


def chat(session: int, calls: int = CALLS) -> list[Record]:
    """Return a conversation of so many answers."""
    found: list[Record] = [{"role": "system", "content": _TEXT * 2}]
    for number in range(calls):
        found += [
            {"role": "user", "content": said(session, number)},
            {"role": "assistant", "content": f"so {session} {number}"},
        ]
    return found


def iso(at_s: float) -> str:
    """Write a time as logs do."""
    minutes, seconds = divmod(at_s, 60)
    hours, minutes = divmod(int(minutes), 60)
    days, hours = divmod(hours, 24)
    return (
        f"2026-{1 + days // 28 % 12:02}-{1 + days % 28:02}T{hours:02}:{minutes:02}:{seconds:06.3f}Z"
    )


def kv_cache_tester(sessions: int, seed: int = 1) -> Iterator[Record]:
    """Yield long sessions of the 'code' workload as kv-cache-tester
    writes them: the ids of all blocks of each call.
    """
    trace = catalog.trace("code", seed=seed, options={"sessions": sessions})
    for session in (found for found in trace.sessions if len(found.turns) > 2 * CALLS):
        blocks, requests, at_s = Blocks(block=_BLOCK, source=_BLOCK), [], 0.0
        for turn, context in zip(session.turns, contexts(trace.header, session), strict=True):
            at_s += turn.wait_s
            tokens = sum(segment.tokens for segment in context)
            ids = [found & 0xFFFFFF for found in blocks.ids(context)[: tokens // _BLOCK]]
            kinds = ["tool_result" if turn.wait == "tool" else "text"]
            request = {
                "t": at_s,
                "type": "n",
                "in": tokens,
                "out": turn.output,
                "hash_ids": ids,
                "input_types": kinds,
            }
            requests.append(request | {"api_time": 2.0, "think_time": turn.wait_s})
            at_s += 2.0
        yield {
            "id": session.session,
            "block_size": _BLOCK,
            "hash_id_scope": "local",
            "requests": requests,
        }


def mooncakes(requests: int, seed: int = 1) -> Iterator[bytes]:
    """Yield lines of chats as the Mooncake project writes them."""
    found = mooncake.lines(
        catalog.trace("chat", seed=seed, options={"sessions": requests}), block=512
    )
    return (line for line, _ in zip(found, range(requests), strict=False))


def _weka(session: int) -> Iterator[Record]:
    ids = list(range(100 + CALLS * 30))
    requests = (
        {
            "t": 9.0 * number,
            "type": "n",
            "in": len(found) * _BLOCK,
            "out": 200,
            "hash_ids": found,
            "api_time": 2.0,
        }
        for number in range(CALLS)
        for found in (ids[: 100 + number * 30],)
    )
    yield {
        "id": f"s{session}",
        "block_size": _BLOCK,
        "hash_id_scope": "local",
        "requests": list(requests),
    }


def _mooncake(session: int) -> Iterator[Record]:
    for number in range(CALLS):
        ids = [0, *range(1 + session * 100, 40 + session * 100 + number)]
        yield {
            "timestamp": session * 1_000 + number,
            "input_length": len(ids) * 512,
            "output_length": 200,
            "hash_ids": ids,
        }


def _openai_chat(session: int) -> Iterator[Record]:
    yield {"messages": chat(session)}


def _litellm(session: int) -> Iterator[Record]:
    for number in range(1, 6):
        at_s = session * 3.0 + number * 20.0
        yield {
            "request_id": f"{session}.{number}",
            "trace_id": f"t{session}",
            "call_type": "completion",
            "model": "m",
            "prompt_tokens": 1_000 + number * 450,
            "completion_tokens": 9,
            "startTime": iso(at_s),
            "endTime": iso(at_s + 2),
            "messages": chat(session, number)[:-1],
            "response": {
                "choices": [
                    {"message": {"role": "assistant", "content": f"so {session} {number - 1}"}}
                ]
            },
        }


def _otel(session: int) -> Iterator[Record]:
    for number in range(1, 6):
        at_s = session * 3.0 + number * 20.0
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.usage.input_tokens": 1_000 + number * 450,
            "gen_ai.usage.output_tokens": 9,
            "gen_ai.input.messages": encode(chat(session, number)[:-1]).decode(),
        }
        ids = {"trace_id": f"t{session}", "span_id": f"{session}.{number}"}
        yield ids | {"start_time": iso(at_s), "end_time": iso(at_s + 2), "attributes": attributes}


def _pi(session: int) -> Iterator[Record]:
    yield {
        "type": "session",
        "version": 3,
        "id": f"s{session}",
        "timestamp": iso(session * 100.0),
        "cwd": "/",
    }
    before = None
    for number in range(CALLS * _PER_FILE):
        at_s = session * 100.0 + number * 9.0
        entry = {"type": "message", "timestamp": iso(at_s), "parentId": before, "id": f"u{number}"}
        yield entry | {
            "message": {
                "role": "user",
                "content": said(session, number),
                "timestamp": int((_DAY_S + at_s) * 1000),
            }
        }
        usage = {"input": 500, "output": 9, "cacheRead": number * 500, "cacheWrite": 0}
        message = {
            "role": "assistant",
            "content": [{"type": "text", "text": f"so {session} {number}"}],
            "usage": usage,
            "model": "m",
        }
        before = f"a{number}"
        yield entry | {
            "parentId": f"u{number}",
            "id": before,
            "timestamp": iso(at_s + 2),
            "message": message,
        }


def _claude_code(session: int) -> Iterator[Record]:
    before = None
    for number in range(CALLS * _PER_FILE):
        at_s = session * 100.0 + number * 9.0
        entry = {"sessionId": f"s{session}", "cwd": "/", "version": "2", "isSidechain": False}
        user = {"role": "user", "content": said(session, number)}
        yield entry | {
            "type": "user",
            "uuid": f"{session}u{number}",
            "parentUuid": before,
            "timestamp": iso(at_s),
            "message": user,
        }
        usage = {
            "input_tokens": 5,
            "cache_read_input_tokens": number * 500,
            "cache_creation_input_tokens": 495,
            "output_tokens": 40,
        }
        message = {
            "id": f"{session}m{number}",
            "model": "m",
            "usage": usage,
            "content": [{"type": "text", "text": f"so {session} {number}"}],
        }
        before = f"{session}a{number}"
        times = {"timestamp": iso(at_s + 2), "requestId": f"{session}r{number}"}
        yield (
            entry
            | times
            | {
                "type": "assistant",
                "uuid": before,
                "parentUuid": f"{session}u{number}",
                "message": message,
            }
        )


FORMATS: Final[dict[str, Callable[[int], Iterator[Record]]]] = {
    "weka": _weka,
    "mooncake": _mooncake,
    "openai_chat": _openai_chat,
    "litellm": _litellm,
    "otel": _otel,
    "pi": _pi,
    "claude_code": _claude_code,
}
"""The records of one session."""
FILES_OF_A_SESSION: Final = frozenset({"pi", "claude_code"})


def fill(folder: Path, format: str, size: int) -> None:
    """Write files of together so many bytes: one, or
    where a file is a session, as many as it takes.
    """
    folder.mkdir(parents=True)
    left = size
    sessions = count()
    while left > 0:
        with (folder / f"{next(sessions)}.jsonl").open("wb", buffering=1 << 20) as file:
            for session in sessions:
                lines = b"".join(encode(record) + b"\n" for record in FORMATS[format](session))
                file.write(lines)
                left -= len(lines)
                if left <= 0 or format in FILES_OF_A_SESSION:
                    break
