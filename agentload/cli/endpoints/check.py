"""Ask every arm who it is, and hold it to what the arms file expects.

Exits with 1 when a server cannot be used, with 3 when one is not what is expected.

For example:

    agentload endpoints check endpoints.yaml
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from agentload.cli._output import print_json
from agentload.cli._table import table
from agentload.endpoints.agreement import Agreement, agreement
from agentload.endpoints.identity import Identity, identify_all, served_model
from agentload.endpoints.read import Emulated, read
from agentload.errors import GateError, UsageError

SHOWN = ("version", "kv_cache_dtype", "skip_layers", "attention_backend", "prefix_caching", "max_model_len", "pool_tokens", "replicas")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What the arms said."""

    arms: dict[str, dict[str, object]]
    missing: dict[str, tuple[str, ...]]
    agreement: Agreement


def run(
    endpoints: Annotated[str, typer.Argument(help="An arms file, or a=URL,b=URL.")] = "endpoints.yaml",
    *,
    model: Annotated[str | None, typer.Option(help="Model to ask for; the only one served when omitted.")] = None,
    api_key_env: Annotated[str | None, typer.Option(help="Environment variable that holds the API key.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what the servers said as JSON.")] = False,
) -> None:
    arms = read(endpoints, model=model, key_env=api_key_env)
    if isinstance(arms, Emulated):
        raise UsageError("emulated endpoints are what their profile says", hint="agentload profile show " + arms.profile)
    identities: dict[str, Identity] = dict(zip((arm.name for arm in arms), asyncio.run(identify_all(arms)), strict=True))
    for arm in arms:
        served_model(arm, identities[arm.name])
    found = agreement(arms, identities)
    if json:
        facts = {name: identity.facts() for name, identity in identities.items()}
        print_json(Checked(arms=facts, missing={name: identity.missing for name, identity in identities.items()}, agreement=found))
    else:
        for line in table(("arm", *SHOWN), [(name, *_cells(identity)) for name, identity in identities.items()]):
            print(line)
        for caveat in (*found.unknown, *found.caveats()[len(found.mismatches) + len(found.unknown) :]):
            print(f"caveat: {caveat}")
        for identity in identities.values():
            for source in identity.missing:
                print(f"not read: {source}")
            for warning in identity.log.warnings:
                print(f"log: {warning}")
    if found.mismatches:
        raise GateError("; ".join(found.mismatches), hint="mend the server or the arms file")


def _cells(identity: Identity) -> tuple[str, ...]:
    facts = identity.facts()
    return tuple("–" if facts[name] is None else str(facts[name]) for name in SHOWN)
