"""Turn files into a trace: guess the format, run its importer, and measure what comes out."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from agentload.importers import catalog
from agentload.importers.parts.identity import Identity
from agentload.importers.parts.intake import Intake
from agentload.importers.parts.notes import Notes, Tolerance
from agentload.importers.parts.options import checked
from agentload.importers.parts.reuse import Reuse
from agentload.importers.parts.summary import Summary, Tally
from agentload.importers.parts.texts import Texts
from agentload.model.trace import Header, Recorded, Session, Trace

_BLOCK: Final = 16
"""Tokens of a block of vLLM's cache by default: what hits are counted in where the source has no blocks of its own."""


@dataclass(slots=True, kw_only=True)
class Conversion:
    """One import; iterating it reads the source, after which `summary` tells how it went."""

    importer: catalog.Importer
    files: tuple[Path, ...]
    options: Mapping[str, Any]
    tolerance: Tolerance
    key: bytes
    """Secret of this import's content names; to be drawn at random."""
    texts: Texts | None = None
    _notes: Notes = field(default_factory=Notes)
    _source: Reuse = field(default_factory=lambda: Reuse(_BLOCK))
    _tally: Tally = field(default_factory=lambda: Tally(Reuse(_BLOCK)))

    @property
    def block(self) -> int:
        """Return the tokens of a block of the trace."""
        return int(self.options.get("block", self.importer.block) or _BLOCK)

    @property
    def trace(self) -> Trace:
        """Return the trace, which is read while it is iterated."""
        said = {"importer": self.importer.name, "options": self.options, "files": len(self.files)}
        source = tuple((name, msgspec.json.encode(value).decode()) for name, value in said.items() if value)
        return Trace(header=Header(name=self.importer.name, block=self.block, source=source), sessions=self)

    @property
    def summary(self) -> Summary:
        """Sum up the last time it was read."""
        return self._tally.summary(
            format=self.importer.name,
            files=len(self.files),
            source_bytes=sum(path.stat().st_size for path in self.files),
            source=self._source,
            notes=self._notes,
            texts=None if self.texts is None else self.texts.count,
            licence=self.importer.licence,
        )

    def __iter__(self) -> Iterator[Session]:
        self._notes, self._source, self._tally = Notes(self.tolerance), Reuse(self.block), Tally(Reuse(self.block))
        intake = Intake(files=self.files, notes=self._notes, identity=Identity(self.key), source=self._source, texts=self.texts)
        return self._tally.count(_playable(session, self._notes) for session in self.importer.sessions(intake, **self.options))


def _playable(session: Session, notes: Notes) -> Session:
    """Let every call ask for a token, since no server can be asked for none; what was recorded stands beside."""
    empty = [number for number, turn in enumerate(session.turns) if turn.output < 1]
    if not empty:
        return session
    notes.estimate("an answer without a token: one is asked for", len(empty))
    turns = list(session.turns)
    for number in empty:
        turns[number] = replace(turns[number], output=1, recorded=replace(turns[number].recorded or Recorded(), output=0))
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
    """Prepare an import; without a format it is guessed from the files."""
    importer = catalog.importer(format or catalog.sniffed(paths))
    return Conversion(
        importer=importer,
        files=catalog.expanded(paths, importer.files),
        options=checked(importer.name, importer.options, options or {}),
        tolerance=tolerance,
        key=key,
        texts=texts,
    )
