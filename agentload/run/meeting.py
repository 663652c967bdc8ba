"""Meet the servers of a leg before its first block: who they are, what they call the model, how they count tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentload.endpoints.agreement import agreement
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import LASTING, Facts, changed
from agentload.endpoints.identity import Identity, identify_all, served_model
from agentload.errors import EndpointError
from agentload.model.controls import copied, is_control
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.run.relay import Relay


@dataclass(frozen=True, slots=True, kw_only=True)
class Met:
    """What the servers are, by arm."""

    identities: Mapping[str, Identity]
    models: Mapping[str, str]
    counted: Tokenizer | None
    """What prompts are made by; None where no server counts."""


async def met_side_by_side(endpoints: tuple[Endpoint, ...], *, notice: Callable[[str], None]) -> Met:
    """Meet servers that run all the time."""
    names = [endpoint.name for endpoint in endpoints]
    identities = dict(zip(names, await identify_all(endpoints), strict=True))
    models = {each.name: served_model(each, identities[each.name]) for each in endpoints}
    counts = await asyncio.gather(*(_counts(each, models[each.name]) for each in endpoints))
    return Met(identities=identities, models=models, counted=_agreed(dict(zip(names, counts, strict=True)), notice))


async def met_in_turn(endpoints: tuple[Endpoint, ...], relay: Relay, *, first: str | None, notice: Callable[[str], None]) -> Met:
    """Start every server once to see what it is; the one that plays *first* comes last, and stays."""
    identities, models, counts = {}, {}, {}
    for endpoint in sorted((each for each in endpoints if not is_control(each.name)), key=lambda each: each.name == first):
        name = endpoint.name
        identities[name] = await relay.meet(name)
        models[name] = served_model(endpoint, identities[name])
        counts[name] = await _counts(endpoint, models[name])
    # A control is its twin's server, started once more.
    twins = {each.name: copied(each.name) for each in endpoints}
    return Met(
        identities={arm: identities[of] for arm, of in twins.items()},
        models={arm: models[of] for arm, of in twins.items()},
        counted=_agreed(counts, notice),
    )


def caveats(
    endpoints: Sequence[Endpoint],
    identities: Mapping[str, Identity],
    *,
    before: Mapping[str, Facts],
    names: Sequence[str] = LASTING,
    is_forced: bool,
    notice: Callable[[str], None],
) -> tuple[str, ...]:
    """Return what speaks against measuring these servers. Raises EndpointError, unless forced, for one that is not what the arms file says.

    Nor, by the facts of these *names*, what its arm was *before*, in the run that is gone on with: another would be measured in its name.
    """
    found = agreement(endpoints, identities)
    others = tuple(
        f"{arm} is not the server that the run began with: {', '.join(differs)}"
        for arm, identity in identities.items()
        if (differs := changed(before.get(arm, {}), identity.facts(), names))
    )
    if not is_forced:
        found.require()
        if others:
            raise EndpointError("; ".join(others), hint="start it as it was then; --force measures it all the same")
    told = (*others, *found.caveats())
    for caveat in told:
        notice(f"caveat: {caveat}")
    return told


async def _counts(endpoint: Endpoint, model: str) -> Tokenizer | None:
    """Measure what a server counts by; emulated servers count words."""
    return await tokenizer(endpoint, model) if endpoint.profile is None else WORD_TOKENS


def _agreed(measured: Mapping[str, Tokenizer | None], notice: Callable[[str], None]) -> Tokenizer | None:
    found = {name: each for name, each in measured.items() if each is not None}
    if not found:
        notice("no server counts tokens (/tokenize): prompts have as many words as the trace asks for tokens; --tokenizer FILE")
        return None
    name, first = next(iter(found.items()))
    if other := next((other for other, each in found.items() if each != first), None):
        notice(f"{name} and {other} count tokens differently: both get the same bytes, with the lengths of {name}")
    return first
