"""Check traces: whether they can be played, and are what their workload should give."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from agentload.builtin import find
from agentload.cli._print import print_json, print_table
from agentload.cli.trace._named import Named, open_trace
from agentload.errors import TraceError
from agentload.model.trace import Trace
from agentload.report.format import number, plural, significant
from agentload.tracefile.check import CheckReport
from agentload.tracefile.check import check as check_trace
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
