"""Serve one request from its bytes to its last byte: read it, refuse or deliver, note the truth."""

from __future__ import annotations

import asyncio
import time
from secrets import token_hex

from aiohttp import web

from agentload.serve import mishaps, refusal
from agentload.serve.delivery import Delivery
from agentload.serve.facts import Facts
from agentload.serve.heads import refused
from agentload.serve.mishaps import Mishaps
from agentload.serve.orders import order
from agentload.serve.pacing import Pacer
from agentload.serve.refusal import RefusedError
from agentload.serve.tally import Tally
from agentload.serve.truth import Log, Truth
from agentload.serve.wanted import Face


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
            placed = order(body, face=face, content_type=request.content_type, request_id=log.request_id, facts=self.facts, seed=self._seed)
            log.prompt_tokens = placed.exchange.prompt_tokens
            if declining := mishaps.busy(faults):
                raise RefusedError(refusal.busy(status=declining.status, retry_after_s=declining.retry_after_s))
            self._check_queue()
            delivery = Delivery(request, placed, log, faults, mishaps=self._faults, pacer=self.pacer, tally=self._tally)
            return await (delivery.stream() if placed.exchange.wanted.stream else delivery.whole())
        except RefusedError as error:
            log.end = log.end or "refused"
            return refused(request, error.refusal)
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
            raise RefusedError(refusal.busy())

    def _write_truth(self) -> None:
        # One a turn of the loop: many answers may end with the same step, and the streams that go on must not wait for them all.
        if self._truth is not None and self._truth.write_one():
            asyncio.get_running_loop().call_soon(self._write_truth)
