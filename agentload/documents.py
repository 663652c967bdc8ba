"""Read files that people and other programs wrote, with bounds and errors that name the line.

YAML can say more than anybody means: lists within lists by the thousand, a
mapping that holds itself, an alias that expands to a million others, numbers of
five thousand digits or none at all. Each is refused with its line, so that
readers of a document may walk it without a bound of their own.
"""

import ast
import gzip
import io
import math
import warnings
import zlib
from collections.abc import Iterable, Iterator
from importlib.resources import files
from pathlib import Path
from threading import Lock
from typing import Any, Final

import yaml
import zstandard

from agentload.errors import AgentloadError, TraceError

MOST_BYTES: Final = 1 << 20
"""Most bytes of a document; the largest that is meant has a few tens of kilobytes."""
DEEPEST: Final = 100
MOST_NODES: Final = 1 << 19
"""Most values of a document with its aliases expanded: half a second to read.

No text of `MOST_BYTES` has more without aliases.
"""
LONGEST_LINE: Final = 1 << 28
"""Most bytes of one line: a longer one is no log line, and memory must hold several copies."""
BUFFER: Final = 1 << 18
ORDINARY: Final = 1 << 28
EXPANDS: Final = 2_000
"""Most times that a compressed file may expand.

Logs that repeat each context whole expand some hundreds of times, and a file that is
made to keep its reader busy 30,000 times.
"""
UNREADABLE: Final = (ValueError, RecursionError)
"""Errors of decoding JSON: of a wrong form, not UTF-8, or nested without end."""
TEXT: Final = "name a file of text in UTF-8, such as a YAML file"
QUOTE: Final = "quote values that hold ':' or '#'"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_GZIP: Final = b"\x1f\x8b"
_MAX_WINDOW: Final = 1 << 27  # what `zstd --long` writes by default
DAMAGED: Final = (zstandard.ZstdError, zlib.error, EOFError, gzip.BadGzipFile)
"""Errors of reading a compressed file."""
_CONSTRUCTION: Final = (
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
)  # of `!!int ""`, `2026-02-30`, five thousand digits
_WARNINGS: Final = Lock()
_WHOLE: Final = 10**300  # below this, any two figures can be divided, and printed


def read(
    path: Path,
    *,
    raises: type[AgentloadError] = AgentloadError,
    missing: str | None = None,
    hint: str = QUOTE,
) -> Any:  # noqa: ANN401  # what YAML holds
    """Return what a YAML file holds.

    Errors are of the class *raises*, with the hint *missing* if there is no such file.
    """
    return parse(
        text(path, raises=raises, missing=missing, hint=hint),
        at=str(path),
        raises=raises,
        hint=hint,
    )


def own_document(room: str, name: str) -> Any:  # noqa: ANN401  # what YAML holds
    """Return what a YAML file of our own holds, which lies in a *room* of the package."""
    return own((files(room) / name).read_text(encoding="utf-8"))


def own(text: str) -> Any:  # noqa: ANN401  # what YAML holds
    """Return what a YAML text of our own holds.

    It is within all bounds, so libyaml may read it, which takes a seventh of the time.
    """
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506  # both safe


def text(
    path: Path,
    *,
    raises: type[AgentloadError] = AgentloadError,
    missing: str | None = None,
    hint: str | None = None,
) -> str:
    """Return the text of a file of at most `MOST_BYTES`."""
    try:
        with path.open("rb") as file:
            found = file.read(MOST_BYTES + 1)
    except FileNotFoundError as error:
        raise raises(f"{path}: no such file", hint=missing or hint) from error
    except OSError as error:
        raise raises(f"{path}: {error.strerror}", hint=hint) from error
    _check_size(len(found), str(path), raises, hint or TEXT)
    try:
        return found.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = found.count(b"\n", 0, error.start) + 1
        raise raises(
            f"{path}:{line}: not text: {error.reason} in UTF-8", hint=hint or TEXT
        ) from error


def parse(
    found: str, *, at: str, raises: type[AgentloadError] = AgentloadError, hint: str = QUOTE
) -> Any:  # noqa: ANN401  # what YAML holds
    """Return what a YAML text holds; *at* is where it came from."""
    _check_size(len(found), at, raises, hint)
    try:
        loader = _Loader(found)
        try:
            return loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = "" if mark is None else f":{mark.line + 1}"
        said = " ".join(filter(None, (error.context, error.problem)))
        raise raises(f"{at}{line}: not YAML: {said[:300]}", hint=hint) from error
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise raises(f"{at}: not YAML: {str(error).splitlines()[0]}", hint=hint) from error


def _check_size(size: int, at: str, raises: type[AgentloadError], hint: str | None) -> None:
    if size > MOST_BYTES:
        raise raises(f"{at}: larger than {MOST_BYTES >> 20} MiB", hint=hint)


class _Loader(yaml.SafeLoader):
    """Loader that counts the values behind aliases and gives the line of a bad value."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._nodes = 0
        self._sizes: dict[str, int | None] = {}
        """Number of values behind each anchor.

        None while the anchor is being read: an alias to it would make it hold itself.
        """

    def compose_node(
        self,
        parent: yaml.Node | None,
        index: Any,  # noqa: ANN401  # as PyYAML has it
    ) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # as its stubs are
        name, before = event.anchor, self._nodes
        is_alias = self.check_event(yaml.AliasEvent)
        size = self._sizes.get(name, 0) if is_alias else 1
        if size is None:
            raise yaml.composer.ComposerError(
                None, None, f"'{name}' holds itself", event.start_mark
            )
        self._nodes += size
        self._depth += 1
        if self._depth > DEEPEST or self._nodes > MOST_NODES:
            what = (
                f"nested deeper than {DEEPEST}"
                if self._depth > DEEPEST
                else f"more than {MOST_NODES:,} values"
            )
            raise yaml.composer.ComposerError(None, None, what, event.start_mark)
        if name and not is_alias:
            self._sizes[name] = None
        node = super().compose_node(parent, index)
        if name and not is_alias:
            self._sizes[name] = self._nodes - before
        self._depth -= 1
        return node

    def construct_object(
        self,
        node: yaml.Node,
        deep: bool = False,  # noqa: FBT001, FBT002  # as PyYAML has it
    ) -> object:
        try:
            made = super().construct_object(node, deep)
        except _CONSTRUCTION as error:
            raise yaml.constructor.ConstructorError(
                None, None, str(error)[:200], node.start_mark
            ) from error
        if isinstance(made, int) and abs(made) >= _WHOLE:
            raise yaml.constructor.ConstructorError(
                None, None, "a whole number of more than 300 digits", node.start_mark
            )
        return made


def python_value(text: str) -> object:
    """Return a value in Python's notation, as Python's programs log it; None where it is none.

    The compiler warns of what it reads (`1is`), on a terminal where nobody wrote code. What is
    heeded of warnings belongs to the whole process, so one thread at a time changes it.
    """
    with _WARNINGS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return None


def open_expanded(path: Path) -> gzip.GzipFile | io.BufferedReader:
    """Open a plain, gzip or zstd file for reading its expanded bytes; raise OSError."""
    file = path.open("rb")
    magic = file.peek(4)[:4]
    if magic.startswith(_ZSTD):
        reader = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).stream_reader(
            file, read_across_frames=True, closefd=True
        )
        return io.BufferedReader(reader, BUFFER)
    if magic.startswith(_GZIP):
        file.close()
        return gzip.GzipFile(path)
    return file


def chunks(path: Path) -> Iterator[bytes]:
    """Yield the expanded bytes of a file.

    Raises OSError, one of `DAMAGED`, or `TraceError` for a file that expands without end.
    """
    size, read = path.stat().st_size, 0
    most = max(ORDINARY, EXPANDS * size) if size else math.inf  # a pipe has no size
    with open_expanded(path) as file:
        while chunk := file.read1(BUFFER):
            read += len(chunk)
            if read > most:
                raise TraceError(
                    f"{path}: {size:,} bytes expand to more than {most // (1 << 20):,} MiB",
                    hint="is it a log or a trace?",
                )
            yield chunk


def lines(found: Iterable[bytes], *, at: str) -> Iterator[bytes]:
    """Yield the lines of a stream of chunks, each with its newline if it has one.

    Raises `TraceError` for a line longer than LONGEST_LINE.
    """
    held: list[bytes] = []  # the beginning of a line
    size = number = 0
    for chunk in found:
        *whole, rest = chunk.split(b"\n")
        size += len(whole[0] if whole else rest)
        if size > LONGEST_LINE:
            raise TraceError(
                f"{at}:{number + 1}: a line longer than {LONGEST_LINE >> 20} MiB",
                hint="is it a file of one record a line?",
            )
        if whole:
            yield b"".join((*held, whole[0], b"\n"))
            for line in whole[1:]:
                yield line + b"\n"
            number = number + len(whole)
            held = []
            size = len(rest)
        held.append(rest)
    if last := b"".join(held):
        yield last
