"""Turn a request's bytes into an order for the engine, and deliver the answer.

The answer goes out whole or as a stream, as far as faults let it.
"""

import asyncio
import time
from itertools import count
from typing import Final, assert_never

from aiohttp import HttpVersion11, web

from agentload.emulator.calls import EngineRequest, Rejected
from agentload.emulator.faults import Crash, Cut, InBand, OfRequest, Stall
from agentload.model.record import Record
from agentload.serve import refusal, wanted
from agentload.serve.faces import DONE, ChatFace, CompletionsFace, ServedRequest
from agentload.serve.faces import Face as Speaker
from agentload.serve.facts import Facts
from agentload.serve.metrics import RequestTally
from agentload.serve.mishaps import Breaking, Mishaps, breaking, byte_s
from agentload.serve.pacing import Flight, Pacer
from agentload.serve.refusal import EVENTS, JSON, RefusedError, headers
from agentload.serve.script import prompt_listed, script
from agentload.serve.stream import Log, Outlet, Stream, drain
from agentload.serve.wanted import Face, Runs, content, token_ids

_PREFIX: Final[dict[Face, str]] = {"chat": "chatcmpl", "completions": "cmpl"}
_NUMBERS: Final = count(1)
# The event loop cannot sleep shorter; where bytes are due more often, several leave together.
_TICK_S = 0.001


class Order(Record):
    """Hold a request that can be served."""

    exchange: ServedRequest
    speaker: Speaker
    content: Runs

    @property
    def tokens(self) -> int:
        """Number of tokens that will be generated."""
        return len(self.exchange.script.pieces)


def order(
    body: bytes,
    *,
    face: Face,
    content_type: str,
    request_id: str,
    facts: Facts,
    seed: int,
    company: int = 0,
) -> Order:
    """Read a request and decide its answer; raise RefusedError if it cannot be served."""
    if content_type != "application/json":
        raise refusal.unsupported_media()
    server = facts.arm.server
    most = facts.arm.logprobs.most
    asked = (wanted.chat if face == "chat" else wanted.completion)(
        body, max_model_len=server.max_model_len, max_logprobs=most
    )
    if asked.model is not None and asked.model != facts.model:
        raise refusal.unknown_model(asked.model, served=(facts.model,))
    prompt = content(asked, block=facts.pool.layout.block_tokens)
    if not prompt.tokens:
        raise refusal.empty_prompt()
    output = asked.max_tokens or 0
    if no := refusal.too_long(
        prompt_tokens=prompt.tokens, output_tokens=output, max_model_len=server.max_model_len
    ):
        raise no
    if prompt.tokens == server.max_model_len:
        raise refusal.bad_parameter(
            "max_tokens must be at least 1, got 0.", param="max_tokens", value=0
        )
    exchange = ServedRequest(
        id=f"{_PREFIX[face]}-{request_id}",
        created=int(time.time()),
        model=asked.model or facts.model,
        fingerprint=facts.fingerprint,
        wanted=asked,
        script=script(
            asked, arm=facts.arm, prompt_tokens=prompt.tokens, seed=seed, company=company
        ),
        prompt_tokens=prompt.tokens,
        prompt_ids=tuple(token_ids(asked)) if asked.token_ids else None,
        prompt_logprobs=prompt_listed(asked, arm=facts.arm, seed=seed, company=company),
    )
    runs = prompt.runs
    # vLLM computes the whole prompt whose tokens it scores, even what is cached of it, so
    # another identity keeps the prefix cache from finding it.
    if asked.prompt_logprobs is not None:
        runs = ((f"{request_id}\0{runs[0][0]}", runs[0][1]), *runs[1:])
    return Order(
        exchange=exchange,
        speaker=ChatFace(exchange) if face == "chat" else CompletionsFace(exchange),
        content=runs,
    )


class BrokenError(Exception):
    """A fault has closed the connection before the answer was complete."""


class Delivery:
    """Send the answer to one order to its client."""

    def __init__(
        self,
        request: web.Request,
        order: Order,
        log: Log,
        faults: tuple[OfRequest, ...],
        *,
        mishaps: Mishaps,
        pacer: Pacer,
        tally: RequestTally,
    ) -> None:
        transport = request.transport
        if not isinstance(transport, asyncio.WriteTransport):
            raise ConnectionResetError("the client has left")
        slow = byte_s(faults)
        self._request = request
        self._transport = transport
        self._outlet: Outlet = transport if slow is None else TrickledBody(transport, byte_s=slow)
        self._order = order
        self._log = log
        self._breaking = breaking(faults, tokens=order.tokens)
        self._mishaps = mishaps
        self._pacer = pacer
        self._tally = tally
        # Two requests may carry the same id; the engine must not take one for the other.
        self._id = (
            f"{log.request_id}#{next(_NUMBERS)}" if pacer.has(log.request_id) else log.request_id
        )

    async def stream(self) -> web.StreamResponse:
        """Stream the answer; a refusal after the head is sent travels inside the stream."""
        response = web.StreamResponse(headers=headers(self._request, EVENTS))
        await response.prepare(self._request)
        is_chunked = self._request.version >= HttpVersion11
        stream = Stream(
            self._order.speaker,
            self._outlet,
            self._log,
            tokens=self._order.tokens,
            is_chunked=is_chunked,
        )
        if self._breaking:
            stream.hold(self._breaking[0].after_tokens)
        flight = self._submit(stream)
        try:
            for fault in self._breaking:
                if await stream.reach(fault.after_tokens):
                    await self._suffer(fault)
            await self._landed(flight)
            await stream.finish()
        except RefusedError as error:
            self._note(error)
            await stream.tell(error.event(), DONE)
        except BrokenError:
            return response
        finally:
            self._pacer.abort(self._id)
        await response.write_eof()
        return response

    async def whole(self) -> web.StreamResponse:
        """Send the answer in one piece.

        Faults that would strike within a stream strike before the first byte of this answer.
        """
        flight = self._submit(None)
        try:
            await self._landed(flight)
            for fault in self._breaking:
                await self._suffer(fault)
        except RefusedError as error:
            self._note(error)
            raise
        except BrokenError:
            return web.Response()
        finally:
            self._pacer.abort(self._id)
        body = self._order.speaker.whole(self._log.cached_tokens or 0)
        head = headers(self._request, JSON)
        if self._outlet is self._transport:
            return web.Response(body=body, headers=head)
        response = web.StreamResponse(headers={**head, "content-length": str(len(body))})
        await response.prepare(self._request)
        self._outlet.write(body)
        await drain(self._outlet)
        await response.write_eof()
        return response

    def _submit(self, stream: Stream | None) -> Flight:
        log = self._log
        flight = self._pacer.submit(
            EngineRequest(self._id, self._order.content, self._order.tokens),
            arrived_ns=log.arrived_ns,
            stream=stream,
        )
        log.submitted_ns = self._pacer.wall_ns(flight.submitted_ns)
        return flight

    async def _landed(self, flight: Flight) -> None:
        """Wait until the engine is done with the request, and count it."""
        end = await flight.end
        if end is None:
            raise refusal.internal()
        if isinstance(end, Rejected):
            self._tally.rejections += 1
            raise refusal.busy()
        log, script = self._log, self._order.exchange.script
        log.cached_tokens = end.cached_tokens
        log.output_tokens = self._order.tokens
        log.end = "done"
        self._tally.finished(
            end,
            submitted_ns=flight.submitted_ns,
            reason=script.finish,
            max_tokens=self._order.tokens,
        )

    async def _suffer(self, fault: Breaking) -> None:
        """Carry out a fault; return if the answer may continue after it."""
        match fault:
            case Cut():
                self._log.end = "broken"
                self._transport.close()
                raise BrokenError
            case InBand():
                raise refusal.internal(fault.message)
            case Stall():
                await self._mishaps.stall(fault)
            case Crash():
                self._mishaps.die(fault.down_s)
                # The crash breaks the connection, which cancels this wait.
                await asyncio.Event().wait()
            case _:
                assert_never(fault)

    def _note(self, error: RefusedError) -> None:
        self._log.end = "broken" if error.status == refusal.internal().status else "refused"


class TrickledBody:
    """Slow a stream down: take its bytes and pass them to the transport one by one."""

    def __init__(self, transport: Outlet, *, byte_s: float) -> None:
        self._transport = transport
        self._byte_s = byte_s
        self._waiting = bytearray()
        self._loop = asyncio.get_running_loop()
        self._due_s = 0.0
        """When the next byte may leave, in the loop's time."""

    def write(self, data: bytes, /) -> None:
        """Queue bytes to be sent slowly."""
        if not self._waiting:
            self._due_s = self._loop.time() + self._byte_s
            self._loop.call_at(self._due_s, self._drip)
        self._waiting += data

    def get_write_buffer_size(self) -> int:
        """Return how many bytes have not left yet."""
        return len(self._waiting) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Tell whether the reader is gone."""
        return self._transport.is_closing()

    def _drip(self) -> None:
        if self._transport.is_closing():
            self._waiting.clear()
            return
        late_s = max(0.0, self._loop.time() - self._due_s)
        count = 1 + int(late_s / self._byte_s) if self._byte_s else len(self._waiting)
        self._transport.write(bytes(self._waiting[:count]))
        del self._waiting[:count]
        if self._waiting:
            self._due_s += count * self._byte_s
            self._loop.call_at(max(self._due_s, self._loop.time() + _TICK_S), self._drip)
