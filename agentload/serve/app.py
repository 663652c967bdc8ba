"""Route requests: the two faces, and what vLLM tells of itself; serve each from its bytes to its last byte, and note the truth."""

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
from agentload.serve import mishaps, refusal
from agentload.serve.delivery import Delivery, order
from agentload.serve.facts import Facts
from agentload.serve.metrics import HttpMetrics, Tally
from agentload.serve.mishaps import Mishaps
from agentload.serve.pacing import Pacer
from agentload.serve.refusal import JSON, RefusedError, headers, refused
from agentload.serve.stream import Log, Truth
from agentload.serve.wanted import Face, Wanted, objects, parsed, token_ids

# Images travel inside the body.
_LARGEST_BODY: Final = 1 << 29


class Service:
    """Serve the requests of one arm."""

    def __init__(self, facts: Facts, pacer: Pacer, tally: Tally, faults: Mishaps, *, seed: int, truth: Truth | None) -> None:
        self.facts = facts
        self.pacer = pacer
        self._tally = tally
        self._faults = faults
        self._seed = seed
        self._truth = truth

    async def answer(self, request: web.Request, face: Face) -> web.StreamResponse:
        """Answer a request of one of the two faces."""
        body = await request.read()
        log = Log(request_id=request.headers.get("X-Request-Id") or token_hex(8), arrived_ns=time.monotonic_ns())
        faults = self._faults.of_next()
        log.fault = mishaps.name(faults)
        try:
            placed = order(
                body,
                face=face,
                content_type=request.content_type,
                request_id=log.request_id,
                facts=self.facts,
                seed=self._seed,
                company=self.pacer.company,
            )
            log.prompt_tokens = placed.exchange.prompt_tokens
            if mishaps.overtaxed(self.facts.arm, placed.exchange.wanted.prompt_logprobs):
                faults = (*faults, Crash(after_tokens=0))
            if declining := mishaps.busy(faults):
                raise refusal.busy(status=declining.status, retry_after_s=declining.retry_after_s)
            self._check_queue()
            delivery = Delivery(request, placed, log, faults, mishaps=self._faults, pacer=self.pacer, tally=self._tally)
            return await (delivery.stream() if placed.exchange.wanted.stream else delivery.whole())
        except RefusedError as error:
            log.end = log.end or "refused"
            return refused(request, error)
        except (asyncio.CancelledError, ConnectionError):
            log.end = "left" if log.fault is None else "broken"
            raise
        finally:
            log.ended_ns = time.monotonic_ns()
            if self._truth is not None:
                self._truth.add(log)
                asyncio.get_running_loop().call_soon(self._write_truth)

    def _check_queue(self) -> None:
        # vLLM counts its queue before it begins to answer; what slips past is refused inside the stream.
        most = self.facts.arm.server.max_waiting
        if most is not None and self.pacer.gauges().waiting >= most:
            self._tally.rejections += 1
            raise refusal.busy()

    def _write_truth(self) -> None:
        # One a turn of the loop: many answers may end with the same step, and the streams that go on must not wait for them all.
        if self._truth is not None and self._truth.write_one():
            asyncio.get_running_loop().call_soon(self._write_truth)


def application(service: Service, metrics: CollectorRegistry, *, api_key: str | None = None) -> web.Application:
    """Return the web application of one arm."""
    routes = _Routes(service, metrics)
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[HttpMetrics(metrics).count, _guard(api_key), _errors])
    app.add_routes(
        [
            web.post("/v1/chat/completions", routes.chat),
            web.post("/v1/completions", routes.completions),
            web.get("/v1/models", routes.models),
            web.post("/tokenize", routes.tokenize),
            web.get("/version", routes.version),
            web.get("/health", routes.health),
            web.get("/ping", routes.health),
            web.get("/metrics", routes.metrics),
            web.get("/server_info", routes.server_info),
            web.post("/reset_prefix_cache", routes.reset_prefix_cache),
        ]
    )
    return app


class _Routes:
    def __init__(self, service: Service, metrics: CollectorRegistry) -> None:
        self._service = service
        self._facts = service.facts
        self._metrics = metrics

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._service.answer(request, "chat")

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._service.answer(request, "completions")

    async def models(self, request: web.Request) -> web.Response:
        return _json(request, self._facts.models())

    async def version(self, request: web.Request) -> web.Response:
        # The one thing vLLM does not say: that nothing here was measured on a GPU.
        arm = self._facts.arm
        return _json(request, {"version": self._facts.version, "emulated": f"{arm.profile}/{arm.name}"})

    async def server_info(self, request: web.Request) -> web.Response:
        return _json(request, self._facts.server_info())

    async def health(self, request: web.Request) -> web.Response:
        return web.Response(headers=headers(request, JSON))

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics), headers=headers(request, CONTENT_TYPE_LATEST))

    async def tokenize(self, request: web.Request) -> web.Response:
        fields = parsed(await request.read())
        if "messages" in fields:
            asked = Wanted(face="chat", model=None, messages=objects(fields, "messages"), tools=objects(fields, "tools"))
        elif isinstance(prompt := fields.get("prompt"), str):
            asked = Wanted(face="completions", model=None, prompt=prompt)
        else:
            raise refusal.unreadable("missing", "Field required", where="body.prompt", value=fields)
        ids = token_ids(asked)
        answer = {"count": len(ids), "max_model_len": self._facts.arm.server.max_model_len, "tokens": ids, "token_strs": None}
        return _json(request, answer)

    async def reset_prefix_cache(self, request: web.Request) -> web.Response:
        # vLLM answers 200 even where calls are running and nothing was reset.
        self._service.pacer.reset_prefix_cache()
        return web.Response(headers=headers(request, JSON))


def _json(request: web.Request, value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), headers=headers(request, JSON))


def _guard(api_key: str | None) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        # vLLM guards the API and leaves /health, /metrics and /version open.
        if api_key is not None and request.path.startswith("/v1") and request.headers.get("Authorization") != f"Bearer {api_key}":
            return web.Response(status=401, body=b'{"error":"Unauthorized"}', headers=headers(request, JSON))
        return await handler(request)

    return guard


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except RefusedError as error:
        return refused(request, error)
    except web.HTTPException as error:
        return refused(request, refusal.plain(error.status))
