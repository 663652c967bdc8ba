"""Look at traces: what they hold, and whether they can be played."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from agentload.cli._named import print_compared
from agentload.cli._print import print_json, print_table
from agentload.cli.trace._named import Named, opened
from agentload.cli.trace._seen import Seen, beside, lines, look
from agentload.errors import TraceError
from agentload.model.trace import Trace
from agentload.report.format import number, plural, significant
from agentload.tracefile.check import Report
from agentload.tracefile.check import check as checked
from agentload.tracefile.distance import HIGH, LOW, Distance, distances
from agentload.tracefile.overview import overview
from agentload.workloads import catalog
from agentload.workloads.parts.targets import TargetFigure, target_figures


def check(
    trace: Named,
    *,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out a last line that was cut short.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on notes too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check that a trace can be played, and that a generated one is what its workload should give.

    Exits with 1 if the trace cannot be played: sessions that wait for themselves
    or for what does not come, contexts cut where they have no segment, keys in
    two roles. A trace that says which workload made it is also compared with
    that workload's measured quantiles; what misses them is a note.

    For example:

        agentload trace check mine.jsonl --strict
    """
    found = opened(trace, lenient=lenient)
    report = checked(found)
    targets = () if report.problem_count else _targets(found)
    if json:
        print_json({"report": report, "targets": targets})
    else:
        _print(report, targets)
    if report.problem_count:
        raise TraceError(f"{trace}: {plural(report.problem_count, 'problem')}: it cannot be played")
    if strict and (
        report.off_context or report.off_order or any(target.holds is False for target in targets)
    ):
        raise TraceError(f"{trace}: there are notes, which --strict does not allow")


def _targets(trace: Trace) -> tuple[TargetFigure, ...]:
    said = {name: msgspec.json.decode(text) for name, text in trace.header.source}
    name = said.get("workload")
    if name not in catalog.names() or "ctx_scale" in said or "excerpt" in said:
        return ()
    workload = catalog.workload(name)
    return (
        tuple(target_figures(workload.targets, overview(trace)))
        if catalog.is_measured(workload, said.get("options", {}))
        else ()
    )


def _print(report: Report, targets: Sequence[TargetFigure]) -> None:
    for problem in report.problems:
        print(problem)
    if report.problem_count > len(report.problems):
        print(f"… and {number(report.problem_count - len(report.problems))} more")
    verdict = plural(report.problem_count, "problem") if report.problem_count else "can be played"
    print(f"{plural(report.sessions, 'session')}, {plural(report.turns, 'call')}: {verdict}")
    if report.off_context:
        print(
            f"note: off the recorded context by more than 2 %: {plural(report.off_context, 'call')}"
        )
    if report.off_order:
        calls = plural(report.off_order, "call")
        print(
            f"note: tools that do not follow the leading system message: {calls}; servers "
            "put them there, so they share another prefix"
        )
    compared = [target for target in targets if target.holds is not None]
    if targets:
        held_count = sum(target.holds is True for target in compared)
        few = (
            f"; too few values for {len(targets) - len(compared)} more"
            if len(compared) < len(targets)
            else ""
        )
        print(
            f"{held_count} of {len(compared)} figures are what the workload was measured to be{few}"
        )
    missed = [target for target in compared if not target.holds]
    if missed:
        figures = [
            [significant(value, 3) for value in (target.seen, target.low, target.high)]
            for target in missed
        ]
        rows = [
            (target.field, target.figure, *three, number(target.count))
            for target, three in zip(missed, figures, strict=True)
        ]
        print_table(("note: missed", "", "is", "from", "to", "values"), rows)


def show(
    trace: Named,
    *,
    profile: Annotated[
        str | None,
        typer.Option(help="A profile, or PROFILE/ARM: compare the trace with its KV pool."),
    ] = None,
    pool: Annotated[
        list[int] | None,
        typer.Option(help="A KV pool of this many tokens; may be repeated.", min=1),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare with another trace, such as a recorded one, or with production: "
            "prometheus=URL or =FILE."
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write a page with charts to this file.")
    ] = None,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out a last line that was cut short.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Look at a trace: lengths, waits, growth, arrivals, reuse, and what it takes of a KV pool.

    Reuse is the share of prompt tokens that a prefix cache knows: one that forgets nothing,
    and with --pool or --profile one of that size. What overlaps in time is seen at a
    nominal speed; `agentload simulate` plays the trace on a server with queues and batches.

    For example:

        agentload trace show mine.jsonl --profile llama-3.1-8b-h100 --html mine.html

        agentload trace show mine.jsonl --against prometheus=http://production:8000/metrics

        agentload trace show code --against recorded.jsonl.zst
    """
    found = opened(trace, lenient=lenient)
    seen = look(found, profile=profile, pools=pool or ())
    if html is not None:
        from agentload.cli.trace._page import page

        html.write_text(page(seen), encoding="utf-8")
    if against is not None and "=" not in against:
        _apart(seen, tuple(distances(found, opened(against))), json=json)
        return
    rows = None if against is None else beside(seen.overview, against)
    if json:
        print_json(
            seen if rows is None else {**msgspec.to_builtins(seen, str_keys=True), "against": rows}
        )
        return
    if html is None:
        print("\n".join(lines(seen)))
    if rows is not None:
        print()
        print_compared(rows, ours="trace")
        print(
            "first token, batch size and KV pool: agentload report --against, of a run "
            "with this trace"
        )


def _apart(seen: Seen, rows: Sequence[Distance], *, json: bool) -> None:
    """Print how far the trace is from another one."""
    if json:
        print_json({**msgspec.to_builtins(seen, str_keys=True), "against": rows})
        return
    figures = [
        (
            row.field,
            row.figure,
            significant(row.ours, 4),
            significant(row.real, 4),
            f"{row.ratio:.2f}",
            "-".join(f"{end:.2f}" for end in row.halves),
        )
        for row in rows
    ]
    print_table(
        ("", "", "trace", "other", "ratio", "its halves", ""),
        [(*each, row.verdict) for each, row in zip(figures, rows, strict=True)],
    )
    alike = sum(row.verdict in {"alike", "as its halves"} for row in rows)
    print(
        f"{alike} of {len(rows)} within {LOW:g} to {HIGH:g}, or no further than two halves "
        "of the other, drawn by session, from each other"
    )
