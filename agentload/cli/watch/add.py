"""Add a job to the jobs file, which is made if it does not exist.

Paths are relative to the jobs file, here and in it. What has no option here is edited in the file: load, policy, metrics, noise,
reference, notices.

For example:

    agentload watch add nightly-rag --trace rag --endpoints prod=http://127.0.0.1:8000/v1 --cron "0 2 * * *" --time-zone Europe/Berlin
"""

from typing import Annotated, Any

import typer

from agentload.cli.watch import _options as opt
from agentload.watch.jobs_file import add


def run(
    name: opt.Name,
    *,
    trace: Annotated[list[str], typer.Option(help="Trace file, or name of a shipped trace; several are played as one mix.")],
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM].")],
    cron: Annotated[str, typer.Option(help="minute hour day month weekday, such as '0 2 * * *'.")],
    file: opt.JobsFile = opt.DEFAULT,
    time_zone: Annotated[str, typer.Option(help="Zone in which the schedule is read.")] = "UTC",
    stagger: Annotated[float, typer.Option(help="Start up to this many seconds later, by the job's own fixed share.")] = 0.0,
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    pairs: Annotated[int, typer.Option(help="Block pairs of each run.")] = 6,
    calls: Annotated[int | None, typer.Option(help="Budget: calls of each run, on all arms together.")] = None,
    minutes: Annotated[float, typer.Option(help="Time limit of each run.")] = 60.0,
    usd: Annotated[float | None, typer.Option(help="What the servers may cost during each run, by the price of their GPUs.")] = None,
    keep_runs: Annotated[int | None, typer.Option(help="Delete the calls of older runs.")] = None,
) -> None:
    schedule: dict[str, Any] = {"cron": cron, "time_zone": time_zone, **({"stagger_s": stagger} if stagger else {})}
    entry: dict[str, Any] = {"traces": trace, "endpoints": endpoints, "schedule": schedule, "pairs": pairs}
    entry |= {key: value for key, value in (("model", model), ("api_key_env", api_key_env)) if value is not None}
    bounds = {"calls": calls, "minutes": minutes, "usd": usd}
    entry["budget"] = {key: value for key, value in bounds.items() if value is not None}
    if keep_runs is not None:
        entry["retention"] = {"runs": keep_runs}
    add(file, name, entry)
    print(f"added {name} to {file}")
    print(f"Next: agentload watch run {name} --file {file}; then agentload watch install --file {file}")
