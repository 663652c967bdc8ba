"""Read the metrics of a server in production, from a file or over HTTP, and say how something compares with it."""

import tempfile
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Final
from urllib.request import urlopen

import typer

from agentload.cli._table import table
from agentload.endpoints.urls import without_user
from agentload.errors import EndpointError, TraceError, UsageError
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape, parse
from agentload.report.production import shown

Against = Annotated[str | None, typer.Option(help="Compare with production: prometheus=URL or prometheus=FILE, a /metrics text.")]
_TIMEOUT_S: Final = 10.0
_LONGEST: Final = 1 << 28
_HINT: Final = "curl SERVER/metrics > FILE"


def asked(against: str | None) -> Scrape | None:
    """Read what `--against` names, if it was given."""
    return None if against is None else production(against)


def production(against: str) -> Scrape:
    """Read what `prometheus=URL|FILE` names."""
    kind, _, place = against.partition("=")
    if kind != "prometheus" or not place:
        raise UsageError(
            f"--against takes prometheus=URL or prometheus=FILE, got '{against}'", hint="--against prometheus=http://HOST:8000/metrics"
        )
    with tempfile.TemporaryDirectory(prefix="agentload-") as folder:
        told = _read(fetched(place, Path(folder) / "metrics"), place)
    if told.histogram("prompt_tokens") is None:
        raise TraceError(f"{place}: no request has ended yet, or it is no vLLM or SGLang", hint=f"{_HINT}, after some load")
    return told


def is_url(source: str) -> bool:
    """Tell an address from the path of a file."""
    return source.startswith(("http://", "https://"))


def fetched(source: str, into: Path) -> Path:
    """Return a file with metrics: the one that is named, or what a URL answers, written to `into`."""
    path = Path(source)
    if is_url(source):
        if without_user(source) != source:  # urllib takes it for a part of the host's name
            raise EndpointError(f"{without_user(source)}: an address with a password", hint=_HINT)
        path = into
        try:
            with urlopen(source, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # only http and https come here
                into.write_bytes(answer.read(_LONGEST))
        except (OSError, HTTPException, ValueError) as error:
            raise EndpointError(f"{source}: {error}", hint="name the whole address: http://HOST:8000/metrics") from error
    _read(path, source)
    return path


def _read(path: Path, source: str) -> Scrape:
    try:
        return parse(path.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise TraceError(f"{source}: {error.strerror}", hint=_HINT) from error
    except ValueError as error:
        raise TraceError(f"{source}: no metrics text", hint=_HINT) from error


def compared(rows: Sequence[Likeness], *, ours: str) -> Iterator[str]:
    """Yield a table of what was compared, and how much of it is alike."""
    yield from table(("beside production", ours, "production", ""), [(row.what, *shown(row), row.verdict) for row in rows])
    yield f"{sum(row.verdict == 'alike' for row in rows)} of {len(rows)} alike"
