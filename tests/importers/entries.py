"""Entries of pi's and OpenClaw's sessions, as the agents write them."""

from datetime import UTC, datetime
from typing import Any

DAY = 1_780_000_000_000
"""A day in milliseconds since 1970."""


def iso(seconds: float) -> str:
    return (
        datetime.fromtimestamp(DAY / 1000 + seconds, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def session(at: float = 0.0, **more: Any) -> dict[str, Any]:
    return {
        "type": "session",
        "version": 3,
        "id": "11111111-2222",
        "timestamp": iso(at),
        "cwd": "/home/somebody/secret",
    } | more


def entry(
    own: str | None, parent: str | None, at: float, kind: str = "message", **more: Any
) -> dict[str, Any]:
    links = {} if own is None else {"id": own, "parentId": parent}
    return {"type": kind, "timestamp": iso(at)} | links | more


def user(own: str | None, parent: str | None, at: float, text: str) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return entry(
        own,
        parent,
        at,
        message={"role": "user", "content": content, "timestamp": DAY + round(at * 1000)},
    )


def answer(  # noqa: PLR0917  # a table's row reads better without names
    own: str | None,
    parent: str | None,
    sent: float,
    done: float,
    usage: tuple[int, int, int, int] | None,
    text: str = "said",
    **more: Any,
) -> dict[str, Any]:
    """Usage is input, cacheRead, cacheWrite, output."""
    names = ("input", "cacheRead", "cacheWrite", "output")
    counts = (
        {}
        if usage is None
        else {
            "usage": dict(zip(names, usage, strict=True))
            | {"totalTokens": sum(usage), "cost": {"total": 0.1}}
        }
    )
    content = [
        {"type": "text", "text": text},
        {"type": "toolCall", "id": "c1", "name": "read", "arguments": {"path": "/home/somebody/x"}},
    ]
    known = {
        "role": "assistant",
        "content": content,
        "model": "glm",
        "stopReason": "toolUse",
        "timestamp": DAY + round(sent * 1000),
    }
    return entry(own, parent, done, message=known | counts | more)


def result(
    own: str | None, parent: str | None, at: float, text: str, name: str = "read", **more: Any
) -> dict[str, Any]:
    known = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": name,
        "content": [{"type": "text", "text": text}],
        "isError": False,
    }
    return entry(own, parent, at, message=known | {"timestamp": DAY + round(at * 1000)} | more)
