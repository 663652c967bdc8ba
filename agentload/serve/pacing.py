"""Play the engine's virtual time against the monotonic clock.

The pacer sleeps until a step ends, then sends all tokens that the step emitted.
"""

import asyncio
import time
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from agentload.emulator.calls import EngineRequest, Finished, FirstToken, Gauges, Rejected
from agentload.emulator.engine import Engine
from agentload.live.alarm import Waker
from agentload.model.record import Record
from agentload.serve.stream import Stream


class Flight(Record):
    """Hold one request that the engine has."""

    submitted_ns: int
    """When the request was submitted, on the engine's clock."""
    end: asyncio.Future[Finished | Rejected | None]
    """Set when the request's last step is over, after every token was offered to the stream.

    A result of None means that the engine died with the request.
    """
    stream: Stream | None


class Pacer:
    """Own the engine and its clock; everything runs on the event loop.

    Once the KV cache holds `most_tokens` tokens at a time, the
    engine runs out of memory and loses all its calls.
    """

    def __init__(
        self, engine: Engine, *, speed: float = 1.0, most_tokens: int | None = None
    ) -> None:
        self._engine = engine
        self._most_usage = None if most_tokens is None else most_tokens / engine.pool.tokens
        self._speed = speed
        self._start_ns = time.monotonic_ns()
        self._played_ns = 0
        self._flights: dict[str, Flight] = {}
        self._streams: dict[str, Stream] = {}
        """Streams of the flights whose first token has come."""
        self._steps = 0
        self._preemptions_at_rest = 0
        """Preemptions as of the last moment without a flight.

        While there are no more, all calls that decode emit in every step.
        """
        self._alarm = Waker(self._ring)

    def has(self, request_id: str) -> bool:
        """Tell whether a request with this id is in flight."""
        return request_id in self._flights

    def submit(
        self, request: EngineRequest, *, arrived_ns: int, stream: Stream | None = None
    ) -> Flight:
        """Give the engine a request as of its arrival, or as of now if it has advanced since.

        A stream is offered the tokens of every step; without one, only the end is reported.
        """
        self._play(arrived_ns)
        flight = Flight(
            submitted_ns=self._played_ns,
            end=asyncio.get_running_loop().create_future(),
            stream=stream,
        )
        self._flights[request.id] = flight
        self._engine.submit(request, self._played_ns)
        self._sleep()
        return flight

    def abort(self, request_id: str) -> None:
        """Take a request back; do nothing if it is over."""
        if self._flights.pop(request_id, None) is None:
            return
        self._streams.pop(request_id, None)
        self._play(time.monotonic_ns())
        self._engine.abort(request_id, self._played_ns)
        self._sleep()

    @property
    def company(self) -> int:
        """Number of requests being served."""
        return len(self._flights)

    def gauges(self) -> Gauges:
        """Return the engine's gauges as of now."""
        self._ring()
        return self._engine.gauges()

    def restart(self) -> None:
        """Restart the engine: its calls are lost, and whoever waits for one gets None."""
        self._engine.restart()
        flights, self._flights = self._flights, {}
        self._streams.clear()
        for flight in flights.values():
            if flight.stream is not None:
                flight.stream.give_up()
            if not flight.end.done():
                flight.end.set_result(None)
        self._sleep()

    def reset_prefix_cache(self) -> bool:
        """Empty the prefix cache unless calls are running; return whether this was done."""
        self._ring()
        return self._engine.reset_prefix_cache()

    def close(self) -> None:
        """Stop the clock."""
        self._alarm.close()

    def wall_ns(self, engine_ns: int) -> int:
        """Return the instant of the monotonic clock for an instant of the engine's clock."""
        return self._start_ns + round(engine_ns / self._speed)

    def _ring(self) -> None:
        self._play(time.monotonic_ns())
        self._sleep()

    def _sleep(self) -> None:
        # What the engine decides without taking time, such as a refusal,
        # waits to be fetched; `next_ns` then is that instant.
        instants = [
            at for at in (self._engine.next_step_ns(), self._engine.next_ns()) if at is not None
        ]
        if instants:
            self._alarm.set(self.wall_ns(min(instants)))

    def _play(self, until_ns: int) -> None:
        self._played_ns = max(self._played_ns, round((until_ns - self._start_ns) * self._speed))
        for happening in self._engine.advance(self._played_ns):
            flight = self._flights.get(happening.id)
            if flight is None:
                continue
            match happening:
                case FirstToken():
                    if flight.stream is not None:
                        flight.stream.start(happening.cached_tokens)
                        self._streams[happening.id] = flight.stream
                case Finished() | Rejected():
                    self._land(happening, flight)
                case _:
                    assert_never(happening)
        self._hand_out()

    def _hand_out(self) -> None:
        # Asking the engine for the emissions of each of 256 streams takes longer than sending
        # them. Without drafts and preemptions every decoding call emits one token a step: then
        # one stream is asked for, and the others get a token for each step.
        gauges = self._engine.gauges()
        steps, self._steps = gauges.steps - self._steps, gauges.steps
        if not self._flights:
            self._preemptions_at_rest = gauges.preemptions
        is_even = (
            self._engine.arm.speculation is None and gauges.preemptions == self._preemptions_at_rest
        )
        planned_ns: list[int] = []
        tokens = [1] * steps
        for request_id, stream in self._streams.items():
            if is_even and stream.emissions and len(planned_ns) == steps:
                stream.offer(planned_ns, tokens)
            else:
                planned_ns = self._offer(stream, *self._engine.emitted(request_id))
        if self._most_usage is not None and gauges.kv_usage >= self._most_usage:
            self.restart()

    def _land(self, end: Finished | Rejected, flight: Flight) -> None:
        del self._flights[end.id]
        self._streams.pop(end.id, None)
        if flight.stream is not None:
            if isinstance(end, Finished):
                self._offer(flight.stream, end.token_ns, end.token_counts)
            else:
                flight.stream.give_up()
        if not flight.end.done():
            flight.end.set_result(end)

    def _offer(
        self, stream: Stream, at_ns: NDArray[np.int64], tokens: NDArray[np.uint16]
    ) -> list[int]:
        """Offer a stream its new emissions; return their instants."""
        planned_ns = [self.wall_ns(at) for at in at_ns[stream.emissions :].tolist()]
        stream.offer(planned_ns, tokens[stream.emissions :].tolist())
        return planned_ns
