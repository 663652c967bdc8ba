"""Make a trace of a workload.

Options of the workload follow its name as NAME=VALUE. Without a workload, the workloads are listed; with --options, those of one
workload.

For example:

    agentload trace generate rag --options

    agentload trace generate rag sessions=200 passages=8 -o rag.jsonl.zst
"""

from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.errors import UsageError
from agentload.tracefile import write
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
        _list_workloads(json)
    elif options:
        _list_options(catalog.workload(workload), json)
    else:
        write(out, catalog.trace(workload, seed=seed, options=_parsed(given or []), ctx_scale=ctx_scale))


def _parsed(given: list[str]) -> dict[str, str]:
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"'{text}' is no option of the form NAME=VALUE", hint="agentload trace generate WORKLOAD --options")
        options[name.replace("-", "_")] = value
    return options


def _list_workloads(json: bool) -> None:  # noqa: FBT001  # the verb's own flag
    made = [catalog.workload(name) for name in catalog.names()]
    if json:
        print_json([{"name": each.name, "help": each.help} for each in made])
        return
    width = max(len(each.name) for each in made)
    for each in made:
        print(f"{each.name:<{width}}  {each.help.splitlines()[0]}")


def _list_options(made: catalog.Workload, json: bool) -> None:  # noqa: FBT001  # the verb's own flag
    if json:
        print_json([{"name": option.name, "default": option.default} for option in made.options])
        return
    print(made.help, end="\n\n")
    width = max(len(option.name) for option in made.options)
    for option in made.options:
        print(f"{option.name:<{width}}  {option.default}")
