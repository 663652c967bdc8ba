"""Find importers, guess the format of files, and turn
files into a trace that is summarised while it is read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload.errors import TraceError, UsageError
from agentload.importers.parts.intake import ContentKeys, Head, Intake, Texts
from agentload.importers.parts.notes import ImportNotes, ImportSummary, SessionTally, Tolerance
from agentload.importers.parts.reuse import BlockReuse
from agentload.model.record import Record
from agentload.model.trace import Header, Recorded, Session, Trace
from agentload.plugins import Broken, Option, Plugins, convert_options, help_of, options, summary

PLUGINS: Final = Plugins(room="agentload.importers", kind="format", needs=("sessions", "FILES"))
names: Final = PLUGINS.names
_MOST_NAMED: Final = 8
"""Files of a folder that a hint names."""
_MOST_COMPARED: Final = 2_000
"""Files of a folder that are compared with the name of one that is not there."""
_LOOKS: Final = 20
"""Files of a folder that are read to guess its format."""
_BLOCK: Final = 16
"""Cache block in tokens for sources that name none: vLLM's default."""


class Importer(Record):
    """A format, its options and its help."""

    name: str
    help: str
    options: tuple[Option, ...]
    files: tuple[str, ...]
    licence: str | None
    sniff: Callable[[Head], float]
    sessions: Callable[..., Iterator[Session]]

    @property
    def block(self) -> Any:  # noqa: ANN401  # the default in its signature
        """Return the default block size, or None if the format has no such option."""
        return next((option.default for option in self.options if option.name == "block"), None)


def every() -> tuple[Importer | Broken, ...]:
    """Return all importers, sorted by name."""
    return tuple(PLUGINS.every(importer))


@cache
def importer(name: str) -> Importer:
    """Return the importer of that name; raise `UsageError` naming the nearest if there is none."""
    found = PLUGINS.load(name)
    return Importer(
        name=PLUGINS.shown(name),
        help=help_of(found),
        options=options(found.sessions),
        files=found.FILES,
        licence=getattr(found, "LICENCE", None),
        sniff=getattr(found, "sniff", lambda _: 0.0),
        sessions=found.sessions,
    )


def likeliest_format(paths: Sequence[Path]) -> str:
    """Return the surest format of the first files.

    Raises `UsageError` where no format recognises them, `TraceError` for a path that is not there.
    """
    surest = (0.0, "")
    _check_there(paths)
    for path in _some(paths):
        head = Head(path)
        if head.bytes[257:262] == b"ustar" or head.bytes.startswith(b"PK\x03\x04"):
            raise UsageError(
                f"{path}: an archive", hint=f"unpack it and import the folder: tar -xf {path}"
            )
        surest = max(surest, _surest(head))
        if surest[0] >= 0.9:
            break
    if not surest[0]:
        raise UsageError(
            f"{paths[0]}: unknown format",
            hint=f"name it: agentload trace import FORMAT PATH; {', '.join(names())}",
        )
    return surest[1]


def _surest(head: Head) -> tuple[float, str]:
    """Return the format that is surest of a file, after its confidence."""
    return max((found.sniff(head), found.name) for found in every() if isinstance(found, Importer))


def source_files(paths: Sequence[Path], patterns: Sequence[str]) -> tuple[Path, ...]:
    """Expand paths to files: those of a folder by
    pattern, sorted; raise `TraceError` if there are none.
    """
    found: list[Path] = []
    _check_there(paths)
    for path in paths:
        inside = _matching(path, patterns) if path.is_dir() else [path]
        if not inside:
            raise TraceError(
                f"{path}: no {' or '.join(patterns)} in this folder",
                hint="agentload trace import FORMAT FILE...",
            )
        found += inside
    return tuple(dict.fromkeys(found))


def _check_there(paths: Sequence[Path]) -> None:
    """Raise `TraceError` for a path that is not there, naming what is in its folder."""
    for path in paths:
        if path.exists():
            continue
        raise TraceError(f"{path}: no such file or folder", hint=_hint_beside(path))


def _hint_beside(path: Path) -> str:
    """Name what is in the folder of a path that is not there."""
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    try:
        found = islice(folder.iterdir(), _MOST_COMPARED)
        there = sorted(each.name for each in found if each.exists())
    except OSError:
        return f"{folder} may not be listed"
    beside = (get_close_matches(path.name, there) or there)[:_MOST_NAMED]
    return f"files there: {', '.join(beside)}" if beside else f"{folder} is empty"


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    endings = [pattern + ending for pattern in patterns for ending in ("", ".gz", ".zst")]
    return sorted({path for pattern in endings for path in folder.rglob(pattern) if path.is_file()})


def _some(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        inside = (
            (found for found in sorted(path.rglob("*")) if found.is_file())
            if path.is_dir()
            else iter((path,))
        )
        yield from (found for found, _ in zip(inside, range(_LOOKS), strict=False))


@dataclass(slots=True, kw_only=True)
class Conversion:
    """Read a source as sessions when iterated; `summary` then describes that reading."""

    importer: Importer
    files: tuple[Path, ...]
    options: Mapping[str, Any]
    tolerance: Tolerance
    key: bytes
    """Secret of this import's content keys, drawn at random."""
    texts: Texts | None = None
    _notes: ImportNotes = field(default_factory=ImportNotes)
    _source: BlockReuse = field(default_factory=lambda: BlockReuse(_BLOCK))
    _tally: SessionTally = field(default_factory=lambda: SessionTally(BlockReuse(_BLOCK)))

    @property
    def block(self) -> int:
        """Return the trace's block size in tokens."""
        return int(self.options.get("block", self.importer.block) or _BLOCK)

    @property
    def trace(self) -> Trace:
        """Return the trace; iterating it reads the source."""
        said = {"importer": self.importer.name, "options": self.options, "files": len(self.files)}
        source = tuple(
            (name, msgspec.json.encode(value).decode()) for name, value in said.items() if value
        )
        return Trace(
            header=Header(name=self.importer.name, block=self.block, source=source), sessions=self
        )

    @property
    def so_far(self) -> tuple[int, int]:
        """Return the bytes that the latest reading has read, and the sessions that came of them."""
        return self._notes.read_bytes, self._tally.sessions

    @property
    def summary(self) -> ImportSummary:
        """Summarise the latest reading."""
        tally, notes = self._tally, self._notes
        return ImportSummary(
            format=self.importer.name,
            files=len(self.files),
            source_bytes=sum(path.stat().st_size for path in self.files),
            sessions=tally.sessions,
            spawned=tally.spawned,
            calls=tally.calls,
            span_s=tally.last_s,
            prompt_tokens=tally.reuse.prompt_tokens,
            output_tokens=tally.output_tokens,
            ideal_source=self._source.ratio,
            ideal_import=tally.reuse.ratio,
            ideal_is_exact=self._source.is_exact and tally.reuse.is_exact,
            recorded_hits=tally.recorded_hits,
            grid_s=tally.grid_s,
            malformed=notes.placed(notes.malformed),
            odd=notes.placed(notes.odd),
            estimated=notes.placed(notes.estimated),
            dropped=notes.placed(notes.dropped),
            texts=None if self.texts is None else self.texts.count,
            licence=self.importer.licence,
        )

    def __iter__(self) -> Iterator[Session]:
        self._notes = ImportNotes(self.tolerance)
        self._source = BlockReuse(self.block)
        self._tally = SessionTally(BlockReuse(self.block))
        intake = Intake(
            files=self.files,
            notes=self._notes,
            identity=ContentKeys(self.key),
            source=self._source,
            texts=self.texts,
        )
        try:
            found = self.importer.sessions(intake, **self.options)
            yield from self._tally.count(_playable(session, self._notes) for session in found)
        except OverflowError as error:
            raise TraceError(
                f"{self.files[0]}: a number in the source is too large: {error}",
                hint=self._likely() or self._what_is_read(),
            ) from error
        except TraceError as error:
            if self.importer.sniff(Head(self.files[0])):
                raise
            own = "" if error.hint is None else f"; {error.hint}"
            hint = self._likely() or f"{self._what_is_read()}{own}"
            raise TraceError(error.message, hint=hint) from error
        if not self._tally.sessions:
            raise TraceError(self._nothing(), hint=self._likely() or self._what_is_read())

    def _nothing(self) -> str:
        """Say of a source without a session what was seen instead, and where first."""
        notes = self._notes
        found = map(notes.placed, (notes.malformed, notes.odd, notes.dropped))
        seen = []
        for what, count, place in chain(*found):
            first = f" (first: {place})" if place else ""
            seen.append(f"{count:,} × {what}{first}")
        if not notes.read_bytes:
            seen.append("nothing was in it to read")
        count = len(self.files) - 1
        others = f" and {count:,} more" if count else ""
        none = f"{self.files[0]}{others}: no session of format {self.importer.name}"
        if seen:
            return f"{none}: {'; '.join(seen)}"
        return none

    def _likely(self) -> str | None:
        """Say which other format the first file seems to have."""
        file = self.files[0]
        sure, other = _surest(Head(file))
        if not sure or other == self.importer.name:
            return None
        return f"it looks like {other}: agentload trace import {other} {file}"

    def _what_is_read(self) -> str:
        """Say what the format reads."""
        name = self.importer.name
        reads = summary(self.importer.help).rstrip(".:")
        files = " ".join(self.importer.files)
        return f"{name} ({files}): {reads}; agentload trace import {name} says more"


def _playable(session: Session, notes: ImportNotes) -> Session:
    """Return a session whose empty answers ask for one token, as servers require.

    What was recorded of their length is kept.
    """
    empty = [number for number, turn in enumerate(session.turns) if turn.output < 1]
    if not empty:
        return session
    notes.estimate("an answer without tokens: one is requested", len(empty))
    turns = list(session.turns)
    for number in empty:
        recorded = replace(turns[number].recorded or Recorded(), output=0)
        turns[number] = replace(turns[number], output=1, recorded=recorded)
    return replace(session, turns=tuple(turns))


def conversion(
    paths: Sequence[Path],
    *,
    key: bytes,
    format: str | None = None,
    options: Mapping[str, object] | None = None,
    tolerance: Tolerance = "normal",
    texts: Texts | None = None,
) -> Conversion:
    """Prepare an import; without a format, guess it from the files."""
    wanted = importer(format or likeliest_format(paths))
    return Conversion(
        importer=wanted,
        files=source_files(paths, wanted.files),
        options=convert_options(wanted.name, wanted.options, options or {}),
        tolerance=tolerance,
        key=key,
        texts=texts,
    )
