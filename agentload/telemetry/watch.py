"""Sample servers while they work: parse each page in a thread and keep its figures alone.

A refused page is fetched less and less often and never given up: the refusal
may be a gateway's bad minute.
"""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

import aiohttp

from agentload.errors import AgentloadError
from agentload.exposition.scrape import Scrape, of_replicas, parse
from agentload.exposition.text import OversizeError
from agentload.model.record import Record
from agentload.model.rows import SampleRow
from agentload.telemetry.gpu import Gpus, GpuSample, of_page
from agentload.telemetry.log_lines import LogTail
from agentload.telemetry.reach import Reach, plain, public_url, text_of

LONGEST_S: Final = 300.0
PATIENCE: Final = aiohttp.ClientTimeout(total=5)
FROM_LOG: Final = json.dumps({"source": "log"})
Read = TypeVar("Read")
Figures: TypeAlias = tuple[tuple[str, float], ...]
"""Names and values of samples."""
REFUSALS: Final = frozenset({403, 404, 405})
"""Status codes that will hardly be different at the next look."""
SPARED_LOOKS: Final = 2
"""Number of looks after which a page is asked for again that was refused once."""
RENEW_S: Final = 300.0


class Refusals:
    """Remember which pages were refused, and when to ask for each again."""

    def __init__(self, *, first_s: float) -> None:
        self._first_s = first_s
        self._wait_s: dict[str, float] = {}
        self._until_s: dict[str, float] = {}
        self._since_s: dict[str, float] = {}

    def is_due(self, url: str, at_s: float) -> bool:
        """Return whether to ask for a page now."""
        return at_s >= self._until_s.get(url, at_s)

    def refused(self, url: str, at_s: float) -> None:
        """Record a refusal: wait twice as long as after the last, at most LONGEST_S."""
        self._since_s.setdefault(url, at_s)
        before_s = self._wait_s.get(url)
        wait_s = self._first_s if before_s is None else min(2 * before_s, LONGEST_S)
        self._wait_s[url] = wait_s
        self._until_s[url] = at_s + wait_s

    def answered(self, url: str, at_s: float) -> float | None:
        """Record an answer; return the seconds that the page was refused, None if it was not."""
        since_s = self._since_s.pop(url, None)
        self._wait_s.pop(url, None)
        self._until_s.pop(url, None)
        return None if since_s is None else at_s - since_s


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySource:
    """Where an arm's metrics, log and GPU figures are read."""

    urls: tuple[str, ...]
    """Metrics of each replica."""
    reach: Reach = field(default_factory=Reach)
    renewed: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)
    """Returns fresh headers, where a key in them expires; it may block for a moment."""
    log: str | None = None
    """File of the server's log, read while its metrics do not answer."""
    gpu_url: str | None = None
    """URL of an exporter of its GPUs' figures."""
    gpu_reach: Reach = field(default_factory=Reach)
    gpu_ids: frozenset[str] = frozenset()
    """Which GPUs are the arm's; empty: all."""
    is_here: bool = False
    """Whether its GPUs are those of this machine."""


class _Look(Record, kw_only=False):
    at_ns: int
    arm: str
    scraped: Figures = ()
    logged: Figures = ()
    gpus: tuple[GpuSample, ...] = ()


class TelemetryWatch:
    """Sample the metrics, log and GPUs of every arm at an interval, and keep the figures."""

    def __init__(
        self,
        sources: Mapping[str, TelemetrySource],
        *,
        every_s: float,
        gpus: Gpus | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._sources = sources
        self._every_s = every_s
        self._gpus = gpus or Gpus()
        self._looks: list[_Look] = []
        self._refusals = Refusals(first_s=SPARED_LOOKS * every_s)
        self._seen: set[str] = set()
        self._oversize: set[str] = set()
        self._notice = notice
        self._headers: dict[str, Mapping[str, str]] = {}
        self._tails: dict[str, LogTail] = {}
        for arm, source in sources.items():
            self.follow(arm, source.log)

    async def run(self) -> None:
        """Sample every arm until cancelled; a refused page is asked for less and less often."""
        async with AsyncExitStack() as stack:
            sessions = {
                arm: await stack.enter_async_context(source.reach.session(PATIENCE))
                for arm, source in self._sources.items()
            }
            exporters = {
                arm: await stack.enter_async_context(source.gpu_reach.session(PATIENCE))
                for arm, source in self._sources.items()
            }
            renewed_s = time.monotonic()
            while True:
                await asyncio.sleep(self._every_s)
                if time.monotonic() - renewed_s > RENEW_S:
                    renewed_s = time.monotonic()
                    await self._renew()
                await asyncio.gather(
                    *(
                        self._look(sessions[arm], exporters[arm], arm, source)
                        for arm, source in self._sources.items()
                    )
                )

    async def _renew(self) -> None:
        for arm, source in self._sources.items():
            if source.renewed is not None:
                with contextlib.suppress(AgentloadError):  # the old key may still be valid
                    self._headers[arm] = await asyncio.to_thread(source.renewed)

    def follow(self, arm: str, log: str | None) -> None:
        """Follow an arm's log from its present end; call again after a restart of the server."""
        if log is not None:
            self._tails[arm] = LogTail(log)

    def rows(self, *, run_id: str, leg: int) -> Iterator[SampleRow]:
        """Yield the samples kept since the last call, as rows."""
        looks = self._looks
        self._looks = []
        for look in looks:

            def row(
                name: str, value: float, labels: str | None = None, look: _Look = look
            ) -> SampleRow:
                return SampleRow(
                    run_id=run_id,
                    leg=leg,
                    arm=look.arm,
                    at_ns=look.at_ns,
                    name=name,
                    value=value,
                    labels=labels,
                )

            for name, value in look.scraped:
                yield row(name, value)
            for name, value in look.logged:
                yield row(name, value, FROM_LOG)
            for each in look.gpus:
                yield row(each.name, each.value, each.labels)

    async def _look(
        self,
        session: aiohttp.ClientSession,
        exporter: aiohttp.ClientSession,
        arm: str,
        source: TelemetrySource,
    ) -> None:
        whole = await self._scrape(session, arm, source)
        scraped: Figures = () if whole is None else tuple(whole.samples())
        logged: Figures = ()
        tail = self._tails.get(arm)
        if whole is None and tail is not None:
            logged = await asyncio.to_thread(lambda: tuple(tail.values()))
        every = await self._gpu_samples(exporter, arm, source)
        gpus = tuple(each for each in every if each.is_of(source.gpu_ids))
        if scraped or logged or gpus:
            self._looks.append(_Look(time.monotonic_ns(), arm, scraped, logged, gpus))

    async def _scrape(
        self, session: aiohttp.ClientSession, arm: str, source: TelemetrySource
    ) -> Scrape | None:
        """Return the figures of all replicas of an arm together; None if one is missing.

        A sum over some replicas alone would seem to run backwards.
        """
        headers = self._headers.get(arm, {})
        pages = await asyncio.gather(
            *(self._page(session, arm, url, headers, parse) for url in source.urls)
        )
        there = [page for page in pages if page is not None]
        if there and len(there) == len(pages):
            return of_replicas(there)
        return None

    async def _gpu_samples(
        self, exporter: aiohttp.ClientSession, arm: str, source: TelemetrySource
    ) -> Sequence[GpuSample]:
        """Return what an exporter says of the arm's GPUs, or this machine where it has them."""
        if source.gpu_url is not None:
            page = await self._page(
                exporter, arm, source.gpu_url, {}, lambda text: [*of_page(text)]
            )
            return page or ()
        if not source.is_here or not self._gpus.count:
            return ()
        # A driver may take milliseconds: not on the loop that stamps answers.
        return await asyncio.to_thread(lambda: [*self._gpus.samples()])

    async def _page(
        self,
        session: aiohttp.ClientSession,
        arm: str,
        url: str,
        headers: Mapping[str, str],
        read: Callable[[str], Read],
    ) -> Read | None:
        """Fetch a page and return what *read* makes of it; None if the page did not answer."""
        if not self._refusals.is_due(url, time.monotonic()):
            return None
        try:
            async with session.get(plain(url), headers=headers) as response:
                self._tell(arm, url, response.status)
                if response.status == 200:
                    text = await text_of(response)
                    return await asyncio.to_thread(read, text)
        except OversizeError as error:
            if url not in self._oversize:
                self._oversize.add(url)
                self._notice(f"{arm}: {public_url(url)}: {error}: left out")
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            pass
        return None

    def _tell(self, arm: str, url: str, status: int) -> None:
        """Report a page that answered before and is now refused, and one that answers again.

        A page that never answered was reported before the run.
        """
        now_s = time.monotonic()
        if status in REFUSALS:
            self._refusals.refused(url, now_s)
            if url in self._seen:
                self._seen.remove(url)
                self._notice(
                    f"{arm}: {public_url(url)} answers {status}: "
                    "asked less often until it answers again"
                )
        elif status == 200:
            self._seen.add(url)
            gone_s = self._refusals.answered(url, now_s)
            if gone_s is not None:
                self._notice(f"{arm}: {public_url(url)} answers again after {gone_s:.0f} s")
