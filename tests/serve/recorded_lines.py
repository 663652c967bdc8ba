"""Read what vLLM 0.32.0 sent (CPU build, random weights), to compare ours with it."""

import json
from pathlib import Path
from typing import Any, TypeAlias

Json: TypeAlias = Any

_FOLDER = Path(__file__).parent / "recorded"


def text(name: str) -> str:
    return (_FOLDER / name).read_text().rstrip("\n")


def lines(name: str) -> list[str]:
    return text(name).split("\n")


def shape(value: Json) -> Json:
    """Return the keys in order and the types of the leaves."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return type(value).__name__


def event(line: str | bytes) -> Json:
    """Decode the JSON of one event."""
    text = line.decode() if isinstance(line, bytes) else line
    return json.loads(text.strip().removeprefix("data: "))
