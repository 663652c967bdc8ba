"""Ask an endpoint for the likeliest next tokens, after a prompt in its cache and within one.

Some servers list nothing, some limit the length of lists, and some have died of being asked, so
short lists are tried first. What cannot be asked is a sentence, not an exception.
"""

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, Protocol, Self, TypeAlias, TypeVar

import msgspec

from agentload.ask.asker import RETRIES, Failed, attempt, client
from agentload.dispatch.fault import body_fault
from agentload.dispatch.shapes import UNREADABLE, TokenUsage, decode
from agentload.endpoints.endpoint import Endpoint
from agentload.model.record import Record

T = TypeVar("T")
TIMEOUT_S: Final = 600.0
"""Limit for a whole answer, retries included."""
LISTS: Final = (1, 5, 20)
"""Lengths of lists that are tried one after the other before anything relies on them."""
Prompt: TypeAlias = Sequence[int] | str
"""Token ids, or text where the server does not count tokens."""
Listed: TypeAlias = Mapping[str, float]
"""Log probabilities by token."""


class Likely(Record):
    """The likeliest tokens at one place; None where the server gives no count."""

    listed: Listed
    prompt_tokens: int | None = None
    cached_tokens: int | None = None


class TokenSource(Protocol):
    """Describe a source of probabilities of tokens: a server, or a server's model."""

    async def behind(self, prompt: Prompt, *, most: int) -> Likely | Failed:
        """Ask for the *most* likely tokens after a prompt."""

    async def within(self, prompt: Prompt, *, most: int) -> tuple[Likely, ...] | Failed:
        """Ask for the *most* likely tokens at every place within a prompt but the first."""


class Scorer:
    """Ask one endpoint; use as an asynchronous context manager."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        own = {name: value for name, value in endpoint.extra_body.items() if name != "temperature"}
        # Different tokens may have equal texts, so a server that accepts
        # fields beyond OpenAI's is asked to name tokens by their ids.
        ours = {"return_tokens_as_token_ids": True} if endpoint.counting == "token_ids" else {}
        self._wanted: dict[str, Any] = {
            "model": model,
            "max_tokens": 1,
            "temperature": 0,
            **ours,
            **own,
        }
        self._proven = 0
        self._secrets = endpoint.secrets()
        self._timeout_s = endpoint.answer_s or TIMEOUT_S
        self._client = client(endpoint, timeout_s=self._timeout_s, retries=0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def behind(self, prompt: Prompt, *, most: int) -> Likely | Failed:
        """Ask for one token after a prompt, and for the *most* likely tokens in its place."""
        # An idle connection may have been closed, so this is tried again;
        # a list length that never worked is asked for once only.
        said = await self._asked(
            prompt, {"logprobs": most}, _behind, retries=RETRIES if most <= self._proven else 0
        )
        if isinstance(said, Likely):
            self._proven = max(self._proven, most)
        return said

    async def within(self, prompt: Prompt, *, most: int) -> tuple[Likely, ...] | Failed:
        """Ask for the *most* likely tokens at every place of a prompt.

        Servers compute such a prompt again rather than read it from the cache.
        """
        return await self._asked(prompt, {"prompt_logprobs": most}, _within, retries=0)

    async def _asked(
        self,
        prompt: Prompt,
        more: Mapping[str, Any],
        read: Callable[["_Scored"], T | Failed],
        *,
        retries: int,
    ) -> T | Failed:
        asked = prompt if isinstance(prompt, str) else list(prompt)
        body = {**self._wanted, **more, "prompt": asked}
        return await attempt(self._posted(body, read, retries), self._secrets)

    async def _posted(
        self, body: Mapping[str, Any], read: Callable[["_Scored"], T | Failed], retries: int
    ) -> T | Failed:
        # The SDK's own method looks at each of a hundred thousand token ids, and takes
        # any type for any; a timeout of its own lasts for one read only.
        server = self._client.with_options(max_retries=retries)
        async with asyncio.timeout(self._timeout_s):
            said = await server.post("/completions", cast_to=bytes, body=body)
        try:
            if decode(said).is_fault:
                return _failed(body_fault(said).text)
            scored = _scored(said)
        except UNREADABLE as error:
            return _failed(f"the answer is not of the expected form: {error}")
        if scored.counts.contradiction is not None:
            return _failed(scored.counts.contradiction)
        if scored.choices:
            return read(scored)
        return _failed("the answer has no choices")


class _Place(msgspec.Struct, gc=False):
    logprob: float | None = None


class _Logprobs(msgspec.Struct, gc=False):
    top_logprobs: list[dict[str, float | None] | None] | None = None


class _ScoredChoice(msgspec.Struct, gc=False):
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[str, _Place] | None] | None = None


class _Scored(msgspec.Struct, gc=False):
    choices: list[_ScoredChoice] = []
    usage: TokenUsage | None = None

    @property
    def counts(self) -> TokenUsage:
        """The server's counts, all unknown where it gives none."""
        return self.usage or TokenUsage()


_scored = msgspec.json.Decoder(_Scored).decode


def _failed(why: str) -> Failed:
    return Failed(error=why, http_status=HTTPStatus.OK)


def _behind(said: _Scored) -> Likely | Failed:
    logprobs = said.choices[0].logprobs
    tops = None if logprobs is None else logprobs.top_logprobs
    if not tops or not tops[0]:
        return _failed("its answers list no log probabilities")
    return _likely(tops[0], said.counts)


def _within(said: _Scored) -> tuple[Likely, ...] | Failed:
    places = said.choices[0].prompt_logprobs
    if not places:
        return _failed("it scores no prompts")
    return tuple(
        _likely({token: each.logprob for token, each in (place or {}).items()}, said.counts)
        for place in places[1:]
    )


def _likely(listed: Mapping[str, float | None], usage: TokenUsage) -> Likely:
    return Likely(
        listed={token: -math.inf if value is None else value for token, value in listed.items()},
        prompt_tokens=usage.prompt_tokens,
        cached_tokens=usage.cached_tokens,
    )


async def longest_list(source: TokenSource, prompt: Prompt) -> int | str:
    """Return how many tokens a server lists, up to the most wanted; or why it lists none.

    After a failure the server is not asked for longer lists.
    """
    most = 0
    for wanted in LISTS:
        said = await source.behind(prompt, most=wanted)
        if isinstance(said, Likely):
            most = wanted
        elif said.http_status is None or said.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return f"it failed when it was asked for {wanted} log probabilities: {said.error}"
        else:
            return most or said.error
    return most


def variation(one: Listed, other: Listed) -> float:
    """Return the total variation distance of two places; unlisted tokens count as one token."""
    shares, others = _shares(one), _shares(other)
    apart = sum(abs(shares.get(token, 0.0) - others.get(token, 0.0)) for token in shares | others)
    return (apart + abs(_rest(shares) - _rest(others))) / 2


def agrees(one: Listed, other: Listed) -> bool:
    """Tell whether the likeliest token is the same at both places."""
    return (
        bool(one)
        and bool(other)
        and max(one, key=one.__getitem__) == max(other, key=other.__getitem__)
    )


def _shares(listed: Listed) -> dict[str, float]:
    return {token: math.exp(min(0.0, value)) for token, value in listed.items()}


def _rest(shares: Mapping[str, float]) -> float:
    return max(0.0, 1.0 - sum(shares.values()))
