"""Show what became of a job's firings: each figure over its runs, where its level changed, outcomes and alarms.

A line of blocks spans the smallest and the largest change against the first reference run. Suspects are what the servers said differently
just before; they are no proof.

For example:

    agentload watch history nightly-rag --last 30
"""

import math
from collections.abc import Iterator
from typing import Annotated, Final

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.cli.watch import _options as opt
from agentload.watch.execute import watched
from agentload.watch.history import Execution
from agentload.watch.jobs_file import read_jobs
from agentload.watch.ledger import history
from agentload.watch.notices import alarm_told, level_told, outcome_told, usd_told
from agentload.watch.trends import Series, trends

BLOCKS: Final = "▁▂▃▄▅▆▇█"
DRAWN: Final = 60  # points
FLAT: Final = 0.03  # a smaller span is noise: it is not drawn as high as a change


def run(
    name: opt.Name,
    *,
    file: opt.JobsFile = opt.DEFAULT,
    last: Annotated[int, typer.Option(help="As many of the latest executions.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="Print executions, series with change points, and alarms as JSON.")] = False,
) -> None:
    jobs = read_jobs(file)
    job = jobs.named(name)
    past = history(jobs.database, name)
    found = trends(name, past, watched(job, past))
    if json:
        print_json(found)
        return
    if not past:
        print(f"{name} was not executed yet: agentload watch run {name}")
        return
    for one in found.series:
        for line in _drawn(one):
            print(line)
    shown = past[-last:] if last > 0 else ()
    series = list(dict.fromkeys(change.series for each in shown for change in each.detail.changes))
    cost = any(each.detail.usd is not None for each in shown)
    head = ("started (UTC)", "took", *(["USD"] if cost else []), *series, "run", "outcome")
    for line in table(head, [_cells(each, series, cost=cost) for each in shown]):
        print(line)
    for alarm in found.alarms:
        until = "open" if alarm.closed_ns is None else f"closed {opt.when(alarm.closed_ns)}"
        print(f"{opt.when(alarm.raised_ns)}, {until}: {alarm_told(alarm)}")


def _drawn(series: Series) -> Iterator[str]:
    values = [point.value for point in series.points][-DRAWN:]
    low, high = min(values), max(values)
    span = max(high - low, FLAT)
    blocks = "".join(BLOCKS[min(int((each - low) / span * len(BLOCKS)), len(BLOCKS) - 1)] for each in values)
    yield f"{series.name}  {blocks}  {low:+.1%} to {high:+.1%}"
    for level in series.change_points:
        yield f"  {level_told(series, level)}"


def _cells(each: Execution, series: list[str], *, cost: bool) -> tuple[str, ...]:
    found = {change.series: f"{math.expm1(change.log_ratio):+.1%}" for change in each.detail.changes}
    return (
        opt.when(each.started_ns),
        opt.seconds(each),
        *(["–" if each.detail.usd is None else usd_told(each.detail.usd)] if cost else []),
        *(found.get(name, "–") for name in series),
        each.run_id or "–",
        outcome_told(each),
    )
