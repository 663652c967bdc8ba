"""Make traces: generate them, change them, write them as other programs do."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentload.cli._print import notice
from agentload.cli.trace._named import (
    Named,
    Out,
    describe,
    list_all,
    open_trace,
    options_by_name,
    write_trace,
)
from agentload.degrade import break_prefixes, cap_waits, scale_times, start_midway, take_sample
from agentload.errors import UsageError
from agentload.exporters import catalog as formats
from agentload.importers.parts.intake import KeptTexts, read_texts
from agentload.model.trace import Session, Trace
from agentload.plugins import convert_options
from agentload.report.format import plural
from agentload.tracefile.files import write_lines
from agentload.workloads import catalog as workloads


def generate(
    *,
    workload: Annotated[str | None, typer.Argument(help="The workload; none lists them.")] = None,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the workload.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal bytes.", min=0)] = 7,
    ctx_scale: Annotated[float, "Multiply every length, for models with small windows."] = 1.0,
    out: Out = "-",
    options: Annotated[bool, "List the workload's options and their defaults."] = False,
    json: Annotated[bool, "Print lists as JSON."] = False,
) -> None:
    """Make a trace of a workload.

    Options of the workload follow its name as NAME=VALUE. Without a workload,
    the workloads are listed; with --options, those of one workload.

    For example:

        agentload trace generate rag --options

        agentload trace generate rag sessions=200 passages=120 -o rag.jsonl.zst
    """
    if workload is None:
        list_all(workloads.every(), json=json)
    elif options:
        describe(workloads.workload(workload), json=json)
    else:
        wanted = options_by_name(given or [], hint="agentload trace generate WORKLOAD --options")
        write_trace(out, workloads.trace(workload, seed=seed, options=wanted, ctx_scale=ctx_scale))


def degrade(
    *,
    trace: Named,
    out: Out = "-",
    sample: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Keep this share of the sessions, each with its sub-agents."
        ),
    ] = None,
    split: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Begin this share of the sessions in the middle, behind one priming call.",
        ),
    ] = None,
    break_share: Annotated[
        float | None,
        typer.Option(
            "--break",
            min=0.0,
            max=1.0,
            help="Let this share of the calls send their context under new names.",
        ),
    ] = None,
    behind: Annotated[
        int,
        typer.Option(
            min=0, help="Segments at the front of a context that a break leaves as they are."
        ),
    ] = 1,
    cap: Annotated[
        float | None, typer.Option(min=0.0, help="Let no wait be longer than these seconds.")
    ] = None,
    scale: Annotated[float | None, "Multiply starts and waits."] = None,
    seed: Annotated[int, "Seed of what is drawn."] = 7,
) -> None:
    """Make a trace harder to serve: break prefixes, cap or
    stretch time, take a sample, begin in the middle.

    What is asked for is done in this order: sample, split, break,
    cap, scale. Equal seeds change equal sessions in equal ways.

    For example:

        agentload trace degrade mine.jsonl --break 0.1 --behind 1 -o broken.jsonl

        agentload trace degrade mine.jsonl --sample 0.1 --split 0.5 --cap 300 -o small.jsonl
    """
    if scale is not None and scale <= 0:
        raise UsageError(f"--scale must be positive, got {scale:g}")
    asked = {"sample": sample, "split": split, "break": break_share, "cap": cap, "scale": scale}
    given = {name: value for name, value in asked.items() if value is not None}
    if not given:
        raise UsageError(
            "nothing to degrade", hint="agentload trace degrade TRACE --break 0.1 -o FILE"
        )
    found = open_trace(trace)
    said = msgspec.json.encode(given | {"behind": behind, "seed": seed}).decode()
    header = replace(found.header, source=(*found.header.source, ("degraded", said)))
    sessions: Iterable[Session] = found.sessions
    if sample is not None:
        sessions = take_sample(sessions, share=sample, seed=seed)
    if split is not None:
        sessions = start_midway(found.header, sessions, share=split, seed=seed)
    if break_share is not None:
        sessions = break_prefixes(found.header, sessions, share=break_share, keep=behind, seed=seed)
    if cap is not None:
        sessions = cap_waits(sessions, cap_s=cap)
    if scale is not None:
        sessions = scale_times(sessions, scale=scale)
    write_trace(out, Trace(header=header, sessions=sessions))


def export(
    *,
    format: Annotated[str | None, typer.Argument(help="The format; none lists them.")] = None,
    trace: Annotated[
        str | None,
        typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin."),
    ] = None,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the format.")
    ] = None,
    out: Out = "-",
    text: Annotated[
        Path | None, "Literal texts that `trace import --with-text` wrote next to the trace."
    ] = None,
    json: Annotated[bool, "Print lists as JSON."] = False,
) -> None:
    """Export a trace in the format of another program.

    Without a format, the formats are listed; with a format alone, its help and options.

    For example:

        agentload trace export mooncake mine.jsonl -o mine.mooncake.jsonl

        agentload trace export openai-batch mine.jsonl model=NAME \
            --text mine.text.jsonl -o batch.jsonl
    """
    if format is None:
        list_all(formats.every(), json=json)
        return
    into = formats.exporter(format)
    if trace is None:
        describe(into, json=json)
        return
    options = convert_options(
        into.name,
        into.options,
        options_by_name(given or [], hint=f"agentload trace export {format}"),
    )
    kept = None
    if text is not None:
        if not into.speaks:
            raise UsageError(
                f"--text: '{into.name}' holds no words",
                hint="agentload trace export FORMAT TRACE without --text",
            )
        kept = options["texts"] = KeptTexts(read_texts(text))
    write_lines(out, into.lines(open_trace(trace), **options))
    if kept is not None:
        notice(
            f"words: those of {plural(len(kept.found), 'content')} are the source's, all "
            "others drawn with their lengths"
        )
