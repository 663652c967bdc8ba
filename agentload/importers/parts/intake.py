"""What an importer works with: the files, and where to put what it learns about them."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentload.importers.parts import files
from agentload.importers.parts.identity import Identity
from agentload.importers.parts.notes import Notes
from agentload.importers.parts.reuse import Reuse
from agentload.importers.parts.texts import Texts
from agentload.importers.parts.values import values

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Intake:
    """One import."""

    files: tuple[Path, ...]
    notes: Notes
    identity: Identity
    source: Reuse
    """Takes every call as the source has it, for the ideal hit ratio that the import must equal."""
    texts: Texts | None = None
    """Takes literal text; None: no word leaves the source."""
    bytes_per_token: float = 4.0
    """What a token of text is estimated to have in UTF-8; so a script of three bytes a character counts for more than its characters."""

    def records(self, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield (place, record) of all files in order."""
        for path in self.files:
            yield from files.records(path, kind, self.notes)

    def of(self, path: Path, kind: type[T]) -> Iterator[tuple[str, T]]:
        """Yield (place, record) of one file."""
        return files.records(path, kind, self.notes)

    def length(self, text: str) -> int:
        """Estimate the tokens of a text."""
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) / self.bytes_per_token)

    def name(self, role: str, content: str) -> str:
        """Name a content, and keep its text if that was asked for."""
        key = self.identity.of(role, content)
        if self.texts is not None:
            self.texts.keep(key, role, content)
        return key


class Head:
    """The beginning of a file, for guessing its format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = files.head(path)

    @cached_property
    def text(self) -> str:
        """Return the beginning as text."""
        return self.bytes.decode("utf-8", "replace")

    @cached_property
    def record(self) -> dict[str, Any]:
        """Return the first JSON object: a line, or the first element of an array; empty if there is none to be had."""
        found = next(iter(self.records), None)
        return found if isinstance(found, dict) else {}

    @cached_property
    def records(self) -> tuple[dict[str, Any], ...]:
        """Return the first few JSON objects."""
        found = (files.parsed(line) for line in self.bytes.split(b"\n")[:20] if line.strip())
        objects = tuple(value for value in found if isinstance(value, dict))
        return objects or self._elements

    @cached_property
    def _elements(self) -> tuple[dict[str, Any], ...]:
        found = (files.parsed(text) for _, text in values([self.bytes]) if text is not None)
        return tuple(value for value in found if isinstance(value, dict))

    def has(self, *names: str) -> bool:
        """Tell whether the first record has all these fields."""
        return all(name in self.record for name in names)


def read_fields(text: bytes, kind: type[T]) -> T | None:
    """Read a record, or return None where it is of another kind."""
    try:
        return msgspec.json.decode(text, type=kind, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
