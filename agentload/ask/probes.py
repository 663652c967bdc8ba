"""Probe running servers: prefix reuse, a cache of their own, equal answers.

A long prompt is sent twice: a working prefix cache answers the second request from
the cache, and faster. Another arm must not have the prompt: an arm that does is the same
server under another URL, or both are behind one router.
"""

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from agentload.ask.asker import Failed
from agentload.ask.plain import AnswerAgreement, Plain, StreamAnswer, agreement, tokens_of
from agentload.endpoints import pages
from agentload.endpoints.agreement import agreement as identities_agree
from agentload.endpoints.counting import tokenizer
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import checks
from agentload.endpoints.identity import Identity, identify, identify_all, served_model
from agentload.endpoints.reach import reach
from agentload.model.record import Record
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS, Tokenizer
from agentload.tasks import Json

TOKENS: Final = 2048  # some blocks of the largest size that servers use
OUTPUT: Final = 4
HIT: Final = 0.5  # share of the prompt: only whole blocks are cached, and never the last one
SETTLE_S: Final = 1.0  # counters may lag behind the answer
LOOK_S: Final = 0.1
LOOKS: Final = 6  # each over a new connection: a balancer of two hides one of them once in 32
ProcessChange: TypeAlias = Literal["restarted", "several"]
"""`restarted`: the server's process began between the requests, with an empty cache.

`several`: replicas behind one address answer in turn, each with its own cache.
"""
PrefixReuse: TypeAlias = Literal["hit", "no hit", "not told", "off", "failed"] | ProcessChange
_CHANGED: Final[Mapping[str, str]] = {
    "restarted": "{arm} was restarted between its requests: probe again",
    "several": "{arm}: several replicas behind one address answer in turn, each with its own "
    "cache: name each, --endpoints {arm}=URL,{arm}=URL",
}
"""What to do where another process answered, by the verdict."""
_UNSURE: Final = (
    "no arm says that its cache has 16 bits: answers are held against those of {}, which may "
    "be the wrong ones"
)


class ReuseProbe(Record):
    """What one or two equal requests showed of prefix reuse; None is not observed."""

    arm: str
    verdict: PrefixReuse
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    """Cached tokens of the last request, from its usage."""
    counted_hits: float | None = None
    """Hit tokens from the server's counters; None also if others sent requests meanwhile."""
    first_ttft_ms: float | None = None
    second_ttft_ms: float | None = None
    is_same: bool | None = None
    """Whether both answers are equal."""
    error: str | None = None

    def detail(self) -> str:
        """Return the figures as one line."""
        if self.error is not None:
            return self.error
        cached = "not told" if self.cached_tokens is None else f"{self.cached_tokens:,}"
        hits = "not told" if self.counted_hits is None else f"{self.counted_hits:,.0f}"
        prompt = (
            "prompt not counted" if self.prompt_tokens is None else f"{self.prompt_tokens} tokens"
        )
        return f"{prompt}; cached {cached}, counters {hits}; TTFT {self._ttft()}"

    def _ttft(self) -> str:
        told = [each for each in (self.first_ttft_ms, self.second_ttft_ms) if each is not None]
        times = f", {told[0] / told[1]:.1f} times as fast" if len(told) == 2 and told[1] > 0 else ""
        return f"{' → '.join(f'{each:.0f}' for each in told) or '–'} ms{times}"


class _Seen(Record):
    answers: tuple[StreamAnswer | Failed, ...]
    hits: float | None
    is_on: bool
    change: ProcessChange | None = None

    def reuse(self, arm: str, *, tokens: int) -> ReuseProbe:
        failed = next((each for each in self.answers if isinstance(each, Failed)), None)
        if failed is not None:
            return ReuseProbe(arm=arm, verdict="failed", error=failed.error)
        streamed = [each for each in self.answers if isinstance(each, StreamAnswer)]
        first = streamed[0]
        last = streamed[-1]
        found = self.change or _verdict(last, self.hits, is_on=self.is_on, tokens=tokens)
        return ReuseProbe(
            arm=arm,
            verdict=found,
            prompt_tokens=last.prompt_tokens,
            cached_tokens=last.cached_tokens,
            counted_hits=self.hits,
            first_ttft_ms=first.ttft_ms,
            second_ttft_ms=last.ttft_ms if len(streamed) > 1 else None,
            is_same=tokens_of(first) == tokens_of(last) if len(streamed) > 1 else None,
        )


async def reuse(
    endpoint: Endpoint, model: str, *, tokenizer: Tokenizer | None = None, tokens: int = TOKENS
) -> ReuseProbe:
    """Send one prompt twice to *endpoint*; return whether the second hit the prefix cache."""
    seen = await _seen(endpoint, model, _messages(tokenizer, tokens), times=2)
    return seen.reuse(endpoint.name, tokens=tokens)


async def reuse_across_arms(
    arms: Sequence[Endpoint],
    models: Sequence[str],
    *,
    tokenizer: Tokenizer | None = None,
    tokens: int = TOKENS,
) -> tuple[ReuseProbe, ...]:
    """Send one prompt to one arm after the other; return what all but the first showed.

    A hit is then in the cache of another arm.
    """
    messages = _messages(tokenizer, tokens)
    seen = [
        (arm.name, await _seen(arm, model, messages, times=1))
        for arm, model in zip(arms, models, strict=True)
    ]
    return tuple(each.reuse(name, tokens=tokens) for name, each in seen[1:])


def _messages(tokenizer: Tokenizer | None, tokens: int) -> Sequence[Json]:
    renderer = Renderer(seed=0, tokenizer=tokenizer or WORD_TOKENS)
    context = (Segment(role="user", tokens=tokens, key="reuse"),)
    # New content in every probe, so that no hit comes from an earlier probe.
    found: Sequence[Json] = json.loads(
        renderer.render(context, salt=f"reuse {time.time_ns()}").messages
    )
    return found


async def _seen(endpoint: Endpoint, model: str, messages: Sequence[Json], *, times: int) -> _Seen:
    before = await identify(endpoint)
    async with Plain(endpoint, model) as plain:
        answers: list[StreamAnswer | Failed] = []
        for _ in range(times):
            answers.append(await plain.stream(messages, output_tokens=OUTPUT))
            if isinstance(answers[-1], Failed):
                return _Seen(answers=tuple(answers), hits=None, is_on=True)
    after = await _settled(endpoint, before, asked=times)
    change = process_change(
        [
            *(each.counters.get("process_start_s") for each in (before, after)),
            *(await _starts(endpoint)),
        ]
    )
    is_alone = (_risen("requests_done", before, after) or 0) <= times and change is None
    return _Seen(
        answers=tuple(answers),
        hits=_risen("prefix_hits", before, after) if is_alone else None,
        is_on=str(after.facts()["prefix_caching"]).lower() != "false",
        change=change,
    )


def process_change(starts: Sequence[float | None]) -> ProcessChange | None:
    """Tell a restart from replicas, by when the processes that answered one after another began.

    Where one that began earlier answers after one that began later, both are running.
    """
    known = [start_s for start_s in starts if start_s is not None]
    if known != sorted(known):
        return "several"
    if len(set(known)) > 1:
        return "restarted"
    return None


async def _starts(endpoint: Endpoint) -> list[float | None]:
    """Ask several times when the process began; nothing if replicas have pages of their own."""
    if len(endpoint.metrics_urls) > 1:
        return []
    reached = await asyncio.to_thread(reach, endpoint)
    found: list[float | None] = []
    for _ in range(LOOKS):
        async with reached.session(pages.TIMEOUT) as session:
            page = await pages.scrape(session, endpoint.metrics_urls[0], [])
        found.append(None if page is None else page.values.get("process_start_s"))
    return found


async def _settled(endpoint: Endpoint, before: Identity, *, asked: int) -> Identity:
    """Read the server's identity until its counters include the requests sent, or time is up."""
    until = time.monotonic() + SETTLE_S
    while True:
        after = await identify(endpoint, known=before)
        done = _risen("requests_done", before, after)
        if done is None or done >= asked or time.monotonic() > until:
            return after
        await asyncio.sleep(LOOK_S)


def _risen(name: str, before: Identity, after: Identity) -> float | None:
    if name not in before.counters or name not in after.counters:
        return None
    return after.counters[name] - before.counters[name]


def _verdict(last: StreamAnswer, hits: float | None, *, is_on: bool, tokens: int) -> PrefixReuse:
    if not is_on:
        return "off"
    told = [each for each in (last.cached_tokens, hits) if each is not None]
    if not told:
        return "not told"
    if max(told) >= HIT * (last.prompt_tokens or tokens):
        return "hit"
    return "no hit"


class Probed(Record):
    """Hold what the probes found."""

    reuse: tuple[ReuseProbe, ...]
    crossed: tuple[ReuseProbe, ...]
    """Every arm but the first, asked the prompt that the arms before it were asked."""
    reference: str
    """The arm with whose answers the others' are compared."""
    agreement: tuple[AnswerAgreement, ...]
    mismatches: tuple[str, ...]
    """Differences between what the arms are and what the arms file expects."""
    caveats: tuple[str, ...]

    @property
    def silent(self) -> Mapping[str, str]:
        """Return what the arms that answered no prompt at all said in place of an answer."""
        answering = {each.arm for each in self.agreement if each.is_answering}
        if any(each.is_answered for each in self.agreement):
            answering.add(self.reference)
        return {
            each.arm: each.error or "no answer"
            for each in self.reuse
            if each.verdict == "failed" and each.arm not in answering
        }

    def troubles(self) -> Iterator[str]:
        """Yield a sentence for everything that makes the arms unfit for a comparison."""
        yield from self.mismatches
        if misses := [each.arm for each in self.reuse if each.verdict == "no hit"]:
            yield f"no prefix reuse on {', '.join(misses)}"
        yield from dict.fromkeys(
            _CHANGED[each.verdict].format(arm=each.arm)
            for each in (*self.reuse, *self.crossed)
            if each.verdict in _CHANGED
        )
        yield from (
            f"{each.arm}: prefix reuse could not be tried: {each.error}"
            for each in self.reuse
            if each.verdict == "failed"
        )
        yield from (
            f"{each.arm} answers from another arm's cache"
            for each in self.crossed
            if each.verdict == "hit"
        )
        yield from (
            f"{each.arm}: {each.wrong}" for each in self.agreement if each.wrong is not None
        )
        yield from (
            f"{each.arm}: no prompt was answered"
            for each in self.agreement
            if each.prompts == 0 and each.failed
        )


async def probe_arms(arms: Sequence[Endpoint], *, tokens: int, prompts: int) -> Probed:
    """Probe every arm; raise EndpointError when one cannot be asked."""
    identities = await identify_all(tuple(arms))
    models = [served_model(arm, identity) for arm, identity in zip(arms, identities, strict=True)]
    said = identities_agree(
        arms, {arm.name: identity for arm, identity in zip(arms, identities, strict=True)}
    )
    place = sixteen_bit([identity.facts() for identity in identities])
    counted = await tokenizer(arms[0], models[0])
    # One after the other, as arms on one machine would share its GPU or its cores.
    reused = [
        await reuse(arm, name, tokenizer=counted, tokens=tokens)
        for arm, name in zip(arms, models, strict=True)
    ]
    first = 0 if place is None else place
    order = [first, *(other for other in range(len(arms)) if other != first)]
    base, *others = [arms[each] for each in order]
    unsure = (_UNSURE.format(base.name),) if others and place is None else ()
    return Probed(
        reuse=tuple(reused),
        crossed=await reuse_across_arms(arms, models, tokenizer=counted, tokens=tokens),
        reference=base.name,
        agreement=await agreement(
            base, others, [models[each] for each in order], tokenizer=counted, prompts=prompts
        ),
        mismatches=said.mismatches,
        caveats=(*said.caveats()[len(said.mismatches) :], *unsure),
    )


def sixteen_bit(facts: Sequence[Mapping[str, object]]) -> int | None:
    """Return the place of the first server that reports a 16-bit KV cache; None if none does."""
    wanted = {"kv_cache_dtype": "bfloat16"}
    return next(
        (
            place
            for place, each in enumerate(facts)
            if all(check.agrees for check in checks(wanted, each))
        ),
        None,
    )


def short(tokens: int) -> Iterator[str]:
    """Yield a warning if a prompt is too short to show prefix reuse."""
    if tokens < TOKENS:
        yield (
            f"a prompt of {tokens:,} tokens may be no whole block of a cache: take {TOKENS:,} "
            "or more"
        )
