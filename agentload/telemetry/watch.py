"""Sample servers while they work: fetch now, parse when the round is over, so that a parser never delays a call."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import aiohttp

from agentload.model.rows import SampleRow
from agentload.telemetry.prometheus import parse

PATIENCE = aiohttp.ClientTimeout(total=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an arm's metrics are."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


class Watch:
    """Keep what `/metrics` of every arm says at an interval."""

    def __init__(self, sources: Mapping[str, Source], *, every_s: float) -> None:
        self._sources = sources
        self._every_s = every_s
        self._pages: list[tuple[int, str, str]] = []
        self._silent: set[str] = set()

    async def run(self) -> None:
        """Fetch until cancelled. An arm without metrics is asked once."""
        async with aiohttp.ClientSession(timeout=PATIENCE) as session:
            while True:
                await asyncio.sleep(self._every_s)
                asked = [name for name in self._sources if name not in self._silent]
                await asyncio.gather(*(self._fetch(session, name) for name in asked))

    def rows(self, *, run_id: str, leg: int) -> Iterator[SampleRow]:
        """Yield what was kept since the last time, as rows; parsing takes a while: call it between rounds."""
        pages, self._pages = self._pages, []
        for at_ns, arm, text in pages:
            with contextlib.suppress(ValueError):  # half a page, or no exposition at all: nothing was observed
                for name, value in parse(text).values.items():
                    yield SampleRow(run_id=run_id, leg=leg, arm=arm, at_ns=at_ns, name=name, value=value)

    async def _fetch(self, session: aiohttp.ClientSession, name: str) -> None:
        source = self._sources[name]
        try:
            async with session.get(source.url, headers=source.headers) as response:
                if response.status == 404:
                    self._silent.add(name)
                elif response.status == 200:
                    self._pages.append((time.monotonic_ns(), name, await response.text()))
        except (aiohttp.ClientError, TimeoutError, OSError):
            return  # a sample that could not be taken is no sample
