"""Serve one request from its bytes to its last byte: read it, refuse it or submit it, stream the answer, note the truth."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from email.utils import formatdate
from secrets import token_hex
from typing import Final

from aiohttp import HttpVersion11, web

from agentload.emulator.calls import Finished, Rejected, Request
from agentload.serve import refusal, wanted, wire
from agentload.serve.chat_face import ChatFace
from agentload.serve.completions_face import CompletionsFace
from agentload.serve.content import Content, content, token_ids
from agentload.serve.exchange import Exchange
from agentload.serve.facts import Facts
from agentload.serve.pacing import Flight, Pacer
from agentload.serve.refusal import Refusal, RefusedError
from agentload.serve.scripting import script
from agentload.serve.stream import Stream
from agentload.serve.tally import Tally
from agentload.serve.truth import Log, Truth
from agentload.serve.wanted import Face, Wanted

_PREFIX: Final[dict[Face, str]] = {"chat": "chatcmpl", "completions": "cmpl"}
_JSON: Final = "application/json"
_EVENTS: Final = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Hold a request that is accepted, before the engine has it."""

    exchange: Exchange
    face: wire.Face
    request: Request
    log: Log


class Service:
    """Serve the requests of one arm."""

    def __init__(self, facts: Facts, pacer: Pacer, tally: Tally, *, seed: int = 0, truth: Truth | None = None) -> None:
        self.facts = facts
        self.pacer = pacer
        self.tally = tally
        self._seed = seed
        self._truth = truth
        self._block = facts.pool.layout.block_tokens

    async def answer(self, request: web.Request, face: Face) -> web.StreamResponse:
        """Answer a request of one of the two faces."""
        body = await request.read()
        log = Log(request_id=request.headers.get("X-Request-Id") or token_hex(8), id="", arrived_ns=time.monotonic_ns())
        try:
            order = self._order(request, body, face, log)
            if order.exchange.wanted.stream:
                return await self._stream(request, order)
            return await self._whole(request, order)
        except RefusedError as error:
            log.end = "refused"
            return refused(request, error.refusal)
        except asyncio.CancelledError:
            log.end = "left"
            self.pacer.abort(log.id)
            raise
        finally:
            log.ended_ns = time.monotonic_ns()
            if self._truth is not None:
                self._truth.add(log)
                asyncio.get_running_loop().call_soon(self._write_truth)

    def _order(self, request: web.Request, body: bytes, face: Face, log: Log) -> Order:
        if request.content_type != _JSON:
            raise RefusedError(refusal.unsupported_media())
        limit = self.facts.arm.server.max_model_len
        asked = (wanted.chat if face == "chat" else wanted.completion)(body, max_model_len=limit)
        if asked.model is not None and asked.model != self.facts.model:
            raise RefusedError(refusal.unknown_model(asked.model, served=(self.facts.model,)))
        prompt = content(asked, block=self._block)
        if not prompt.tokens:
            raise RefusedError(refusal.empty_prompt())
        if no := refusal.too_long(prompt_tokens=prompt.tokens, output_tokens=asked.max_tokens or 0, max_model_len=limit):
            raise RefusedError(no)
        self._check_queue()
        log.id = f"{_PREFIX[face]}-{log.request_id}"
        log.prompt_tokens = prompt.tokens
        exchange = self._exchange(asked, prompt, log)
        speaker = ChatFace(exchange) if face == "chat" else CompletionsFace(exchange)
        tokens = len(exchange.script.pieces)
        return Order(exchange=exchange, face=speaker, request=Request(log.id, prompt.runs, tokens), log=log)

    def _exchange(self, asked: Wanted, prompt: Content, log: Log) -> Exchange:
        room = self.facts.arm.server.max_model_len - prompt.tokens
        return Exchange(
            id=log.id,
            created=int(time.time()),
            model=asked.model or self.facts.model,
            fingerprint=self.facts.fingerprint,
            wanted=asked,
            script=script(asked, prompt, seed=self._seed, limit=min(asked.max_tokens or room, room)),
            prompt_tokens=prompt.tokens,
            prompt_ids=tuple(token_ids(asked)) if asked.token_ids else None,
        )

    def _check_queue(self) -> None:
        # vLLM counts its queue before it begins to answer; what slips past is refused inside the stream.
        most = self.facts.arm.server.max_waiting
        if most is not None and self.pacer.gauges().waiting >= most:
            self.tally.rejections += 1
            raise RefusedError(refusal.busy())

    async def _whole(self, request: web.Request, order: Order) -> web.Response:
        end = await self._landed(order, self.pacer.submit(order.request, arrived_ns=order.log.arrived_ns))
        if isinstance(end, Rejected):
            raise RefusedError(refusal.busy())
        order.log.end = "done"
        return web.Response(body=order.face.whole(end.cached_tokens), headers=headers(request, _JSON))

    async def _stream(self, request: web.Request, order: Order) -> web.StreamResponse:
        response = web.StreamResponse(headers=headers(request, _EVENTS))
        await response.prepare(request)
        transport = request.transport
        assert isinstance(transport, asyncio.WriteTransport)
        is_chunked = request.version >= HttpVersion11
        stream = Stream(order.face, transport, order.log, tokens=order.request.output_tokens, is_chunked=is_chunked)
        end = await self._landed(order, self.pacer.submit(order.request, arrived_ns=order.log.arrived_ns, stream=stream))
        if isinstance(end, Rejected):
            await response.write(refusal.busy().event())
            await response.write(wire.DONE)
        else:
            await stream.finish()
            order.log.end = "done"
        await response.write_eof()
        return response

    def _write_truth(self) -> None:
        # One a turn of the loop: many answers may end with the same step, and the streams that go on must not wait for them all.
        if self._truth is not None and self._truth.write_one():
            asyncio.get_running_loop().call_soon(self._write_truth)

    async def _landed(self, order: Order, flight: Flight) -> Finished | Rejected:
        log = order.log
        log.submitted_ns = self.pacer.wall_ns(flight.submitted_ns)
        end = await flight.end
        if isinstance(end, Rejected):
            log.end = "refused"
            self.tally.rejections += 1
            return end
        log.cached_tokens = end.cached_tokens
        log.output_tokens = int(end.token_counts.sum())
        reason = order.exchange.script.finish
        self.tally.finished(end, submitted_ns=flight.submitted_ns, reason=reason, max_tokens=log.output_tokens)
        return end


def headers(request: web.Request, content_type: str, *, more: dict[str, str] | None = None) -> dict[str, str]:
    """Return the headers of every answer, written and ordered as vLLM's web server does."""
    out = {"date": formatdate(usegmt=True), "server": "uvicorn", "content-type": content_type, "vary": "Origin", **(more or {})}
    if (request_id := request.headers.get("X-Request-Id")) is not None:
        out["x-request-id"] = request_id
    return out


def refused(request: web.Request, no: Refusal) -> web.Response:
    """Return the error answer of a refusal."""
    more = None if no.retry_after_s is None else {"retry-after": f"{no.retry_after_s:g}"}
    return web.Response(status=no.status, body=no.body(), headers=headers(request, _JSON, more=more))
