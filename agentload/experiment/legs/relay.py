"""One server at a time: arms that share a GPU take turns, each started for its blocks and ended for certain before the next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import changed
from agentload.endpoints.identity import Identity, identify
from agentload.endpoints.launch import START_S, Running, start
from agentload.errors import EndpointError
from agentload.experiment.legs.known import dated
from agentload.experiment.legs.prime import prime, unprimed
from agentload.model.controls import copied


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """How servers are started."""

    logs: Path = Path("logs")
    """Each start has a folder of its own in it."""
    start_s: float = START_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Up:
    """A server that was started for its arm."""

    endpoint: Endpoint
    """With the log of this start."""
    identity: Identity


class Relay:
    """Hold the one server that runs; leaving the context ends it."""

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        launching: Launching,
        *,
        is_forced: bool = False,
        is_stopping: Callable[[], bool] = lambda: False,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._endpoints = endpoints
        self._launching = launching
        self._is_forced = is_forced
        self._is_stopping = is_stopping
        self._notice = notice
        self._server: asyncio.Task[Running] | None = None
        self._is_leaving = False
        self._unused: Up | None = None
        self._first: dict[str, Identity] = {}
        self._starts = 0

    async def meet(self, arm: str) -> Identity:
        """Start an arm's server to see what it is; `up` of the same arm, or of its control, takes it as it stands."""
        self._unused = await self._started(arm)
        return self._unused.identity

    async def up(self, arm: str) -> Up:
        """End the server that runs and start that of *arm*. Raises EndpointError when it came back as another server."""
        unused, self._unused = self._unused, None
        if unused is not None and copied(unused.endpoint.name) == copied(arm):
            return replace(unused, endpoint=replace(unused.endpoint, name=arm))
        return await self._started(arm)

    async def _started(self, arm: str) -> Up:
        await self._end()
        self._starts += 1
        began, began_s = time.monotonic(), time.time()
        endpoint, folder = self._endpoints[arm], self._launching.logs / f"start-{self._starts:03}"
        self._server = asyncio.create_task(
            asyncio.to_thread(start, endpoint, logs=folder, start_s=self._launching.start_s, is_stopping=self._is_unwanted)
        )
        running = await asyncio.shield(self._server)
        logged = replace(endpoint, log=str(running.log))
        if (why := await prime(logged)) is not None:
            self._notice(unprimed(arm, why))
        identity = dated(await identify(logged), began_s)
        self._notice(f"{arm}: start {self._starts}, ready after {time.monotonic() - began:.0f} s")
        if not self._is_forced:
            agreement([endpoint], {arm: identity}).require()
        self._compare(arm, identity)
        return Up(endpoint=logged, identity=identity)

    def _compare(self, arm: str, identity: Identity) -> None:
        if other := changed(self._first.setdefault(arm, identity).facts(), identity.facts()):
            raise EndpointError(
                f"{arm} came back as another server: {', '.join(other)}", hint="did its launch command or checkpoint change?"
            )

    def _is_unwanted(self) -> bool:
        return self._is_leaving or self._is_stopping()

    async def _end(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        # Cancelling does not stop a thread: it looks for itself whether its server is still wanted, and may have just got it ready.
        await asyncio.wait([server])
        if server.exception() is None:
            await asyncio.to_thread(server.result().stop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._is_leaving = True
        await self._end()
