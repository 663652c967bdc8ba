"""Run one server at a time: arms that share a GPU take turns.

Each server is started for its blocks and ended for certain before the next one starts.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from agentload.ask.asker import Failed
from agentload.ask.plain import Plain
from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changes
from agentload.endpoints.identity import Identity, identify, served_model
from agentload.endpoints.launch import START_S, LaunchedServer, start
from agentload.errors import EndpointError
from agentload.model.controls import original
from agentload.model.record import Record
from agentload.model.trace import Segment
from agentload.prompts.renderer import Renderer
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.run.known import with_date


class Launching(Record):
    """Describe how servers are started."""

    logs: Path = Path("logs")
    """Folder in which each start has a folder of its own."""
    start_s: float = START_S


class Up(Record):
    """Hold a server that was started for its arm."""

    endpoint: Endpoint
    """Endpoint, with the log of this start."""
    identity: Identity


@dataclass(slots=True)
class Relay:
    """Hold the one server that runs; leaving the context ends it."""

    endpoints: Mapping[str, Endpoint]
    launching: Launching
    is_forced: bool = field(default=False, kw_only=True)
    is_stopping: Callable[[], bool] = field(default=lambda: False, kw_only=True)
    notice: Callable[[str], None] = field(default=lambda _: None, kw_only=True)
    _server: asyncio.Task[LaunchedServer] | None = field(init=False, default=None)
    _is_leaving: bool = field(init=False, default=False)
    _unused: Up | None = field(init=False, default=None)
    _first: dict[str, Identity] = field(init=False, default_factory=dict)
    _starts: int = field(init=False, default=0)

    async def meet(self, arm: str) -> Identity:
        """Start an arm's server to identify it; `up` of that arm or its control takes over."""
        self._unused = await self._started(arm)
        return self._unused.identity

    async def up(self, arm: str) -> Up:
        """End the server that runs and start that of *arm*.

        Raises EndpointError when it came back as another server.
        """
        unused, self._unused = self._unused, None
        if unused is not None and original(unused.endpoint.name) == original(arm):
            return replace(unused, endpoint=replace(unused.endpoint, name=arm))
        return await self._started(arm)

    async def _started(self, arm: str) -> Up:
        await self._end()
        self._starts += 1
        began, began_s = time.monotonic(), time.time()
        endpoint = self.endpoints[arm]
        folder = self.launching.logs / f"start-{self._starts:03}"
        self._server = asyncio.create_task(
            asyncio.to_thread(
                start,
                endpoint,
                logs=folder,
                start_s=self.launching.start_s,
                is_stopping=lambda: self._is_leaving or self.is_stopping(),
            )
        )
        running = await asyncio.shield(self._server)
        logged = replace(endpoint, log=str(running.log))
        primed_in = await prime(logged)
        if isinstance(primed_in, str):
            self.notice(_unprimed_text(arm, primed_in))
        check_ms = None if isinstance(primed_in, str) else primed_in
        identity = replace(with_date(await identify(logged), began_s), check_ms=check_ms)
        self.notice(f"{arm}: start {self._starts}, ready after {time.monotonic() - began:.0f} s")
        if not self.is_forced:
            agreement([endpoint], {arm: identity}).require()
        self._compare(arm, identity)
        return Up(endpoint=logged, identity=identity)

    def _compare(self, arm: str, identity: Identity) -> None:
        if other := changes(self._first.setdefault(arm, identity).facts(), identity.facts()):
            raise EndpointError(
                f"{arm} came back as another server: {', '.join(other)}",
                hint="did its launch command or checkpoint change?",
            )

    async def _end(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        # Cancelling does not stop the thread: the thread looks for itself whether its
        # server is still wanted, and may just have got the server ready.
        await asyncio.wait([server])
        if server.exception() is None:
            await asyncio.to_thread(server.result().stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_leaving = True
        await self._end()


PRIMED: Final = (512, 64, 512)
"""Prompt tokens of each priming request."""
PRIMED_OUTPUT: Final = 16
REFUSED: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})
REMEDY: Final = (
    "; is it a field that this server refuses? `force_lengths: false` and `counting: usage` in "
    "the arms file"
)


async def prime(endpoint: Endpoint) -> str | float:
    """Prime one server; return the ms of its last answer, or why one was not answered.

    Raises EndpointError where it cannot be asked.
    """
    model = served_model(endpoint, await identify(endpoint))
    renderer = Renderer(seed=0, tokenizer=WORD_TOKENS)
    why = None
    took_ms = 0.0
    async with Plain(endpoint, model) as plain:
        for number, tokens in enumerate(PRIMED):
            context = (Segment(role="user", tokens=tokens, key=f"prime{number}"),)
            messages = json.loads(renderer.render(context, salt=f"prime {number}").messages)
            began = time.monotonic()
            answer = await plain.stream(messages, output_tokens=PRIMED_OUTPUT)
            took_ms = 1e3 * (time.monotonic() - began)
            if isinstance(answer, Failed):
                why = why or answer.error + (REMEDY if answer.http_status in REFUSED else "")
    return took_ms if why is None else why


def prime_all(endpoints: Iterable[Endpoint], *, notice: Callable[[str], None]) -> None:
    """Prime servers one after the other, as they may share a machine; report failures."""

    async def ask() -> None:
        for endpoint in endpoints:
            why: str | float
            try:
                why = await prime(endpoint)
            except EndpointError as error:
                why = error.message
            if isinstance(why, str):
                notice(_unprimed_text(endpoint.name, why))

    asyncio.run(ask())


def _unprimed_text(arm: str, why: str) -> str:
    """Say that a server was not primed, and why."""
    return f"{arm}: its first calls will be its first: {why}"
