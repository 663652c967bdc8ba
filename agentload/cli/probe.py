"""Try what a comparison rests on: does the prefix cache answer, does the cache's dtype do what it should.

Each arm gets one long prompt twice: the second must come from the prefix cache, by its usage or by the server's counters. One more prompt
goes to all arms in turn: none may find it in the cache of another. Then every arm answers the same short prompts greedily: how many first
tokens agree with those of the arm whose cache has 16 bits tells a shifted cache from a broken one.

With --matrix every arm of an arms file is launched without and with prefix caching, and with --graphs each eager and with CUDA graphs: a
feature that works alone may crash, answer garbage or miss its cache beside another.

For example:

    agentload probe --endpoints endpoints.yaml

    agentload probe --endpoints endpoints.yaml --matrix --graphs
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.ask.probes import Probed, Verdict, probed, short
from agentload.cli._launching import LOGS, START_S, launchable
from agentload.cli._load import existing_run
from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.endpoints.read import read
from agentload.errors import GateError
from agentload.run.capacity import keep
from agentload.run.isolation import Cell, combinations, isolated, rows
from agentload.run.servers import reached

NEEDS: Final = {**dict.fromkeys(("graphs", "into", "logs", "start_timeout"), ("matrix",)), "db": ("into",)}
_ON: Final = {True: "on", False: "off", None: "–"}
_CACHE: Final[Mapping[Verdict, str]] = {
    "hit": "another arm's",
    "no hit": "its own",
    "off": "off",
    "not told": "not told",
    "failed": "failed",
}


def run(
    *,
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM].")],
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    tokens: Annotated[int, typer.Option(help="Length of the prompt that is sent twice.")] = 2048,
    prompts: Annotated[int, typer.Option(help="How many prompts the arms must agree on.")] = 8,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 3 if an arm is not fit for a comparison.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Launch each arm without and with prefix caching, one at a time.")] = False,
    graphs: Annotated[bool, typer.Option("--graphs", help="--matrix: and each of them eager and with CUDA graphs.")] = False,
    into: Annotated[str | None, typer.Option(help="--matrix: keep what was found beside this run, for its report.")] = None,
    db: Annotated[Path, typer.Option(help="--into: the run's DuckDB file.")] = Path("agentload.duckdb"),
    logs: Annotated[Path, typer.Option(help="--matrix: folder for the servers' logs.")] = LOGS,
    start_timeout: Annotated[float, typer.Option(help="--matrix: seconds until a server must be healthy.")] = START_S,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    for caveat in short(tokens):
        _told(f"caveat: {caveat}")
    if matrix:
        arms = launchable(read(endpoints, model=model, key_env=api_key_env), option="--matrix")
        run_id = None if into is None else existing_run(db, into)
        cells = tuple(
            isolated(combinations(arms, graphs=graphs), tokens=tokens, prompts=prompts, logs=logs, start_s=start_timeout, told=_told)
        )
        if run_id is not None:
            keep(rows(cells, run_id=run_id), db, run_id=run_id, name="isolation")
        print_json(cells) if json else _print_matrix(cells)
        bad = [each for each in cells if each.outcome != "ok"]
        if gate and bad:
            raise GateError(f"{len(bad)} of {len(cells)} combinations are not fit for use", hint=f"the servers' logs: {logs}")
        return
    with reached(read(endpoints, model=model, key_env=api_key_env), noise=True, seed=0) as arms:
        found = asyncio.run(probed(arms, tokens=tokens, prompts=prompts))
    print_json(found) if json else _print(found)
    if gate and (troubles := tuple(found.troubles())):
        raise GateError("; ".join(troubles), hint="see --enable-prefix-caching and --kv-cache-dtype of the servers, and their logs")


def _told(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _print_matrix(cells: tuple[Cell, ...]) -> None:
    rows = [
        (
            each.arm,
            _ON[each.prefix_caching],
            _ON[each.cuda_graphs],
            each.outcome,
            "–" if each.exit_code is None else str(each.exit_code),
            "–" if each.agreed is None else f"{each.agreed} of {each.prompts}",
            each.detail,
        )
        for each in cells
    ]
    first = next((each for each in cells if each.agreed is not None), cells[0])
    for line in table(("arm", "prefix", "graphs", "outcome", "exit", f"first token as {first.arm}", "what was seen"), rows):
        print(line)


def _print(found: Probed) -> None:
    for caveat in (*found.mismatches, *found.caveats):
        _told(f"caveat: {caveat}")
    caches = {each.arm: _CACHE[each.verdict] for each in found.crossed}
    rows = [(each.arm, each.verdict, caches.get(each.arm, "–"), each.detail()) for each in found.reuse]
    for line in table(("arm", "prefix reuse", "cache", "what was seen"), rows):
        print(line)
    if found.agreement:
        print()
        cells = [
            (each.arm, f"{each.first_token} of {each.prompts}", f"{each.whole} of {each.prompts}", str(each.failed), each.wrong or "–")
            for each in found.agreement
        ]
        for line in table(("arm", f"first token as {found.reference}", "whole answer", "failed", "what is wrong"), cells):
            print(line)
