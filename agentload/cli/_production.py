"""Read the metrics of a server in production, from a file or over HTTP, and say how something compares with it."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from agentload.cli._table import table
from agentload.errors import TraceError, UsageError
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape
from agentload.report.sections.production import shown
from agentload.telemetry.reach import HINT, called, scrape

Against = Annotated[str | None, typer.Option(help="Compare with production: prometheus=URL or prometheus=FILE, a /metrics text.")]


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
    told = scrape(place)
    if told.histogram("prompt_tokens") is None:
        raise TraceError(f"{called(place)}: no request has ended yet, or it is no vLLM or SGLang", hint=f"{HINT}, after some load")
    return told


def compared(rows: Sequence[Likeness], *, ours: str) -> Iterator[str]:
    """Yield a table of what was compared, and how much of it is alike."""
    yield from table(("beside production", ours, "production", ""), [(row.what, *shown(row), row.verdict) for row in rows])
    yield f"{sum(row.verdict == 'alike' for row in rows)} of {len(rows)} alike"
