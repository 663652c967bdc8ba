"""Carry out what the dispatcher decides: render prompts early, then hand them to the wire.

A request's body is a list of pieces that were rendered before its instant, and that the
prompts of a session share: half a megabyte of prompt is neither decoded nor hashed again, and
copied once, on its way to the socket.
"""

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import field

from agentload.dispatch.answer import CallTerms
from agentload.dispatch.counting import Counting
from agentload.live.wire import Wire, WireFacts, WireRequest
from agentload.model.commands import Cancel, Forget, Halt, Outcome, Prepare, Send
from agentload.model.record import Record
from agentload.prompts.messages import JsonPiece
from agentload.prompts.renderer import Prompt, Renderer

Key: TypeAlias = tuple[str, str]
"""Arm and session."""
CONNECT_S: Final = 10.0
# a call that was just handed over needs the loop this long: to connect and to write
BREATH_S: Final = 0.003
CROWD: Final = 16  # when more prompts wait to be rendered, they no longer give way to calls
# Limit of the last prompts of sessions. Beyond, those rendered longest ago are dropped: what is
# due of them, or comes after them, is rendered again. Sessions share messages, so this is the most.
KEPT_BYTES: Final = 256 << 20


class Sampling(Record, gc=False):
    """Describe what a request asks for besides its prompt."""

    model: str
    max_tokens: int
    is_forced: bool = True
    """Whether the server must generate exactly `max_tokens`, whatever the model would do."""
    is_streamed: bool = True
    counting: Counting = "token_ids"
    temperature: float = 0.0
    seed: int | None = None
    extra: Mapping[str, object] = {}
    """Further fields of the body; they override ours."""


def chat(prompt: Prompt, *, sampling: Sampling) -> list[bytes]:
    """Return the pieces of a chat completion's body."""
    body = [_options(sampling)]
    if prompt.written:
        body += (b',"tools":[', *_listed(prompt.written), b"]")
    return [*body, b',"messages":[', *_listed(prompt.spoken), b"]}"]


def _listed(pieces: Sequence[JsonPiece]) -> list[bytes]:
    """Return the JSON of all pieces, with a comma between each two."""
    parts = [b","] * (2 * len(pieces) - 1)
    parts[::2] = [piece.json for piece in pieces]
    return parts


def _options(sampling: Sampling) -> bytes:
    fields: dict[str, object] = {
        "model": sampling.model,
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
    }
    if sampling.is_forced:
        # Both: `ignore_eos` keeps the end token out of play, `min_tokens` keeps stop strings out.
        fields |= {"ignore_eos": True, "min_tokens": sampling.max_tokens}
    if sampling.seed is not None:
        fields["seed"] = sampling.seed
    if sampling.is_streamed:
        usage = {"include_usage": True}
        if sampling.counting == "running_usage":
            usage["continuous_usage_stats"] = True
        fields |= {"stream": True, "stream_options": usage}
    if sampling.counting == "token_ids":
        fields["return_token_ids"] = True
    return msgspec.json.encode(fields | dict(sampling.extra))[:-1]


class RequestStyle(Record):
    """Describe how requests to one arm are written."""

    model: str
    aliases: Mapping[str, str] = field(default_factory=dict)
    extra: Mapping[str, object] = field(default_factory=dict)
    with_tools: Mapping[str, object] = field(default_factory=dict)
    """Further fields of bodies that have tools."""
    counting: Counting = "token_ids"
    is_forced: bool = True
    """Whether to force the trace's output lengths (`ignore_eos`).

    A server that does not know `ignore_eos` answers as long as it likes.
    """


class _Last(NamedTuple):
    """The last prompt of a session, and the call that it was rendered for."""

    request_id: str
    turn: int
    prompt: Prompt


class PromptCaller:
    """Build requests from contexts and send them over the wire."""

    def __init__(
        self, wire: Wire, speech: Mapping[str, RequestStyle], renderer: Renderer, *, seed: int
    ) -> None:
        self._wire = wire
        self._speech = speech
        self._renderer = renderer
        self._seed = seed
        self._last: OrderedDict[Key, _Last] = OrderedDict()
        self._last_bytes = 0
        self._orders: OrderedDict[Key, list[Prepare]] = OrderedDict()
        """Prompts to render by session; one is still due while the next is ordered."""
        self._ordered = asyncio.Event()
        self._handed_s = 0.0
        self._cancelled: dict[str, Halt] = {}

    @property
    def lead_ns(self) -> int:
        """How long before its instant a call should come, to leave in time."""
        return self._wire.lead_ns

    def prepare(self, command: Prepare) -> None:
        """Have a prompt rendered soon, after the calls that are due.

        `render_ordered` must be running.
        """
        self._orders.setdefault((command.arm, command.call.session), []).append(command)
        self._ordered.set()

    async def call(self, send: Send, streamed: Callable[[int], None]) -> tuple[Outcome, str | None]:
        """Send a call and follow it to its end; return its outcome and its prompt's hash."""
        self._handed_s = asyncio.get_running_loop().time()
        key = send.arm, send.call.session
        if (orders := self._orders.pop(key, None)) is not None:
            # The call may have come before its prompt was rendered.
            self._order_on(key, [each for each in orders if each.request_id != send.request_id])
        if (why := self._cancelled.pop(send.request_id, None)) is not None:
            return Outcome(status=why), None  # cancelled before the first byte was sent
        prompt = self._prompt(send)
        speech = self._speech[send.arm]
        call = send.call
        sampling = Sampling(
            model=speech.aliases.get(call.model, speech.model) if call.model else speech.model,
            max_tokens=call.output,
            is_forced=speech.is_forced,
            counting=speech.counting,
            seed=self._seed,
            extra={
                **(speech.with_tools if prompt.written else {}),
                **{name: msgspec.Raw(text.encode()) for name, text in call.asks},
                **speech.extra,
            },
        )
        request = WireRequest(
            request_id=send.request_id,
            arm=send.arm,
            session=call.session,
            body=chat(prompt, sampling=sampling),
            model=sampling.model,
            released_ns=send.released_ns,
            limits=send.limits,
            asked=CallTerms(
                tokens=call.output, is_forced=speech.is_forced, wants_reply=call.wants_reply
            ),
            on_tokens=streamed if send.watch is not None else None,
        )
        try:
            return await self._wire.call(request), prompt.hash
        finally:
            self._cancelled.pop(send.request_id, None)

    def cancel(self, command: Cancel) -> None:
        """Close a call's connection, or stop a call that has not been sent yet."""
        self._cancelled[command.request_id] = command.why
        self._wire.cancel(command.request_id, command.why)

    def forget(self, command: Forget) -> None:
        """Drop everything kept for a session whose play is over."""
        key = command.arm, command.session
        self._orders.pop(key, None)
        if (last := self._last.pop(key, None)) is not None:
            self._last_bytes -= last.prompt.size
        self._wire.forget(command.arm, command.session)

    def facts(self) -> WireFacts:
        """Return what went wrong with stamps and clocks so far."""
        return self._wire.facts()

    async def render_ordered(self) -> None:
        """Render the prompts ordered by `prepare`, one at a time, until cancelled.

        Connections for them are opened at the same time.
        """
        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._ordered.wait()
                self._ordered.clear()
                while self._orders:
                    await self._let_calls_go()
                    if not self._orders:  # all were taken while this waited
                        break
                    key, (order, *others) = self._orders.popitem(last=False)
                    self._order_on(key, others)
                    self._prompt(order)
                    if order.call.turn == 0 and order.connects:
                        tasks.create_task(self._connect(order))

    def _order_on(self, key: Key, orders: list[Prepare]) -> None:
        if orders:
            self._orders[key] = orders

    async def _let_calls_go(self) -> None:
        """Wait until the call handed over last has been sent.

        Rendering a long prompt blocks the loop for milliseconds.
        """
        if self._breath_s() <= 0:
            await asyncio.sleep(0)
        if (left_s := self._breath_s()) > 0 and len(self._orders) < CROWD:
            await asyncio.sleep(left_s)

    def _breath_s(self) -> float:
        return self._handed_s + BREATH_S - asyncio.get_running_loop().time()

    async def _connect(self, order: Prepare) -> None:
        # The call itself will find out that the server cannot be reached
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await self._wire.ready(order.arm, order.call.session)

    def _prompt(self, asked: Prepare | Send) -> Prompt:
        """Return a call's prompt, rendered now unless it is there already."""
        key = asked.arm, asked.call.session
        last = self._last.get(key)
        if last is not None and last.request_id == asked.request_id:
            return last.prompt
        before = None if last is None else last.prompt
        prompt = self._renderer.render(asked.call.context, salt=asked.salt, after=before)
        # A call that is sent again leaves the next one its prompt.
        if last is None or asked.call.turn >= last.turn:
            self._keep(key, _Last(asked.request_id, asked.call.turn, prompt))
        return prompt

    def _keep(self, key: Key, last: _Last) -> None:
        if (before := self._last.pop(key, None)) is not None:
            self._last_bytes -= before.prompt.size
        self._last[key] = last
        self._last_bytes += last.prompt.size
        while self._last_bytes > KEPT_BYTES and len(self._last) > 1:
            _, dropped = self._last.popitem(last=False)
            self._last_bytes -= dropped.prompt.size
