"""RAGPulse traces (flashserve/RAGPulse): requests of a retrieval
service, with ids of system prompts, passages and history.

{"timestamp": s, "input_length", "output_length", "hash_ids": {"sys_prompt": [...],
"passages_ids": [...], "history": [...], "web_search": [...], "user_input": [...]},
"session_id"}; the lengths of the ids are in tables ("token_length") in the same folder.
Contexts are assembled in this order: system prompt, passages, web search, history, user text.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final

import msgspec

from agentload.errors import TraceError
from agentload.importers.parts import (
    ContextPiece,
    Grid,
    Head,
    Intake,
    JsonRecord,
    chat,
    records,
    requests,
)
from agentload.model.trace import Role, Session
from agentload.plugins import Count, Positive, Seconds

FILES: Final = ("*.jsonl",)
LICENCE: Final = "the public RAGPulse trace is MIT (flashserve/RAGPulse)"
_ORDER: Final[tuple[tuple[str, Role], ...]] = (
    ("sys_prompt", "system"),
    ("passages_ids", "user"),
    ("web_search", "user"),
    ("history", "user"),
    ("user_input", "user"),
)


class _Line(msgspec.Struct):
    timestamp: Seconds
    input_length: Positive
    output_length: Count
    hash_ids: dict[str, list[int]]
    session_id: str | None = None


def sniff(head: Head) -> float:
    """Look for ids by kind, or for a table of lengths."""
    if isinstance(head.record.get("hash_ids"), dict):
        return 1.0
    if head.has("token_length") and len(head.record) == 2:
        return 0.7
    return 0.0


def sessions(intake: Intake, *, grid: Grid = "keep") -> Iterator[Session]:
    """Yield a session for each `session_id`; grid=spread
    spreads the starts within a second over it.
    """
    near = sorted({found for path in intake.files for found in path.parent.glob("*.jsonl*")})
    tables = [path for path in near if Head(path).has("token_length")]
    lengths = dict(chain.from_iterable(_lengths(intake, path) for path in tables))
    if not lengths:
        raise TraceError(
            f"{intake.files[0]}: no table of lengths next to it",
            hint="give the folder with the trace and its tables",
        )
    found = _requests(intake, [path for path in intake.files if path not in tables], lengths)
    return requests.sessions(intake, found, workload="ragpulse", grid=grid)


def _lengths(intake: Intake, path: Path) -> Iterator[tuple[int, int]]:
    """Yield the ids of a table, each with its tokens."""
    for place, row in records(path, JsonRecord, intake.notes):
        ids = [value for name, value in row.items() if name.endswith("_id")]
        length = row.get("token_length")
        if len(ids) == 1 and isinstance(ids[0], int) and isinstance(length, int) and length >= 0:
            yield ids[0], length
        else:
            intake.notes.skip(place, "no id or token_length")


def _requests(
    intake: Intake, paths: list[Path], lengths: Mapping[int, int]
) -> Iterator[requests.SizedCall]:
    for path in paths:
        for place, line in records(path, _Line, intake.notes):
            pieces = list(_pieces(intake, line, place, lengths))
            known = chat.total(pieces)
            if known > line.input_length:
                intake.notes.meet(place, "the lengths of the ids exceed input_length")
            yield requests.SizedCall(
                session=requests.session_name(line.session_id, place),
                at_s=line.timestamp,
                place=place,
                prompt=max(line.input_length, known),
                output=line.output_length,
                pieces=pieces,
            )


def _pieces(
    intake: Intake, line: _Line, place: str, lengths: Mapping[int, int]
) -> Iterator[ContextPiece]:
    """Yield the pieces of a prompt whose lengths are known, in their order."""
    for kind, role in _ORDER:
        for found in line.hash_ids.get(kind, ()):
            tokens = lengths.get(found)
            if tokens is None:
                what = "an id without a length in the tables: its tokens have no identity"
                intake.notes.meet(place, what)
            elif tokens:
                yield ContextPiece(role=role, tokens=tokens, key=f"{kind[:1]}{found}")
