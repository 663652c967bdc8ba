"""Try what a comparison rests on: does the prefix cache answer, does the cache's dtype do what it should.

Each arm gets one long prompt twice: the second must come from the prefix cache, by its usage and by the server's counters. Then every
arm answers the same short prompts greedily: how many first tokens agree with the first arm's tells a shifted cache from a broken one.

With --matrix every arm of an arms file is launched without and with prefix caching, and with --graphs each eager and with CUDA graphs: a
feature that works alone may crash, answer garbage or miss its cache beside another.

For example:

    agentload probe --endpoints endpoints.yaml

    agentload probe --endpoints endpoints.yaml --matrix --graphs
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from agentload.ask.agree import Agreement, agreement
from agentload.ask.reuse import Reuse, reuse
from agentload.cli._launching import LOGS, START_S, launchable
from agentload.cli._load import existing_run
from agentload.cli._output import print_json
from agentload.cli._reached import reached
from agentload.cli._table import table
from agentload.endpoints.agreement import agreement as identities_agree
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify_all, served_model
from agentload.endpoints.read import read
from agentload.errors import GateError
from agentload.experiment.search.isolation import Cell, combinations, isolated, rows
from agentload.experiment.search.keep import keep

NEEDS: Final = {**dict.fromkeys(("graphs", "into", "logs", "start_timeout"), ("matrix",)), "db": ("into",)}
_ON: Final = {True: "on", False: "off", None: "–"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the probes found."""

    reuse: tuple[Reuse, ...]
    agreement: tuple[Agreement, ...]
    caveats: tuple[str, ...]


def run(
    *,
    endpoints: Annotated[str, typer.Option(help="a=URL,b=URL, a YAML file, or emulated:PROFILE[/ARM+ARM].")],
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    tokens: Annotated[int, typer.Option(help="Length of the prompt that is sent twice.")] = 2048,
    prompts: Annotated[int, typer.Option(help="How many prompts the arms must agree on.")] = 8,
    gate: Annotated[bool, typer.Option("--gate", help="Exit with 3 unless every prefix cache that is on answers.")] = False,
    matrix: Annotated[bool, typer.Option("--matrix", help="Launch each arm without and with prefix caching, one at a time.")] = False,
    graphs: Annotated[bool, typer.Option("--graphs", help="--matrix: and each of them eager and with CUDA graphs.")] = False,
    into: Annotated[str | None, typer.Option(help="--matrix: keep what was found beside this run, for its report.")] = None,
    db: Annotated[Path, typer.Option(help="--into: the run's DuckDB file.")] = Path("agentload.duckdb"),
    logs: Annotated[Path, typer.Option(help="--matrix: folder for the servers' logs.")] = LOGS,
    start_timeout: Annotated[float, typer.Option(help="--matrix: seconds until a server must be healthy.")] = START_S,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
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
        found = asyncio.run(_probed(arms, tokens, prompts))
    print_json(found) if json else _print(found, arms[0].name)
    misses = [each.arm for each in found.reuse if each.verdict in {"no hit", "failed"}]
    if gate and misses:
        raise GateError(f"no prefix reuse on {', '.join(misses)}", hint="see --enable-prefix-caching of the server, and its log")


async def _probed(arms: tuple[Endpoint, ...], tokens: int, prompts: int) -> Probed:
    identities = await identify_all(arms)
    models = [served_model(arm, identity) for arm, identity in zip(arms, identities, strict=True)]
    said = identities_agree(arms, {arm.name: identity for arm, identity in zip(arms, identities, strict=True)})
    counted = await tokenizer(arms[0], models[0])
    # One after the other: on one machine they would share its GPU or its cores.
    reused = [await reuse(arm, name, tokenizer=counted, tokens=tokens) for arm, name in zip(arms, models, strict=True)]
    agreed = await agreement(arms[0], arms[1:], models, tokenizer=counted, prompts=prompts)
    return Probed(reuse=tuple(reused), agreement=agreed, caveats=said.caveats())


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


def _print(found: Probed, reference: str) -> None:
    for caveat in found.caveats:
        print(f"caveat: {caveat}", file=sys.stderr)
    for line in table(("arm", "prefix reuse", "what was seen"), [(each.arm, each.verdict, each.detail()) for each in found.reuse]):
        print(line)
    if found.agreement:
        print()
        rows = [
            (each.arm, f"{each.first_token} of {each.prompts}", f"{each.whole} of {each.prompts}", str(each.failed))
            for each in found.agreement
        ]
        for line in table(("arm", f"first token as {reference}", "whole answer", "failed"), rows):
            print(line)
