"""Try what a comparison rests on: does the prefix cache answer, does the cache's dtype do what it should.

Each arm gets one long prompt twice: the second must come from the prefix cache, by its usage and by the server's counters. Then every
arm answers the same short prompts greedily: how many first tokens agree with the first arm's tells a shifted cache from a broken one.

For example:

    agentload probe --endpoints endpoints.yaml
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.ask.agree import Agreement, agreement
from agentload.ask.reuse import Reuse, reuse
from agentload.cli._output import print_json
from agentload.cli._reached import reached
from agentload.cli._table import table
from agentload.endpoints.agreement import agreement as identities_agree
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify_all, served_model
from agentload.endpoints.read import read
from agentload.errors import GateError


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
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
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
