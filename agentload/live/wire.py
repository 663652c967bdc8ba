"""Send one request, stamp its answer and return how it ended.

Everything that is measured goes through this transport.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Self
from urllib.parse import urljoin, urlsplit

from agentload.dispatch.answer import CallTerms, Parsed
from agentload.dispatch.call import CallMachine
from agentload.dispatch.fault import retry_after_ns
from agentload.dispatch.gateway import deed, shown_model
from agentload.live.alarm import Timetable
from agentload.live.channel import Link
from agentload.live.connections import Connections, UnreachableError
from agentload.live.exchange import SECOND, Exchange, Reception
from agentload.live.hub import ReadPath
from agentload.live.pump import Pump
from agentload.live.raw import RawLog
from agentload.live.reader import watcher
from agentload.live.stamps import StampClock, Vigil
from agentload.live.target import Target, head
from agentload.model.commands import Halt, Limits, Outcome, StampSource
from agentload.model.record import Record

BEAT_S: Final = 0.25  # between two looks at the wall clock and at idle connections
MAX_REDIRECTS: Final = 3
# An answer of this many bytes is judged in a thread: it would block the loop for over 20 ms.
LARGE: Final = 2 << 20
REPLICA_CHARS: Final = 128


class WireRequest(Record, gc=False):
    """Describe one call that is ready to be sent."""

    request_id: str
    arm: str
    session: str
    body: Sequence[bytes]
    """Pieces of the body, sent as they are."""
    released_ns: int
    """When the call is sent; if it is handed over earlier, it waits for that instant."""
    limits: Limits = Limits()
    asked: CallTerms = CallTerms()
    model: str = ""
    """Name by which the body asks for its model."""
    path: str = "/chat/completions"
    """Path under the arm's base URL."""
    on_tokens: Callable[[int], None] | None = None
    """Called with the tokens so far while the answer streams."""

    def __repr__(self) -> str:
        """Name the call without its body, which holds a prompt."""
        size = sum(map(len, self.body))
        return f"WireRequest({self.request_id} to {self.arm}{self.path}, a body of {size:,} bytes)"


class WireFacts(Record):
    """Count what went wrong with stamps and clocks."""

    unstamped_reads: int
    """Reads that the kernel should have stamped and did not; their calls say 'user'."""
    unstamped_sends: int
    """Requests whose departure the kernel should have stamped and did not.

    Their `sent_ns` is the end of our own write.
    """
    clock_steps: int
    """How often the wall clock was stepped; stamps around such a moment are off by the step."""
    largest_step_ns: int
    read_path: ReadPath = "interpreter"
    """Who reads the sockets."""

    @property
    def dropped_stamps(self) -> int:
        """Number of reads and requests that lack the kernel's stamp."""
        return self.unstamped_reads + self.unstamped_sends


class Wire:
    """Hold one process's connections to all arms; use as an asynchronous context manager."""

    def __init__(
        self,
        targets: Iterable[Target],
        *,
        clock: StampClock | None = None,
        raw: RawLog | None = None,
    ) -> None:
        self.clock = clock or StampClock()
        self._arms = {target.arm: Connections(target, clock=self.clock) for target in targets}
        self._halts: dict[str, Callable[[Halt], None]] = {}
        self._raw = raw
        self._unstamped_reads = 0
        self._unstamped_sends = 0
        self._pump = Pump()
        self._hub = watcher(beside=self._pump.turn)
        self._reception = Reception(clock=self.clock, hub=self._hub, pump=self._pump)
        self._judging = asyncio.Lock()
        self._timetable = Timetable()
        self._loop = asyncio.get_running_loop()
        self._vigil = Vigil()
        self._beat_timer = self._loop.call_later(BEAT_S, self._beat)

    async def __aenter__(self) -> Self:
        await self._vigil.begun()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    @property
    def lead_ns(self) -> int:
        """How long before its instant a call should come, to leave in time."""
        return self._hub.lead_ns

    async def call(self, request: WireRequest) -> Outcome:
        """Send a request and follow its answer to its end; a failure is an outcome too."""
        arm = self._arms[request.arm]
        asked = request.asked
        if asked.ends_with_mark != arm.ends_with_mark:
            asked = replace(asked, ends_with_mark=arm.ends_with_mark)
        machine = CallMachine(released_ns=request.released_ns, limits=request.limits, asked=asked)
        try:
            return await self._call(arm, request, machine)
        finally:
            self._halts.pop(request.request_id, None)

    def cancel(self, request_id: str, why: Halt = "cancelled") -> None:
        """Close the connection of a call in flight; its `call` then returns.

        A call that has ended stays as it is.
        """
        if (halt := self._halts.get(request_id)) is not None:
            halt(why)

    async def ready(self, arm: str, session: str) -> None:
        """Open a connection ahead of a call, if none is idle.

        If the server cannot be reached, the call itself will find out.
        """
        connections = self._arms[arm]
        if connections.is_ready(session):
            return
        with contextlib.suppress(UnreachableError):
            connections.hold(await connections.open(), session)

    def renew(self, targets: Iterable[Target]) -> None:
        """Use the keys of these targets from now on: some keys expire within a run."""
        for target in targets:
            arm = self._arms[target.arm]
            arm.target = replace(arm.target, api_key=target.api_key)

    def forget(self, arm: str, session: str) -> None:
        """Drop connections and cookies of a session whose play on an arm is over."""
        self._arms[arm].forget(session)

    def facts(self) -> WireFacts:
        """Return what went wrong with stamps and clocks so far."""
        self.clock.sample()  # a step just now has torn the stamps before it apart as well
        return WireFacts(
            unstamped_reads=self._unstamped_reads,
            unstamped_sends=self._unstamped_sends,
            clock_steps=self.clock.steps,
            largest_step_ns=self.clock.largest_step_ns,
            read_path=self._hub.path,
        )

    def close(self) -> None:
        """Close every idle connection and stop every call in flight."""
        self._beat_timer.cancel()
        for halt in list(self._halts.values()):
            halt("stopped")
        for connections in self._arms.values():
            connections.close()
        self._hub.close()
        self._pump.close()
        self._timetable.close()
        self._vigil.close()

    async def _call(self, arm: Connections, request: WireRequest, machine: CallMachine) -> Outcome:
        link = await self._link(arm, request, machine)
        if link is None:
            return machine.outcome(stamp_source="user")
        unstamped_before = link.unstamped_reads
        kept: list[tuple[int, bytes]] | None = None if self._raw is None else []
        # Keys may be renewed and cookies replaced before the answer ends;
        # the ones that were sent must be masked.
        target, cookies = arm.target, arm.cookie_secrets(request.session)
        exchange = await self._exchange_and_keep(arm, request, machine, link, kept)
        _name_replica(machine, link.peer, target, exchange)
        arm.take_cookies(request.session, exchange.answer.headers)
        unstamped = link.unstamped_reads - unstamped_before
        source: StampSource = "kernel" if link.is_stamped and not unstamped else "user"
        parsed, outcome = await self._judged(exchange, machine, source)
        if target.ends_with_mark is None and parsed is not None and parsed.has_end_mark:
            arm.ends_with_mark = True
        outcome = _with_headers(outcome, arm, request, exchange)
        self._count_stamps(link, unstamped, outcome)
        if self._raw is not None and kept is not None:
            self._raw.keep(target, request.request_id, outcome, kept, also=cookies)
        if outcome.error is None:
            return outcome
        return replace(outcome, error=target.masked(outcome.error, also=cookies))

    async def _exchange_and_keep(
        self,
        arm: Connections,
        request: WireRequest,
        machine: CallMachine,
        link: Link,
        kept: list[tuple[int, bytes]] | None,
    ) -> Exchange:
        """Exchange request and answer, then keep the link, or close it if no call may follow."""
        is_reusable = False
        try:
            exchange = await self._exchange(arm, request, machine, link, kept)
            is_reusable = exchange.is_reusable
        finally:
            if is_reusable:
                arm.keep(link, request.session)
            else:
                link.close()
        return exchange

    def _count_stamps(self, link: Link, unstamped_reads: int, outcome: Outcome) -> None:
        if link.is_stamped:
            self._unstamped_reads += unstamped_reads
            self._unstamped_sends += outcome.sent_ns is not None and not link.is_sent_stamped

    async def _link(
        self, arm: Connections, request: WireRequest, machine: CallMachine
    ) -> Link | None:
        if (link := arm.idle(request.session)) is not None:
            machine.opened(self.clock.now_ns(), is_new=False, replica=link.peer)
            return link
        deadline_ns = machine.deadline_ns()
        assert deadline_ns is not None
        halted: list[Halt] = []
        dialled_ns = self.clock.now_ns()
        try:
            async with asyncio.timeout_at(deadline_ns / SECOND) as limit:

                def halt(why: Halt) -> None:
                    halted.append(why)
                    limit.reschedule(self._loop.time())

                self._halts[request.request_id] = halt
                link = await arm.open()
        except UnreachableError as error:
            machine.failed(self.clock.now_ns(), "refused", str(error))
            return None
        except TimeoutError:
            if not halted:
                machine.expired(max(deadline_ns, self.clock.now_ns()))
                return None
        if halted:
            if link is not None:  # opened in the very turn of the loop in which the call was halted
                link.close()
            machine.cancel(self.clock.now_ns(), halted[0])
            return None
        assert link is not None
        machine.opened(self.clock.now_ns(), dialled_ns=dialled_ns, replica=link.peer)
        return link

    async def _exchange(
        self,
        arm: Connections,
        request: WireRequest,
        machine: CallMachine,
        link: Link,
        kept: list[tuple[int, bytes]] | None,
    ) -> Exchange:
        target = arm.target
        first = target.address.path + request.path
        length = sum(map(len, request.body))
        expects = target.expect_bytes is not None and length >= target.expect_bytes
        for _ in range(MAX_REDIRECTS + 1):
            path = arm.paths.get(first, first)
            exchange = Exchange(
                link,
                machine,
                self._reception,
                tokens=request.asked.tokens,
                on_tokens=request.on_tokens,
                kept=kept,
            )
            self._halts[request.request_id] = exchange.halt
            lines = head(
                target,
                path,
                request_id=request.request_id,
                session=request.session,
                length=length,
                cookies=arm.cookies(request.session),
                expects=expects,
            )
            # All is prepared by now, so that only the write is left for the call's instant.
            at_ns = request.released_ns
            is_ahead = at_ns > self.clock.now_ns() and not expects
            if not is_ahead or not exchange.starts_at(at_ns, lines, request.body):
                self._timetable.at(
                    at_ns, partial(exchange.start, lines, request.body, expects=expects)
                )
            try:
                await exchange.ended
            except asyncio.CancelledError:
                exchange.halt("stopped")
                exchange.release()
                raise
            onward = _redirected(target, path, exchange)
            if onward is not None:
                # Later calls go there directly; this call is timed from its second sending.
                arm.paths[first] = onward
            if onward is None or not exchange.is_reusable:
                break
            exchange.release()
        if not machine.has_ended:
            machine.closed(self.clock.now_ns())
        return exchange

    async def _judged(
        self, exchange: Exchange, machine: CallMachine, source: StampSource
    ) -> tuple[Parsed | None, Outcome]:
        def judged() -> tuple[Parsed | None, Outcome]:
            parsed = exchange.parsed()
            return parsed, machine.outcome(parsed, stamp_source=source)

        try:
            if exchange.held_bytes < LARGE:
                return judged()
            async with self._judging:  # one at a time, as the text is in memory twice meanwhile
                return await asyncio.to_thread(judged)
        finally:
            exchange.release()

    def _beat(self) -> None:
        self.clock.sample()
        for connections in self._arms.values():
            connections.sweep()
        self._beat_timer = self._loop.call_later(BEAT_S, self._beat)


def _with_headers(
    outcome: Outcome, arm: Connections, request: WireRequest, exchange: Exchange
) -> Outcome:
    """Add what the answer's headers say: a gateway's deed, and when to try a busy server again."""
    if (seen := _deed(arm, request, exchange)) is not None:
        outcome = replace(outcome, gateway=seen)
    if outcome.status == "busy":
        outcome = replace(outcome, retry_after_ns=retry_after_ns(exchange.answer.headers))
    return outcome


def _deed(arm: Connections, request: WireRequest, exchange: Exchange) -> str | None:
    """Return what something in between did to a call, by the answer's headers and model."""
    said = deed(exchange.answer.headers)
    transcript = exchange.answer.transcript
    model = None if transcript is None else transcript.model
    if model is None:
        return said
    replaced = arm.models.replaced(request.model, model)
    if said is not None or replaced is None:
        return said
    return arm.target.masked(f"fallback (model {shown_model(model)} in place of {replaced})")


def _redirected(target: Target, path: str, exchange: Exchange) -> str | None:
    if not exchange.answer.is_redirect:
        return None
    location = next((value for name, value in exchange.answer.headers if name == "location"), None)
    if location is None:
        return None
    there = target.address
    try:
        parts = urlsplit(urljoin(f"{there.scheme}://{there.authority}{path}", location))
    except ValueError:  # the location is no valid URL
        return None
    if (parts.scheme, parts.netloc) != (there.scheme, there.authority):
        return None
    return parts.path + (f"?{parts.query}" if parts.query else "")


def _name_replica(machine: CallMachine, peer: str, target: Target, exchange: Exchange) -> None:
    """Tell the machine which replica answered, where headers name it."""
    answer = exchange.answer
    if answer.status is None or not target.replica_headers:
        return
    wanted = {name.lower() for name in target.replica_headers}
    named = (f"{name}={value[:REPLICA_CHARS]}" for name, value in answer.headers if name in wanted)
    machine.head(answer.status, replica="; ".join([peer, *named]))
