"""Check that a trace can be played, and that a generated one is what its workload should give.

Exits with 1 if the trace cannot be played: sessions that wait for themselves or for what does not come, contexts cut where they have
no segment, keys in two roles. A trace that says which workload made it is also held against that workload's measured quantiles;
what misses them is a note.

For example:

    agentload trace check mine.jsonl --strict
"""

from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.cli.trace._files import opened
from agentload.cli.trace._lines import counted
from agentload.errors import TraceError
from agentload.model.trace import Trace
from agentload.report.format import number, significant
from agentload.tracefile.check import Report, check
from agentload.tracefile.overview import overview
from agentload.workloads import catalog
from agentload.workloads.parts.targets import Held, held


@dataclass(frozen=True, slots=True, kw_only=True)
class _Checked:
    report: Report
    targets: tuple[Held, ...]


def run(
    trace: Annotated[str, typer.Argument(help="A trace file, the name of a shipped trace, or - for stdin.")],
    *,
    lenient: Annotated[bool, typer.Option("--lenient", help="Leave out a last line that was cut short.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 on notes too.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    found = opened(trace, lenient=lenient)
    report = check(found)
    checked = _Checked(report=report, targets=() if report.problem_count else _targets(found))
    if json:
        print_json(checked)
    else:
        _print(checked)
    if report.problem_count:
        raise TraceError(f"{trace}: {counted(report.problem_count, 'problem')}: it cannot be played")
    if strict and _has_notes(checked):
        raise TraceError(f"{trace}: there are notes, which --strict does not allow")


def _has_notes(checked: _Checked) -> bool:
    return bool(checked.report.off_context or checked.report.off_order or not all(target.holds for target in checked.targets))


def _targets(trace: Trace) -> tuple[Held, ...]:
    said = {name: msgspec.json.decode(text) for name, text in trace.header.source}
    name = said.get("workload")
    if name not in catalog.names() or "ctx_scale" in said or "excerpt" in said:
        return ()
    workload = catalog.workload(name)
    return tuple(held(workload.targets, overview(trace))) if catalog.is_measured(workload, said.get("options", {})) else ()


def _print(checked: _Checked) -> None:
    report = checked.report
    for problem in report.problems:
        print(problem)
    if report.problem_count > len(report.problems):
        print(f"… and {number(report.problem_count - len(report.problems))} more")
    verdict = counted(report.problem_count, "problem") if report.problem_count else "can be played"
    print(f"{counted(report.sessions, 'session')}, {counted(report.turns, 'call')}: {verdict}")
    if report.off_context:
        print(f"note: off the recorded context by more than 2 %: {counted(report.off_context, 'call')}")
    if report.off_order:
        calls = counted(report.off_order, "call")
        print(f"note: tools that do not follow the leading system message: {calls}; servers put them there, so they share another prefix")
    missed = [target for target in checked.targets if not target.holds]
    if checked.targets:
        print(f"{len(checked.targets) - len(missed)} of {len(checked.targets)} figures are what the workload was measured to be")
    if missed:
        rows = [(target.field, target.figure, *_figures(target.seen, target.low, target.high), number(target.count)) for target in missed]
        print("\n".join(table(("note: missed", "", "is", "from", "to", "values"), rows)))


def _figures(*values: float) -> tuple[str, ...]:
    return tuple(significant(value, 3) for value in values)
