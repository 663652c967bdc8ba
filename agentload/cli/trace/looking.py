"""Look at traces: what they hold, and whether they can be played."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from agentload.builtin import find
from agentload.cli._named import print_compared
from agentload.cli._print import print_json, print_table
from agentload.cli.trace._named import Named, open_trace
from agentload.cli.trace._seen import Seen, likeness_rows, lines, look
from agentload.errors import TraceError
from agentload.model.trace import Trace
from agentload.report.format import number, plural, significant
from agentload.tracefile.check import CheckReport
from agentload.tracefile.check import check as check_trace
from agentload.tracefile.distance import HIGH, LOW, Distance, distances
from agentload.tracefile.files import STDIN, TYPED
from agentload.tracefile.overview import overview
from agentload.workloads import catalog
from agentload.workloads.parts.targets import FEWEST, TargetFigure, target_figures


def check(
    trace: Named,
    *,
    lenient: Annotated[bool, "Leave out a last line that was cut short."] = False,
    strict: Annotated[bool, "Exit with 1 on notes too."] = False,
    json: Annotated[bool, "Print everything as JSON."] = False,
) -> None:
    """Check that a trace can be played, and that a generated one is what its workload should give.

    Exits with 1 if the trace cannot be played: sessions that wait for themselves
    or for what does not come, contexts cut where they have no segment, keys in
    two roles. A trace that says which workload made it is also compared with
    that workload's measured quantiles; what misses them is a note.

    For example:

        agentload trace check mine.jsonl --strict
    """
    found = open_trace(trace, lenient=lenient)
    report = check_trace(found)
    unlike = None if report.problem_count else _unlike_its_workload(found)
    is_compared = not report.problem_count and unlike is None
    targets = _targets(found) if is_compared else ()
    if json:
        print_json({"report": report, "targets": targets, "not_compared": unlike})
    else:
        _print(report, name=TYPED if trace == STDIN else str(find("traces", trace)))
        _print_targets(targets, unlike)
    if report.problem_count:
        raise TraceError(f"{trace}: {plural(report.problem_count, 'problem')}: it cannot be played")
    if strict and (
        report.off_context or report.off_order or any(target.holds is False for target in targets)
    ):
        raise TraceError(f"{trace}: there are notes, which --strict does not allow")


def _targets(trace: Trace) -> tuple[TargetFigure, ...]:
    workload = catalog.workload(_origin(trace)["workload"])
    return tuple(target_figures(workload.targets, overview(trace)))


def _origin(trace: Trace) -> dict[str, Any]:
    """Return what a trace says of how it was made."""
    return {name: msgspec.json.decode(text) for name, text in trace.header.source}


def _unlike_its_workload(trace: Trace) -> str | None:
    """Say why a generated trace cannot be compared with measured quantiles; None where it can.

    Empty for a trace that no workload made.
    """
    said = _origin(trace)
    name = said.get("workload")
    if name not in catalog.names():
        return ""
    if "ctx_scale" in said or "excerpt" in said:
        return f"it is a scaled or shortened {name}"
    workload = catalog.workload(name)
    if not workload.targets:
        return f"no quantiles of {name} were measured"
    if not catalog.is_measured(workload, said.get("options", {})):
        return f"its options are not those that {name} was measured with"
    return None


def _print(report: CheckReport, *, name: str) -> None:
    for problem in report.problems:
        print(problem.within(name))
    if report.problem_count > len(report.problems):
        print(f"… and {number(report.problem_count - len(report.problems))} more")
    verdict = plural(report.problem_count, "problem") if report.problem_count else "can be played"
    print(f"{plural(report.sessions, 'session')}, {plural(report.turns, 'call')}: {verdict}")
    if report.off_context:
        print(
            f"note: off the recorded context by more than 2%: {plural(report.off_context, 'call')}"
        )
    if report.off_order:
        calls = plural(report.off_order, "call")
        print(
            f"note: tools that do not follow the leading system message: {calls}; servers "
            "put them there, so they share another prefix"
        )


def _print_targets(targets: Sequence[TargetFigure], unlike: str | None) -> None:
    """Print how a trace compares with its workload's quantiles, and what was not compared."""
    if unlike:
        print(f"not compared with measured quantiles: {unlike}")
    compared = [target for target in targets if target.holds is not None]
    if compared:
        held_count = sum(target.holds is True for target in compared)
        print(f"{held_count} of {len(compared)} figures are what the workload was measured to be")
    if small := [target for target in targets if target.holds is None]:
        print("not compared, for too few values (a trace of more sessions has them):")
        print_table(("", "", "values", "needed"), [_small_row(each) for each in small])
    missed = [target for target in compared if not target.holds]
    if missed:
        head = ("note: missed", "", "is", "from", "to", "values")
        print_table(head, [_missed_row(each) for each in missed])


def _missed_row(target: TargetFigure) -> tuple[str, ...]:
    bounds = [significant(value, 3) for value in (target.seen, target.low, target.high)]
    return (target.field, target.figure, *bounds, number(target.count))


def _small_row(target: TargetFigure) -> tuple[str, ...]:
    counts = (number(target.count), number(FEWEST[target.figure]))
    return (target.field, target.figure, *counts)


def show(
    trace: Named,
    *,
    profile: Annotated[
        str | None, "A profile, or PROFILE/ARM: compare the trace with its KV pool."
    ] = None,
    pool: Annotated[
        list[int] | None,
        typer.Option(help="A KV pool of this many tokens; may be repeated.", min=1),
    ] = None,
    against: Annotated[
        str | None,
        (
            "Compare with another trace, such as a recorded one, or with production: "
            "prometheus=URL or =FILE."
        ),
    ] = None,
    html: Annotated[Path | None, "Write a page with charts to this file."] = None,
    lenient: Annotated[bool, "Leave out a last line that was cut short."] = False,
    json: Annotated[bool, "Print everything as JSON."] = False,
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
    found = open_trace(trace, lenient=lenient)
    seen = look(found, profile=profile, pools=pool or ())
    if html is not None:
        from agentload.cli.trace._page import page

        html.write_text(page(seen), encoding="utf-8")
    if against is not None and "=" not in against:
        _apart(seen, tuple(distances(found, open_trace(against))), json=json)
        return
    rows = None if against is None else likeness_rows(seen.overview, against)
    if json:
        print_json(
            seen if rows is None else {**msgspec.to_builtins(seen, str_keys=True), "against": rows}
        )
        return
    if html is None:
        print("\n".join(lines(seen)))
    if rows is not None:
        print()
        print_compared(rows)
        print(
            "first token, batch size and KV pool: agentload report --against, of a run "
            "with this trace"
        )


def _apart(seen: Seen, rows: Sequence[Distance], *, json: bool) -> None:
    """Print how far the trace is from another one."""
    if json:
        print_json({**msgspec.to_builtins(seen, str_keys=True), "against": rows})
        return
    cells = [
        (
            row.field,
            row.figure,
            significant(row.ours, 4),
            significant(row.real, 4),
            f"{row.ratio:.2f}",
            "-".join(f"{end:.2f}" for end in row.halves),
            row.verdict,
        )
        for row in rows
    ]
    print_table(("", "", "trace", "other", "ratio", "its halves", ""), cells)
    alike = sum(row.verdict in {"alike", "as its halves"} for row in rows)
    print(
        f"{alike} of {len(rows)} within {LOW:g} to {HIGH:g}, or no further than two halves "
        "of the other, drawn by session, from each other"
    )
