"""Find importers by file name, read their options from their signatures, and guess the format of a file."""

import inspect
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from agentload.errors import TraceError, UsageError
from agentload.importers.parts.intake import Head
from agentload.importers.parts.options import Option, nearest, options
from agentload.model.trace import Session

_NO_FORMATS: Final = frozenset({"catalog", "conversion"})
_LOOKS: Final = 20
"""Files of a folder that are looked at to guess its format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A format, its options and what it says of itself."""

    name: str
    help: str
    options: tuple[Option, ...]
    files: tuple[str, ...]
    licence: str | None
    sniff: Callable[[Head], float]
    sessions: Callable[..., Iterator[Session]]

    @property
    def block(self) -> Any:  # noqa: ANN401  # an option's default is what its signature says
        """Return the default size of a block, or None if the format has no such option."""
        return next((option.default for option in self.options if option.name == "block"), None)


def names() -> tuple[str, ...]:
    """List the formats, sorted."""
    modules = pkgutil.iter_modules([str(Path(__file__).parent)])
    return tuple(sorted(module.name for module in modules if not module.ispkg and module.name not in _NO_FORMATS))


def importer(name: str) -> Importer:
    """Return the importer of that name; raise `UsageError` naming the nearest if there is none."""
    if name not in names():
        raise UsageError(f"no format '{name}'", hint=nearest(name, names()))
    module = import_module(f"agentload.importers.{name}")
    return Importer(
        name=name,
        help=inspect.cleandoc(module.__doc__ or ""),
        options=options(module.sessions),
        files=module.FILES,
        licence=module.LICENCE,
        sniff=module.sniff,
        sessions=module.sessions,
    )


def sniffed(paths: Sequence[Path]) -> str:
    """Return the format that is surest of these files; raise `UsageError` if none knows them."""
    every = [importer(name) for name in names()]
    surest = (0.0, "")
    for path in _some(paths):
        head = Head(path)
        if _is_archive(head):
            raise UsageError(f"{path}: an archive", hint=f"unpack it, and import the folder: tar -xf {path}")
        surest = max(surest, *((found.sniff(head), found.name) for found in every))
        if surest[0] >= 0.9:
            break
    if not surest[0]:
        raise UsageError(
            f"{paths[0]}: of no format that is known", hint=f"name it: agentload trace import FORMAT PATH; {', '.join(names())}"
        )
    return surest[1]


def expanded(paths: Sequence[Path], patterns: Sequence[str]) -> tuple[Path, ...]:
    """Return the files that these paths stand for: a folder's by pattern, sorted; raise `TraceError` where there is none."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise TraceError(f"{path}: no such file or folder", hint="agentload trace import FORMAT PATH...")
        inside = _matching(path, patterns) if path.is_dir() else [path]
        if not inside:
            raise TraceError(f"{path}: no file {' or '.join(patterns)} in this folder", hint="agentload trace import FORMAT FILE...")
        found += inside
    return tuple(dict.fromkeys(found))


def _matching(folder: Path, patterns: Sequence[str]) -> list[Path]:
    endings = [pattern + ending for pattern in patterns for ending in ("", ".gz", ".zst")]
    return sorted({path for pattern in endings for path in folder.rglob(pattern) if path.is_file()})


def _is_archive(head: Head) -> bool:
    return head.bytes[257:262] == b"ustar" or head.bytes.startswith(b"PK\x03\x04")


def _some(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        inside = (found for found in sorted(path.rglob("*")) if found.is_file()) if path.is_dir() else iter((path,))
        yield from (found for found, _ in zip(inside, range(_LOOKS), strict=False))
