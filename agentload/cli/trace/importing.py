"""Import traces from logs, and from a server's metrics."""

import secrets
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.cli._print import notice, print_json, repeatedly
from agentload.cli.trace._named import Out, describe, list_all, options_by_name
from agentload.errors import TraceError, UsageError
from agentload.importers import catalog
from agentload.importers.parts.intake import Texts, texts_path
from agentload.importers.parts.notes import Counted, ImportSummary, Tolerance
from agentload.report.format import plural
from agentload.telemetry.reach import is_url, metrics_file
from agentload.tracefile import write
from agentload.tracefile.files import appearing

PROGRESS_S: Final = 10.0


def import_(
    *,
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FORMAT] PATH... [NAME=VALUE]...", help="What to read; none lists the formats."
        ),
    ] = None,
    out: Out = "-",
    lenient: Annotated[bool, "Leave malformed records out and count them."] = False,
    strict: Annotated[bool, "Make every oddity an error."] = False,
    with_text: Annotated[
        bool,
        (
            "Also write the literal text, to FILE.text.jsonl next to the trace: it is as "
            "private as the source."
        ),
    ] = False,
    json: Annotated[bool, "Print the summary as JSON to stdout."] = False,
) -> None:
    """Import logs and traces of other programs.

    The format is guessed when it is not named; options of the format follow as
    NAME=VALUE. Without a path, the formats are listed; with a format alone, its help
    and options. Only lengths, times, roles, names of tools and keyed hashes of contents
    leave the source, under a key that is drawn for each import and kept nowhere.

    For example:

        agentload trace import ~/.openclaw/agents -o mine.jsonl.zst

        agentload trace import mooncake conversation_trace.jsonl grid=spread -o mooncake.jsonl.zst
    """
    name, paths, options = _tell_apart(given or [])
    if not paths:
        _print_formats(name, json=json)
        return
    _check_output(out, json=json, with_text=with_text)
    beside = texts_path(Path(out)) if with_text else None
    with _texts(beside) as texts:
        made = catalog.conversion(
            paths,
            key=secrets.token_bytes(32),
            format=name,
            options=options,
            tolerance=_tolerance(lenient=lenient, strict=strict),
            texts=texts,
        )
        with repeatedly(lambda: _say_progress(made), every_s=PROGRESS_S):
            write(out, made.trace)
    if json:
        print_json(made.summary)
    else:
        notice("\n".join(_lines(made.summary, texts=beside)))


def _print_formats(name: str | None, *, json: bool) -> None:
    """Print all formats, or what there is to know of one."""
    if name is None:
        list_all(catalog.every(), json=json)
    else:
        describe(catalog.importer(name), json=json)


def _check_output(out: str, *, json: bool, with_text: bool) -> None:
    if out == "-" and (json or with_text):
        raise UsageError(
            f"{'--json' if json else '--with-text'} needs a file for the trace", hint="-o FILE"
        )


def _tolerance(*, lenient: bool, strict: bool) -> Tolerance:
    if lenient and strict:
        raise UsageError("--lenient and --strict exclude each other")
    if lenient:
        return "lenient"
    return "strict" if strict else "normal"


def _say_progress(made: catalog.Conversion) -> None:
    """Say how far an import is."""
    size, sessions = made.so_far
    notice(f"{size / 1e6:,.0f} MB read, {plural(sessions, 'session')} so far")


@contextmanager
def _texts(path: Path | None) -> Iterator[Texts | None]:
    """Keep texts in a file that appears when the import is
    complete: no words are left behind by one that failed.
    """
    if path is None:
        yield None
        return
    with appearing(path) as file:
        yield Texts(file)


_EXPORT_SPANS: Final = ("langfuse", "langsmith", "phoenix", "arize", "helicone", "traceloop")
"""Products without a format of their own here: they export OpenTelemetry spans."""


def _refuse_product(name: str, files: Sequence[str]) -> None:
    """Raise UsageError for a product whose spans are imported as OpenTelemetry's."""
    if name.lower() in _EXPORT_SPANS:
        raise UsageError(
            f"no format '{name}'",
            hint="export its OpenTelemetry spans, then: agentload trace import otel "
            f"{' '.join(files)}",
        )


def _tell_apart(given: list[str]) -> tuple[str | None, list[Path], dict[str, str]]:
    """Tell a format, paths and options apart; what is
    there as a file is a path whatever it looks like.
    """
    name: str | None = None
    paths: list[Path] = []
    options: dict[str, str] = {}
    for position, text in enumerate(given):
        option, equals, value = text.partition("=")
        if Path(text).exists():
            paths.append(Path(text))
        elif equals:
            options[option.replace("-", "_")] = value
        elif position == 0 and text.replace("-", "_") in catalog.names():
            name = text.replace("-", "_")
        elif position == 0 and len(given) > 1:
            _refuse_product(text, given[1:])
            catalog.importer(text)  # names the nearest format
        else:
            paths.append(Path(text))
    return name, paths, options


def fit(
    *,
    prometheus: Annotated[
        list[str], "A /metrics text or its URL; twice: an earlier and a later one."
    ],
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the fit.")
    ] = None,
    watch: Annotated[
        float,
        typer.Option(
            "--for",
            min=0.0,
            help="Read a URL again after these seconds, and fit what came between.",
        ),
    ] = 0.0,
    out: Out = "-",
    json: Annotated[bool, "Print the summary as JSON to stdout."] = False,
) -> None:
    """Make a trace from a server's metrics alone.

    From the histograms of prompts and outputs, the count of requests and the hits of the
    prefix cache of vLLM or SGLang; two texts, or a URL that is read twice, tell what came
    between them. Options follow as NAME=VALUE (agentload trace import prometheus lists them).

    For example:

        agentload trace fit --prometheus http://production:8000/metrics --for 600 -o fitted.jsonl

        agentload trace fit --prometheus monday.prom \
            --prometheus tuesday.prom sharing=prefix requests=5000 -o fitted.jsonl
    """
    if len(prometheus) > 2:
        raise UsageError("--prometheus is given once or twice")
    if json and out == "-":
        raise UsageError("--json needs a file for the trace", hint="-o FILE")
    if watch and not is_url(prometheus[-1]):
        raise UsageError(
            "--for reads a URL again, and a file stays what it is",
            hint="--prometheus EARLIER --prometheus LATER",
        )
    options = options_by_name(given or [], hint="agentload trace import prometheus")
    with tempfile.TemporaryDirectory(prefix="agentload-") as folder:
        paths = [
            metrics_file(source, Path(folder) / f"{number}.prom")
            for number, source in enumerate(prometheus)
        ]
        if watch:
            time.sleep(watch)
            paths.append(metrics_file(prometheus[-1], Path(folder) / "later.prom"))
        made = catalog.conversion(
            paths, key=secrets.token_bytes(32), format="prometheus", options=options
        )
        try:
            write(out, made.trace)
        except TraceError as error:  # which names our copy of what a URL answered
            raise TraceError(
                error.message.replace(str(paths[-1]), prometheus[-1]), hint=error.hint
            ) from error
        print_json(made.summary) if json else notice("\n".join(_lines(made.summary, texts=None)))


def _lines(summary: ImportSummary, *, texts: Path | None) -> Iterator[str]:
    """Write a summary for people."""
    spawned = f" ({summary.spawned:,} spawned)" if summary.spawned else ""
    yield (
        f"{summary.format}: {plural(summary.files, 'file')}, "
        f"{summary.source_bytes / 1e6:,.1f} MB → "
        f"{plural(summary.sessions, 'session')}{spawned}, {plural(summary.calls, 'call')}, "
        f"{_span(summary.span_s)}"
    )
    if summary.calls:
        prompt = summary.prompt_tokens / summary.calls
        output = summary.output_tokens / summary.calls
        yield (
            f"tokens: {summary.prompt_tokens:,} prompt ({prompt:,.0f} a call), "
            f"{summary.output_tokens:,} output ({output:,.0f} a call)"
        )
    exact = "" if summary.ideal_is_exact else ", estimated by sampling"
    yield (
        f"ideal prefix-hit ratio: source {_share(summary.ideal_source)}, import "
        f"{_share(summary.ideal_import)}{exact}"
    )
    if summary.recorded_hits is not None:
        yield f"recorded prefix-hit ratio: {_share(summary.recorded_hits)}"
    if summary.grid_s is not None:
        yield (
            f"starts lie on a grid of {summary.grid_s:g} s: the bursts at its points are not "
            "real (grid=spread, where the format has it)"
        )
    yield from _count_lines("skipped", summary.malformed)
    yield from _count_lines("odd", summary.odd)
    yield from _count_lines("estimated", summary.estimated)
    yield from _count_lines("left out", summary.dropped)
    if texts is not None:
        yield f"literal text: {summary.texts:,} contents in {texts}; it is as private as the source"
    if summary.licence is not None:
        yield f"licence: {summary.licence}"


def _count_lines(title: str, found: Counted) -> Iterator[str]:
    """Yield a line for each kind of note."""
    for what, count, place in found:
        yield f"{title}: {count:,} × {what}" + (f" (first: {place})" if place else "")


def _share(share: float | None) -> str:
    return "unknown (contents have no identity there)" if share is None else f"{share:.2%}"


def _span(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:,.1f} s"
