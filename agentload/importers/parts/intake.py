"""The input of an importer: its files, the keys of contents, and the notes it takes."""

import base64
import hashlib
import math
from collections import UserDict
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Final, TypeVar

import msgspec

from agentload import documents
from agentload.errors import TraceError
from agentload.importers.parts import files
from agentload.importers.parts.files import JsonRecord, Placed, values
from agentload.importers.parts.notes import ImportNotes
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.record import Record

_BYTES: Final = 9  # 12 characters; a collision among a million contents has a chance of 1e-10
_NUMBERS: Final = 1 << 32
"""Block ids below this are numbers; larger ones may be content hashes and are hashed again."""
_MASK: Final = (1 << 53) - 1  # exact in every JSON reader
_LINES: Final = 20
"""Lines of a file's start that are read to guess its format."""
SUFFIX: Final = ".text.jsonl"
T = TypeVar("T")


class ContentKeys:
    """Hash with the secret key of one import, which is not stored."""

    def __init__(self, key: bytes) -> None:
        self._start = hashlib.blake2b(key=key, digest_size=_BYTES)
        self._number = hashlib.blake2b(key=key, digest_size=8)

    def of(self, role: str, content: str | bytes) -> str:
        """Return the key of a content in a role; in another role its key is another."""
        hashed = self._start.copy()
        hashed.update(role.encode() + b"\0")
        if isinstance(content, str):
            content = content.encode("utf-8", "surrogatepass")
        hashed.update(content)
        return base64.urlsafe_b64encode(hashed.digest()).decode()

    def block(self, found: int | str) -> int:
        """Return the number of a block; small numbers are kept."""
        if isinstance(found, int) and 0 <= found < _NUMBERS:
            return found
        hashed = self._number.copy()
        hashed.update(str(found).encode("utf-8", "surrogatepass"))
        return int.from_bytes(hashed.digest()) & _MASK | _NUMBERS


class Texts:
    """Write each content once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seen: set[str] = set()

    def keep(self, key: str, role: str, text: str) -> None:
        """Write a text under its key, with `?` for half of a surrogate pair."""
        if key not in self._seen:
            self._seen.add(key)
            text = text.encode("utf-8", "replace").decode()
            self._file.write(msgspec.json.encode({"key": key, "role": role, "text": text}) + b"\n")

    @property
    def count(self) -> int:
        """Number of texts kept."""
        return len(self._seen)


def texts_path(path: Path) -> Path:
    """Return the path of a trace file's texts."""
    return path.with_name(path.name.removesuffix(".zst").removesuffix(".jsonl") + SUFFIX)


class KeptTexts(UserDict[str, str]):
    """Texts by key; `found` remembers which were used."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.found: set[str] = set()

    def __getitem__(self, key: str) -> str:
        """Return a text and remember its use."""
        text = super().__getitem__(key)
        self.found.add(key)
        return text


def read_texts(path: Path) -> Mapping[str, str]:
    """Read the texts of a trace file by key."""

    class _Line(msgspec.Struct):
        key: str
        text: str

    decode = msgspec.json.Decoder(_Line).decode
    try:
        with path.open("rb") as file:
            return {line.key: line.text for line in map(decode, file)}
    except OSError as error:
        raise TraceError(
            f"{path}: {error.strerror}",
            hint="agentload trace import FORMAT PATH... --with-text -o FILE",
        ) from error
    except documents.UNREADABLE as error:
        raise TraceError(
            f"{path}: not a text file: {error}",
            hint="agentload trace import FORMAT PATH... --with-text -o FILE",
        ) from error


class Intake(Record):
    """One import."""

    files: tuple[Path, ...]
    notes: ImportNotes
    identity: ContentKeys
    source: BlockReuse
    """Counts every call of the source, for the ideal hit rate that the import must match."""
    texts: Texts | None = None
    """Collects literal text; None if no text may leave the source."""
    bytes_per_token: float = 4.0
    """Estimated UTF-8 bytes of a token, so scripts with three bytes a character count more."""

    def records(self, kind: type[T]) -> Placed[T]:
        """Yield (place, record) from all files in order."""
        for path in self.files:
            yield from files.records(path, kind, self.notes)

    def of(self, path: Path, kind: type[T]) -> Placed[T]:
        """Yield (place, record) from one file."""
        return files.records(path, kind, self.notes)

    def length(self, text: str) -> int:
        """Estimate the tokens of a text."""
        return math.ceil(len(text.encode("utf-8", "surrogatepass")) / self.bytes_per_token)

    def name(self, role: str, content: str) -> str:
        """Return the key of a content, and keep its text if requested."""
        key = self.identity.of(role, content)
        if self.texts is not None:
            self.texts.keep(key, role, content)
        return key


class Head:
    """The start of a file, for guessing its format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.bytes = files.head(path)

    @cached_property
    def text(self) -> str:
        """Start of the file as text."""
        return self.bytes.decode("utf-8", "replace")

    @cached_property
    def record(self) -> JsonRecord:
        """First JSON object, of a line or an array; empty if there is none."""
        return next(iter(self.records), {})

    @cached_property
    def records(self) -> tuple[JsonRecord, ...]:
        """First few JSON objects."""
        lines = filter(bytes.strip, self.bytes.split(b"\n")[:_LINES])
        found = files.objects(list(map(files.parse_json, lines)))
        return tuple(found) or self._elements

    @cached_property
    def _elements(self) -> tuple[JsonRecord, ...]:
        texts = [text for _, text in values([self.bytes]) if text is not None]
        return tuple(files.objects(list(map(files.parse_json, texts))))

    def has(self, *names: str) -> bool:
        """Return whether the first record has all these fields."""
        return all(name in self.record for name in names)

    def has_any(self, *names: str) -> bool:
        """Return whether the first record has one of these fields."""
        return any(name in self.record for name in names)

    def has_columns(self, *names: str) -> bool:
        """Return whether the first line names all these columns, in any case."""
        first = self.text.partition("\n")[0].lower()
        return all(name in first for name in names)
