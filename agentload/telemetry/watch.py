"""Sample servers while they work: fetch now, parse when the round is over, so that a parser never delays a call.

Pages that are refused are fetched less and less often and never given up: what refuses them may be a gateway's bad minute.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import aiohttp

from agentload.errors import AgentloadError
from agentload.exposition.scrape import of_replicas, parse
from agentload.model.rows import SampleRow
from agentload.telemetry.gpu import Gpus, GpuSample, of_page
from agentload.telemetry.log_lines import LogTail
from agentload.telemetry.reach import Reach, plain, shown, text_of

LONGEST_S: Final = 300.0
PATIENCE: Final = aiohttp.ClientTimeout(total=5)
FROM_LOG: Final = json.dumps({"source": "log"})
REFUSALS: Final = frozenset({403, 404, 405})
"""Answers that will hardly be another one at the next look."""
SPARED_LOOKS: Final = 2
"""How many looks go by until a page is asked for again that was refused once."""
RENEW_S: Final = 300.0


class Refusals:
    """Say which pages are worth a look."""

    def __init__(self, *, first_s: float) -> None:
        self._first_s = first_s
        self._wait_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def is_due(self, url: str, at_s: float) -> bool:
        """Tell whether to ask for a page now."""
        return at_s >= self._until_s.get(url, at_s)

    def refused(self, url: str, at_s: float) -> None:
        """Wait twice as long as the last time."""
        self._since_s.setdefault(url, at_s)
        self._wait_s[url] = wait_s = min(2 * self._wait_s[url], LONGEST_S) if url in self._wait_s else self._first_s
        self._until_s[url] = at_s + wait_s

    def answered(self, url: str, at_s: float) -> float | None:
        """Return for how long a page was refused before it answered now; None: it was not."""
        since_s = self._since_s.pop(url, None)
        self._wait_s.pop(url, None)
        self._until_s.pop(url, None)
        return None if since_s is None else at_s - since_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where an arm's figures are."""

    urls: tuple[str, ...]
    """Of each replica's metrics."""
    reach: Reach = field(default_factory=Reach)
    renewed: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    """Gives the headers anew, where a key in them expires; it may take a moment."""
    log: str | None = None
    """File of the server's log: stands in where its metrics do not answer."""
    gpu_url: str | None = None
    """Of an exporter that says what its GPUs do."""
    gpu_reach: Reach = field(default_factory=Reach)
    gpu_ids: frozenset[str] = frozenset()
    """Which GPUs are the arm's; empty: all."""
    is_here: bool = False
    """Its GPUs are those of this machine."""


@dataclass(frozen=True, slots=True)
class _Page:
    at_ns: int
    arm: str
    texts: tuple[str, ...] = ()
    logged: tuple[tuple[str, float], ...] = ()
    gpu_text: str | None = None
    gpus: tuple[GpuSample, ...] = ()


class Watch:
    """Keep what the metrics of every arm say at an interval."""

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        every_s: float,
        gpus: Gpus | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sources = sources
        self._every_s = every_s
        self._gpus = gpus or Gpus()
        self._pages: list[_Page] = []
        self._refusals = Refusals(first_s=SPARED_LOOKS * every_s)
        self._seen: set[str] = set()
        self._notice = notice
        self._headers: dict[str, Mapping[str, str]] = {}
        self._tails: dict[str, LogTail] = {}
        for arm, source in sources.items():
            self.follow(arm, source.log)

    async def run(self) -> None:
        """Fetch until cancelled. A page that is refused is asked for less and less often."""
        async with AsyncExitStack() as stack:
            sessions = {arm: await stack.enter_async_context(source.reach.session(PATIENCE)) for arm, source in self._sources.items()}
            exporters = {arm: await stack.enter_async_context(source.gpu_reach.session(PATIENCE)) for arm, source in self._sources.items()}
            renewed_s = time.monotonic()
            while True:
                await asyncio.sleep(self._every_s)
                if time.monotonic() - renewed_s > RENEW_S:
                    renewed_s = time.monotonic()
                    await self._renew()
                await asyncio.gather(*(self._look(sessions[arm], exporters[arm], arm, source) for arm, source in self._sources.items()))

    async def _renew(self) -> None:
        for arm, source in self._sources.items():
            if source.renewed is not None:
                with contextlib.suppress(AgentloadError):  # the old key may still do
                    self._headers[arm] = await asyncio.to_thread(source.renewed)

    def follow(self, arm: str, log: str | None) -> None:
        """Read an arm's log from here on: that of its server, which may have been started just now."""
        if log is not None:
            self._tails[arm] = LogTail(log)

    def rows(self, *, run_id: str, leg: int) -> Iterator[SampleRow]:
        """Yield what was kept since the last time, as rows; parsing takes a while: call it between rounds."""
        pages, self._pages = self._pages, []
        for page in pages:
            own = self._sources[page.arm].gpu_ids

            def row(name: str, value: float, labels: str | None = None, page: _Page = page) -> SampleRow:
                return SampleRow(run_id=run_id, leg=leg, arm=page.arm, at_ns=page.at_ns, name=name, value=value, labels=labels)

            with contextlib.suppress(ValueError):  # half a page, or no exposition at all: nothing was observed
                scraped = of_replicas([parse(text) for text in page.texts])
                yield from (row(name, value) for name, value in scraped.samples())
            yield from (row(name, value, FROM_LOG) for name, value in page.logged)
            with contextlib.suppress(ValueError):
                told = of_page(page.gpu_text) if page.gpu_text is not None else iter(page.gpus)
                yield from (row(each.name, each.value, each.labels) for each in told if each.is_of(own))

    async def _look(self, session: aiohttp.ClientSession, exporter: aiohttp.ClientSession, arm: str, source: Source) -> None:
        headers = self._headers.get(arm, {})
        texts = await asyncio.gather(*(self._text(session, arm, url, headers) for url in source.urls))
        # Counters of some replicas alone would seem to run backwards: all of them, or none.
        whole = tuple(text for text in texts if text is not None) if None not in texts else ()
        tail = self._tails.get(arm)
        logged = await asyncio.to_thread(lambda: tuple(tail.values())) if tail is not None and not whole else ()
        gpu_text = None if source.gpu_url is None else await self._text(exporter, arm, source.gpu_url, {})
        asks_here = source.is_here and source.gpu_url is None and self._gpus.count
        # A driver may take milliseconds: not on the loop that stamps answers.
        gpus = await asyncio.to_thread(lambda: tuple(self._gpus.samples())) if asks_here else ()
        if whole or logged or gpu_text is not None or gpus:
            self._pages.append(_Page(time.monotonic_ns(), arm, whole, logged, gpu_text, gpus))

    async def _text(self, session: aiohttp.ClientSession, arm: str, url: str, headers: Mapping[str, str]) -> str | None:
        if not self._refusals.is_due(url, time.monotonic()):
            return None
        try:
            async with session.get(plain(url), headers=headers) as response:
                self._tell(arm, url, response.status)
                return await text_of(response) if response.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return None  # a sample that could not be taken is no sample

    def _tell(self, arm: str, url: str, status: int) -> None:
        """Say that a page that was there is refused, and that it is there again; that it never was is known before the run."""
        now_s = time.monotonic()
        if status in REFUSALS:
            self._refusals.refused(url, now_s)
            if url in self._seen:
                self._seen.remove(url)
                self._notice(f"{arm}: {shown(url)} answers {status}: asked less often until it answers again")
        elif status == 200:
            self._seen.add(url)
            if (gone_s := self._refusals.answered(url, now_s)) is not None:
                self._notice(f"{arm}: {shown(url)} answers again after {gone_s:.0f} s")
