"""Deliver one answer, whole or as a stream, as far as faults let it."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import Final, assert_never

from aiohttp import HttpVersion11, web

from agentload.emulator.calls import Rejected, Request
from agentload.emulator.faults import Crash, Cut, InBand, OfRequest, Stall
from agentload.serve import refusal
from agentload.serve.heads import EVENTS, JSON, headers
from agentload.serve.mishaps import Breaking, Mishaps, breaking, byte_s
from agentload.serve.orders import Order
from agentload.serve.pacing import Flight, Pacer
from agentload.serve.refusal import RefusedError
from agentload.serve.stream import Outlet, Stream, taken
from agentload.serve.tally import Tally
from agentload.serve.trickle import Trickle
from agentload.serve.truth import Log
from agentload.serve.wire import DONE

_NUMBERS: Final = count(1)


class BrokenError(Exception):
    """Tell that a fault has closed the connection under an answer."""


class Delivery:
    """Bring one order's answer to its client."""

    def __init__(
        self, request: web.Request, order: Order, log: Log, faults: tuple[OfRequest, ...], *, mishaps: Mishaps, pacer: Pacer, tally: Tally
    ) -> None:
        transport = request.transport
        if not isinstance(transport, asyncio.WriteTransport):
            raise ConnectionResetError("the client has left")
        slow = byte_s(faults)
        self._request = request
        self._transport = transport
        self._outlet: Outlet = transport if slow is None else Trickle(transport, byte_s=slow)
        self._order = order
        self._log = log
        self._breaking = breaking(faults, tokens=order.tokens)
        self._mishaps = mishaps
        self._pacer = pacer
        self._tally = tally
        # Two requests may carry the same id; the engine must not take one for the other.
        self._id = f"{log.request_id}#{next(_NUMBERS)}" if pacer.has(log.request_id) else log.request_id

    async def stream(self) -> web.StreamResponse:
        """Stream the answer; a refusal that comes after the head travels inside the stream."""
        response = web.StreamResponse(headers=headers(self._request, EVENTS))
        await response.prepare(self._request)
        is_chunked = self._request.version >= HttpVersion11
        stream = Stream(self._order.speaker, self._outlet, self._log, tokens=self._order.tokens, is_chunked=is_chunked)
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
            await stream.tell(error.refusal.event(), DONE)
        except BrokenError:
            return response
        finally:
            self._pacer.abort(self._id)
        await response.write_eof()
        return response

    async def whole(self) -> web.StreamResponse:
        """Send the answer in one piece; faults that meet a stream on its way meet this before its first byte."""
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
        await taken(self._outlet)
        await response.write_eof()
        return response

    def _submit(self, stream: Stream | None) -> Flight:
        log = self._log
        flight = self._pacer.submit(Request(self._id, self._order.content, self._order.tokens), arrived_ns=log.arrived_ns, stream=stream)
        log.submitted_ns = self._pacer.wall_ns(flight.submitted_ns)
        return flight

    async def _landed(self, flight: Flight) -> None:
        """Wait until the engine is done with the request, and count it."""
        end = await flight.end
        if end is None:
            raise RefusedError(refusal.internal())
        if isinstance(end, Rejected):
            self._tally.rejections += 1
            raise RefusedError(refusal.busy())
        log, script = self._log, self._order.exchange.script
        log.cached_tokens = end.cached_tokens
        log.output_tokens = self._order.tokens
        log.end = "done"
        self._tally.finished(end, submitted_ns=flight.submitted_ns, reason=script.finish, max_tokens=self._order.tokens)

    async def _suffer(self, fault: Breaking) -> None:
        """Let a fault have its way; return when the answer may go on."""
        match fault:
            case Cut():
                self._log.end = "broken"
                self._transport.close()
                raise BrokenError
            case InBand():
                raise RefusedError(refusal.internal(fault.message))
            case Stall():
                await self._mishaps.stall(fault)
            case Crash():
                self._mishaps.die(fault.down_s)
                # The connection breaks, and this with it.
                await asyncio.Event().wait()
            case _:
                assert_never(fault)

    def _note(self, error: RefusedError) -> None:
        self._log.end = "broken" if error.refusal.status == refusal.internal().status else "refused"
