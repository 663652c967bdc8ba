"""Ask one endpoint questions, greedily and with a fixed seed.

What goes wrong is a value, not an exception, and contains no key.
"""

import asyncio
import math
import ssl
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import replace
from http.cookiejar import Cookie, CookieJar, DefaultCookiePolicy
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar
from urllib.request import Request

import msgspec

from agentload.dispatch.answer import Parsed
from agentload.dispatch.call import GOOD_ENDS
from agentload.dispatch.fault import fault, masked_word, redact
from agentload.dispatch.framing import MOST_BYTES, OverlongError
from agentload.dispatch.sse import TOKEN_CHARS, document
from agentload.endpoints.endpoint import Endpoint, mask, socket_of
from agentload.endpoints.reach import proxy, tls_context
from agentload.model.record import Record
from agentload.tasks import Json
from agentload.tasks.parts.grading import call_text
from agentload.telemetry.reach import is_same_server, plain

if TYPE_CHECKING:
    import openai

T = TypeVar("T")
TIMEOUT_S: Final = 900.0
"""Limit for a whole answer, retries included; an answer that drips is never silent."""
RETRIES: Final = 2


async def _bounded(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Pass on the pieces of an answer; raise OverlongError past the most bytes of any."""
    size = 0
    async for piece in pieces:
        size += len(piece)
        if size > MOST_BYTES:
            raise OverlongError(f"an answer of more than {MOST_BYTES >> 20} MB")
        yield piece


def client(endpoint: Endpoint, *, timeout_s: float, retries: int) -> "openai.AsyncOpenAI":
    """Open a client with everything that the arms file says of the endpoint."""
    import httpx2
    import openai

    async def stays(response: httpx2.Response) -> None:
        if response.has_redirect_location and not is_same_server(
            str(response.request.url), response.headers["location"]
        ):
            raise httpx2.TooManyRedirects("redirected to another server", request=response.request)

    class Body(httpx2.AsyncByteStream):
        def __init__(self, whole: httpx2.AsyncByteStream) -> None:
            self._whole = whole

        def __aiter__(self) -> AsyncIterator[bytes]:
            return _bounded(aiter(self._whole))

        async def aclose(self) -> None:
            await self._whole.aclose()

    async def ends(response: httpx2.Response) -> None:
        # a compressed megabyte may hold a gigabyte
        if (encoding := response.headers.get("content-encoding", "identity").lower()) != "identity":
            raise httpx2.DecodingError(
                f"an answer encoded as '{masked_word(encoding)}', which was not asked for",
                request=response.request,
            )
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = Body(response.stream)

    class SayableCookies(DefaultCookiePolicy):
        def set_ok(self, cookie: Cookie, request: Request) -> bool:
            """Refuse a cookie that no header of a request can hold."""
            return f"{cookie.name}{cookie.value}".isascii() and super().set_ok(cookie, request)

    hooks: dict[str, list[Any]] = {"response": [stays, ends]}
    cookies = CookieJar(policy=SayableCookies())
    socket = socket_of(endpoint.url)
    return openai.AsyncOpenAI(
        base_url=plain(endpoint.url),
        api_key=endpoint.key() or "none",
        default_headers={"Accept-Encoding": "identity", **endpoint.own_headers()},
        timeout=timeout_s,
        max_retries=retries,
        # Proxies of the environment are not used, as timed calls do not use them either.
        http_client=openai.DefaultAsyncHttpx2Client(
            verify=tls_context(endpoint) or ssl.create_default_context(),
            proxy=proxy(endpoint),
            trust_env=False,
            event_hooks=hooks,
            cookies=cookies,
        )
        if socket is None
        else openai.DefaultAsyncHttpx2Client(
            transport=httpx2.AsyncHTTPTransport(uds=socket), event_hooks=hooks, cookies=cookies
        ),
    )


def error_text(error: Exception, secrets: Sequence[str]) -> str:
    """Return the kind of an error and at most 200 characters of what the server said.

    Keys and echoed prompts are masked.
    """
    import openai

    if isinstance(error, openai.APIStatusError):
        said = fault(error.body).text if error.body is not None else redact(str(error.message))
        return mask(f"{error.status_code}: {said}", secrets)
    cause = error.__cause__
    if isinstance(error, openai.APIConnectionError) and isinstance(cause, Exception):
        error = cause  # the SDK's own "Connection error." says nothing
    while not str(error) and isinstance(within := error.__cause__ or error.__context__, Exception):
        error = within  # a broken connection, which says nothing either
    return mask(f"{type(error).__name__}: {redact(str(error))}", secrets)


class EndpointAnswer(Record):
    """What an endpoint answered; None where it gives no counts or no probabilities."""

    text: str
    """The content; or the first tool call, as JSON with name and arguments, if there is one."""
    finish_reason: str | None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    tokens: tuple[str, ...] | None = None
    logprobs: tuple[float, ...] | None = None


class Failed(Record):
    """Why there is no answer."""

    error: str
    http_status: int | None = None


async def attempt(answer: Awaitable[T], secrets: Sequence[str]) -> T | Failed:
    """Wait for an answer; return why there is none, if there is none."""
    import openai

    try:
        found = await answer
    except openai.APIStatusError as error:
        return Failed(error=error_text(error, secrets), http_status=error.status_code)
    except (TimeoutError, openai.APITimeoutError):
        return Failed(error="no whole answer in time")
    # Whatever a server sends, only its own question fails.
    except Exception as error:  # noqa: BLE001
        return Failed(error=error_text(error, secrets))
    if isinstance(found, Failed):
        return replace(found, error=mask(found.error, secrets))
    return found


class Asker:
    """Ask one endpoint; use as an asynchronous context manager."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model
        self._offers_logprobs = True
        self._secrets = endpoint.secrets()
        self._timeout_s = endpoint.answer_s or TIMEOUT_S
        self._client = client(endpoint, timeout_s=self._timeout_s, retries=RETRIES)

    async def ask(
        self,
        messages: Sequence[Json],
        *,
        tools: Sequence[Json],
        output_tokens: int,
        seed: int,
        request_id: str,
    ) -> EndpointAnswer | Failed:
        """Ask at temperature 0, with log probabilities.

        A server that refuses log probabilities is asked without them from then on.
        """
        wanted: dict[str, Any] = {
            "model": self._model,
            "messages": messages,
            "temperature": 0,
            "seed": seed,
            "max_tokens": output_tokens,
            "extra_headers": {"X-Request-Id": request_id},
        }
        if tools:
            wanted["tools"] = tools
        if self._endpoint.extra_body:
            wanted["extra_body"] = dict(self._endpoint.extra_body)
        return await attempt(self._answer(wanted), self._secrets)

    async def _answer(self, wanted: Mapping[str, Any]) -> EndpointAnswer | Failed:
        import openai

        create = self._client.chat.completions.with_raw_response.create
        most_tokens: int = wanted["max_tokens"]
        async with asyncio.timeout(self._timeout_s):
            if self._offers_logprobs:
                try:
                    answer = await create(**wanted, logprobs=True)
                    return _answered(answer.content, most_tokens)
                except openai.BadRequestError as error:
                    if "logprob" not in str(error):
                        raise
                    self._offers_logprobs = False
            return _answered((await create(**wanted)).content, most_tokens)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._client.close()


class _Logprob(msgspec.Struct, gc=False):
    token: str
    logprob: float | None = None


class _Logprobs(msgspec.Struct, gc=False):
    content: list[_Logprob] | None = None


class _ListedChoice(msgspec.Struct, gc=False):
    message: object = None
    logprobs: _Logprobs | None = None


class _ListedAnswer(msgspec.Struct, gc=False):
    choices: list[_ListedChoice]


_listed = msgspec.json.Decoder(_ListedAnswer).decode


def _answered(body: bytes, most_tokens: int) -> EndpointAnswer | Failed:
    """Read an answer as a timed one is read, not as the SDK does, which takes any type for any."""
    parsed = document(body)
    if parsed.fault is not None:
        return Failed(error=parsed.fault.text, http_status=200)
    why = parsed.unreadable or bad_end(parsed.finish_reason)
    why = why or excess(parsed.text, parsed.output_tokens, most_tokens)
    if why is not None:
        return Failed(error=why, http_status=200)
    try:
        choice = _listed(body).choices[0]
    except msgspec.ValidationError as error:
        return Failed(error=f"the log probabilities are unreadable: {error}", http_status=200)
    if choice.message is None:
        return Failed(error="the answer has no message", http_status=200)
    listed = choice.logprobs.content if choice.logprobs else None
    tokens = logprobs = None
    if listed:
        tokens = tuple(each.token for each in listed)
        logprobs = tuple(math.nan if each.logprob is None else each.logprob for each in listed)
    return EndpointAnswer(
        text=_text(parsed),
        finish_reason=parsed.finish_reason,
        prompt_tokens=parsed.prompt_tokens,
        output_tokens=parsed.output_tokens,
        tokens=tokens,
        logprobs=logprobs,
    )


def bad_end(finish_reason: str | None) -> str | None:
    """Return how an answer ended, if it did not end well."""
    if finish_reason is None or finish_reason in GOOD_ENDS:
        return None
    return f"the answer ended with the finish reason '{masked_word(finish_reason)}'"


def excess(text: str, tokens: int | None, most_tokens: int) -> str | None:
    """Return by what an answer is longer than one of *most_tokens* tokens can be."""
    if tokens is not None and tokens > most_tokens:
        return f"{tokens} tokens where up to {most_tokens} were asked"
    if len(text) > TOKEN_CHARS * (most_tokens + 1):
        return f"{len(text):,} characters where up to {most_tokens} tokens were asked"
    return None


def _text(parsed: Parsed) -> str:
    if not parsed.tool_calls:
        return parsed.text
    first = parsed.tool_calls[0]
    return call_text(first.name, first.arguments)
