"""Say how an import went."""

from collections.abc import Iterator
from pathlib import Path

from agentload.cli.trace._lines import counted
from agentload.importers.parts.notes import Counted, Summary


def described(summary: Summary, *, texts: Path | None) -> str:
    """Write a summary for people."""
    return "\n".join(_lines(summary, texts))


def _lines(summary: Summary, texts: Path | None) -> Iterator[str]:
    spawned = f" ({summary.spawned:,} spawned)" if summary.spawned else ""
    yield (
        f"{summary.format}: {counted(summary.files, 'file')}, {summary.source_bytes / 1e6:,.1f} MB → "
        f"{counted(summary.sessions, 'session')}{spawned}, {counted(summary.calls, 'call')}, {_span(summary.span_s)}"
    )
    if summary.calls:
        prompt, output = summary.prompt_tokens / summary.calls, summary.output_tokens / summary.calls
        yield f"tokens: {summary.prompt_tokens:,} prompt ({prompt:,.0f} a call), {summary.output_tokens:,} output ({output:,.0f} a call)"
    exact = "" if summary.ideal_is_exact else ", estimated by sampling"
    yield f"ideal prefix-hit ratio: source {_share(summary.ideal_source)}, import {_share(summary.ideal_import)}{exact}"
    if summary.recorded_hits is not None:
        yield f"recorded prefix-hit ratio: {_share(summary.recorded_hits)}"
    if summary.grid_s is not None:
        yield f"starts lie on a grid of {summary.grid_s:g} s: the bursts at its points are not real (grid=spread, where the format has it)"
    yield from _counted("skipped", summary.malformed)
    yield from _counted("odd", summary.odd)
    yield from _counted("estimated", summary.estimated)
    yield from _counted("left out", summary.dropped)
    if texts is not None:
        yield f"literal text: {summary.texts:,} contents in {texts}; it is as private as the source"
    if summary.licence is not None:
        yield f"licence: {summary.licence}"


def _counted(title: str, found: Counted) -> Iterator[str]:
    for what, count, place in found:
        yield f"{title}: {count:,} × {what}" + (f" (first: {place})" if place else "")


def _share(share: float | None) -> str:
    return "unknown (contents have no identity there)" if share is None else f"{share:.2%}"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"
