"""Try servers that run: does each one's prefix cache answer, has each one a cache of its own, do they say the same?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentload.ask.agree import Agreement, agreement
from agentload.ask.reuse import TOKENS, Reuse, crossed, reuse
from agentload.endpoints.agreement import agreement as identities_agree
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.expectations import checks
from agentload.endpoints.identity import identify_all, served_model

_UNSURE: Final = "no arm says that its cache has 16 bits: answers are held against those of {}, which may be the wrong ones"


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What the probes found."""

    reuse: tuple[Reuse, ...]
    crossed: tuple[Reuse, ...]
    """Every arm but the first, asked what those before it were asked."""
    reference: str
    """The arm that the others' answers are held against."""
    agreement: tuple[Agreement, ...]
    mismatches: tuple[str, ...]
    """Arms that are not what the arms file expects."""
    caveats: tuple[str, ...]

    def troubles(self) -> Iterator[str]:
        """Yield what makes the arms unfit for a comparison."""
        yield from self.mismatches
        if misses := [each.arm for each in self.reuse if each.verdict in {"no hit", "failed"}]:
            yield f"no prefix reuse on {', '.join(misses)}"
        yield from (f"{each.arm} answers from another arm's cache" for each in self.crossed if each.verdict == "hit")
        yield from (f"{each.arm}: {each.wrong}" for each in self.agreement if each.wrong is not None)
        yield from (f"{each.arm}: no prompt was answered" for each in self.agreement if each.prompts == 0 and each.failed)


async def probed(arms: Sequence[Endpoint], *, tokens: int, prompts: int) -> Probed:
    """Ask every arm. Raises EndpointError when one cannot be asked."""
    identities = await identify_all(tuple(arms))
    models = [served_model(arm, identity) for arm, identity in zip(arms, identities, strict=True)]
    said = identities_agree(arms, {arm.name: identity for arm, identity in zip(arms, identities, strict=True)})
    place = sixteen_bit([identity.facts() for identity in identities])
    counted = await tokenizer(arms[0], models[0])
    # One after the other: on one machine they would share its GPU or its cores.
    reused = [await reuse(arm, name, tokenizer=counted, tokens=tokens) for arm, name in zip(arms, models, strict=True)]
    first = 0 if place is None else place
    order = [first, *(other for other in range(len(arms)) if other != first)]
    base, *others = [arms[each] for each in order]
    unsure = (_UNSURE.format(base.name),) if others and place is None else ()
    return Probed(
        reuse=tuple(reused),
        crossed=await crossed(arms, models, tokenizer=counted, tokens=tokens),
        reference=base.name,
        agreement=await agreement(base, others, [models[each] for each in order], tokenizer=counted, prompts=prompts),
        mismatches=said.mismatches,
        caveats=(*said.caveats()[len(said.mismatches) :], *unsure),
    )


def sixteen_bit(facts: Sequence[Mapping[str, object]]) -> int | None:
    """Return which server is the first whose cache has 16 bits, by its own word; None: none says so."""
    wanted = {"kv_cache_dtype": "bfloat16"}
    return next((place for place, each in enumerate(facts) if all(check.agrees for check in checks(wanted, each))), None)


def short(tokens: int) -> Iterator[str]:
    """Say what a prompt that is sent twice is too short for."""
    if tokens < TOKENS:
        yield f"a prompt of {tokens:,} tokens may be no whole block of a cache: take {TOKENS:,} or more"
