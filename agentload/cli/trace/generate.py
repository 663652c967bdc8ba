"""Make a trace of a workload.

Options of the workload follow its name as NAME=VALUE. Without a workload, the workloads are listed; with --options, those of one
workload.

For example:

    agentload trace generate rag --options

    agentload trace generate rag sessions=200 passages=8 -o rag.jsonl.zst
"""

from typing import Annotated

import typer

from agentload.cli.trace._files import write_trace
from agentload.cli.trace._options import describe, list_all, named
from agentload.workloads import catalog


def run(
    *,
    workload: Annotated[str | None, typer.Argument(help="The workload; none lists them.")] = None,
    given: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Options of the workload.")] = None,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal bytes.", min=0)] = 7,
    ctx_scale: Annotated[float, typer.Option(help="Multiply every length, for models with small windows.")] = 1.0,
    out: Annotated[str, typer.Option("--out", "-o", help="A file, compressed if it ends in .zst, or - for stdout.")] = "-",
    options: Annotated[bool, typer.Option("--options", help="List the workload's options and their defaults.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print lists as JSON.")] = False,
) -> None:
    if workload is None:
        list_all(catalog.every(), json=json)
    elif options:
        describe(catalog.workload(workload), json=json)
    else:
        wanted = named(given or [], hint="agentload trace generate WORKLOAD --options")
        write_trace(out, catalog.trace(workload, seed=seed, options=wanted, ctx_scale=ctx_scale))
