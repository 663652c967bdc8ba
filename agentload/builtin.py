"""Find shipped data: by an explicit path, in the working directory, or in the package."""

from pathlib import Path
from typing import Final, Literal

from agentload.errors import AgentloadError, nearest

Kind = Literal["profiles", "traces", "presets"]

SUFFIXES: Final[dict[Kind, tuple[str, ...]]] = {
    "presets": (".yaml", ".yml"),
    "profiles": (".yaml", ".yml"),
    "traces": (".jsonl", ".jsonl.zst"),
}

HERE: Final = Path()
_PACKAGE: Final = Path(__file__).parent


def find(kind: Kind, name: str | Path, *, within: Path = HERE) -> Path:
    """Return the file that *name* means, with or without its suffix.

    *within* replaces the working directory. Raises `AgentloadError` if there is no file.
    """
    wanted = str(name)
    candidates = [Path(wanted + suffix) for suffix in ("", *SUFFIXES[kind])]
    places = [within, within / kind, _shipped(kind)]
    for place in places:
        # In the working directory a name needs its suffix:
        # `rag` there could be any file.
        for candidate in candidates if place != within else candidates[:1]:
            if (place / candidate).is_file():
                return place / candidate
    known = names(kind, within=within)
    hint = nearest(
        Path(wanted).name, known, otherwise=f"known {kind}: {', '.join(known) or 'none'}"
    )
    folder = f"./{kind}" if within == HERE else within / kind
    raise AgentloadError(
        f"no {kind.removesuffix('s')} '{wanted}': not a file, not in {folder}, not built in",
        hint=hint,
    )


def names(kind: Kind, *, within: Path = HERE) -> tuple[str, ...]:
    """List the names that `find` knows without a path, sorted."""
    return tuple(
        sorted(
            {
                _stem(kind, file.name)
                for place in (within / kind, _shipped(kind))
                for file in _files(kind, place)
            }
        )
    )


def _shipped(kind: Kind) -> Path:
    # A wheel carries the data inside the package; a
    # checkout (editable install) has it next to the package.
    inside = _PACKAGE / "_builtin" / kind
    if inside.is_dir():
        return inside
    return _PACKAGE.parent / kind


def _files(kind: Kind, place: Path) -> list[Path]:
    if not place.is_dir():
        return []
    return [
        file for file in place.iterdir() if file.name.endswith(SUFFIXES[kind]) and file.is_file()
    ]


def _stem(kind: Kind, file_name: str) -> str:
    for suffix in SUFFIXES[kind]:
        if file_name.endswith(suffix):
            return file_name.removesuffix(suffix)
    return file_name
