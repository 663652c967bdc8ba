"""Keep literal text beside a trace, only when it was asked for: one line for each content, by the key that the trace uses."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

import msgspec

from agentload.errors import TraceError

SUFFIX: Final = ".text.jsonl"


class Texts:
    """Write each content once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._seen: set[str] = set()

    def keep(self, key: str, role: str, text: str) -> None:
        """Write a text under its key."""
        if key not in self._seen:
            self._seen.add(key)
            self._file.write(msgspec.json.encode({"key": key, "role": role, "text": text}) + b"\n")

    @property
    def count(self) -> int:
        """Count the texts kept."""
        return len(self._seen)


def beside(path: Path) -> Path:
    """Return where the texts of a trace file lie."""
    return path.with_name(path.name.removesuffix(".zst").removesuffix(".jsonl") + SUFFIX)


class Kept(Mapping[str, str]):
    """Texts by key, which remember what was found in them."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = texts
        self.found: set[str] = set()

    def __getitem__(self, key: str) -> str:
        """Return a text, and remember that it was there."""
        text = self._texts[key]
        self.found.add(key)
        return text

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self._texts)

    def __len__(self) -> int:
        """Count the texts."""
        return len(self._texts)


def read(path: Path) -> Mapping[str, str]:
    """Read the texts of a trace file by key."""

    class _Line(msgspec.Struct):
        key: str
        text: str

    decode = msgspec.json.Decoder(_Line).decode
    try:
        with path.open("rb") as file:
            return {line.key: line.text for line in map(decode, file)}
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}", hint="agentload trace import FORMAT PATH... --with-text -o FILE") from error
    except msgspec.DecodeError as error:
        raise TraceError(f"{path}: no file of texts: {error}", hint="agentload trace import FORMAT PATH... --with-text -o FILE") from error
