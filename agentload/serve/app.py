"""Route the requests of one emulated server: completions, and what vLLM reports of itself.

Completions have two faces, chat and plain text. What really happened to each one is logged.
"""

import asyncio
import time
from secrets import token_hex
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from agentload.emulator.faults import Crash
from agentload.model.record import Record
from agentload.serve import mishaps, refusal
from agentload.serve.delivery import Delivery, order
from agentload.serve.facts import Facts
from agentload.serve.metrics import RequestTally
from agentload.serve.mishaps import Mishaps
from agentload.serve.pacing import Pacer
from agentload.serve.refusal import JSON, RefusedError, headers, refusal_response
from agentload.serve.stream import Log, Truth
from agentload.serve.wanted import Face, tokenize

# Images travel inside the body.
_LARGEST_BODY: Final = 1 << 29


class Service(Record):
    """Serve the requests of one arm."""

    facts: Facts
    pacer: Pacer
    tally: RequestTally
    mishaps: Mishaps
    registry: CollectorRegistry
    """Metrics that /metrics shows."""
    seed: int
    truth: Truth | None

    async def answer(self, request: web.Request, face: Face) -> web.StreamResponse:
        """Answer a completion request, as chat or as plain text."""
        body = await request.read()
        log = Log(
            request_id=request.headers.get("X-Request-Id") or token_hex(8),
            arrived_ns=time.monotonic_ns(),
        )
        faults = self.mishaps.of_next()
        deaths = self.mishaps.deaths
        log.fault = mishaps.name(faults)
        try:
            placed = order(
                body,
                face=face,
                content_type=request.content_type,
                request_id=log.request_id,
                facts=self.facts,
                seed=self.seed,
                company=self.pacer.company,
            )
            log.prompt_tokens = placed.exchange.prompt_tokens
            if mishaps.is_overtaxed(self.facts.arm, placed.exchange.wanted.prompt_logprobs):
                faults = (*faults, Crash(after_tokens=0))
            if declining := mishaps.busy(faults):
                raise refusal.busy(status=declining.status, retry_after_s=declining.retry_after_s)
            self._check_queue()
            delivery = Delivery(
                request,
                placed,
                log,
                faults,
                mishaps=self.mishaps,
                pacer=self.pacer,
                tally=self.tally,
            )
            return await (delivery.stream() if placed.exchange.wanted.stream else delivery.whole())
        except RefusedError as error:
            log.end = log.end or "refused"
            return refusal_response(request, error)
        except (asyncio.CancelledError, ConnectionError):
            log.end = "left" if self.mishaps.deaths == deaths else "broken"
            raise
        finally:
            log.ended_ns = time.monotonic_ns()
            if self.truth is not None:
                self.truth.add(log)
                asyncio.get_running_loop().call_soon(self._write_truth)

    def _check_queue(self) -> None:
        # vLLM checks its queue before it answers. If the queue fills up after
        # this check, the engine refuses the request, inside the stream.
        most = self.facts.arm.server.max_waiting
        if most is not None and self.pacer.gauges().waiting >= most:
            self.tally.rejections += 1
            raise refusal.busy()

    def _write_truth(self) -> None:
        # One log a turn of the loop: many answers may end with the same
        # step, and other streams must not wait for all of their logs.
        if self.truth is not None and self.truth.write_one():
            asyncio.get_running_loop().call_soon(self._write_truth)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """Answer /v1/chat/completions."""
        return await self.answer(request, "chat")

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """Answer /v1/completions."""
        return await self.answer(request, "completions")

    async def models(self, request: web.Request) -> web.Response:
        """List the served model."""
        return _json(request, self.facts.models())

    async def version(self, request: web.Request) -> web.Response:
        """Return the server's version."""
        # Unlike vLLM, say that the server is emulated: nothing here was measured on a GPU.
        arm = self.facts.arm
        return _json(
            request, {"version": self.facts.version, "emulated": f"{arm.profile}/{arm.name}"}
        )

    async def server_info(self, request: web.Request) -> web.Response:
        """Return the configuration that the server was started with."""
        return _json(request, self.facts.server_info())

    async def health(self, request: web.Request) -> web.Response:
        """Report that the server lives."""
        return web.Response(headers=headers(request, JSON))

    async def metrics(self, request: web.Request) -> web.Response:
        """Return the metrics as Prometheus text."""
        return web.Response(
            body=generate_latest(self.registry), headers=headers(request, CONTENT_TYPE_LATEST)
        )

    async def tokenize(self, request: web.Request) -> web.Response:
        """Return the tokens of a prompt, and how many they are."""
        ids = tokenize(await request.read())
        answer = {
            "count": len(ids),
            "max_model_len": self.facts.arm.server.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }
        return _json(request, answer)

    async def reset_prefix_cache(self, request: web.Request) -> web.Response:
        """Empty the prefix cache, unless calls are running."""
        # vLLM answers 200 even where calls are running and nothing was reset.
        self.pacer.reset_prefix_cache()
        return web.Response(headers=headers(request, JSON))


def application(service: Service, *, api_key: str | None = None) -> web.Application:
    """Return the web application of one arm."""
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_guard(api_key), _errors])
    app.add_routes(
        [
            web.post("/v1/chat/completions", service.chat),
            web.post("/v1/completions", service.completions),
            web.get("/v1/models", service.models),
            web.post("/tokenize", service.tokenize),
            web.get("/version", service.version),
            web.get("/health", service.health),
            web.get("/ping", service.health),
            web.get("/metrics", service.metrics),
            web.get("/server_info", service.server_info),
            web.post("/reset_prefix_cache", service.reset_prefix_cache),
        ]
    )
    return app


def _json(request: web.Request, value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers=headers(request, JSON))


def _guard(api_key: str | None) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # vLLM guards the API and leaves /health, /metrics and /version open.
        if (
            api_key is not None
            and request.path.startswith("/v1")
            and request.headers.get("Authorization") != f"Bearer {api_key}"
        ):
            return web.Response(
                status=401, body=b'{"error":"Unauthorized"}', headers=headers(request, JSON)
            )
        return await handler(request)

    return guard


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return refusal_response(request, error)
    except web.HTTPException as error:
        return refusal_response(request, refusal.plain(error.status))
