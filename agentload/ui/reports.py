"""Make a run's report, or a comparison of two, on request.

The latest few are cached until the database changes.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote

import duckdb

from agentload.report.parts import Document
from agentload.report.render import render
from agentload.store.database import refusal
from agentload.ui.pages.compared import ComparedPage, comparison
from agentload.ui.pages.run import run_named
from agentload.ui.source import DatabaseFile, LatestFew, Query
from agentload.verdict.policy import Setting

KEPT: Final = 8
T = TypeVar("T")
Key: TypeAlias = tuple[str, str, str, str]
"""Database, run, later run, arm: all that a document depends on."""


@dataclass(slots=True, kw_only=True)
class Reports:
    """Report pages of all databases under one policy."""

    setting: Setting
    profile: str | None = None
    _kept: LatestFew[Key, Document] = field(default_factory=partial(LatestFew, KEPT))
    # One at a time: the report of a long run takes seconds and
    # a GB. Waiting requests take no thread from the pages.
    _thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "reports"))

    async def page(self, source: DatabaseFile, query: Query) -> str:
        """Return a report's page.

        Raise `AgentloadError` if a run is missing or two cannot be compared.
        """
        text = await self._soon(lambda: render(self._document(source, query), "html"))
        return text.replace("<body>", f"<body>\n{_home(source, query)}", 1)

    async def comparison(self, source: DatabaseFile, query: Query) -> ComparedPage:
        """Return the page that compares two runs; raise as `page` does."""
        return await self._soon(lambda: comparison(self._document(source, query)))

    async def _soon(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def close(self, _: object = None) -> None:
        """Make no more reports; one in progress is finished."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _document(self, source: DatabaseFile, query: Query) -> Document:
        key = (source.name, query.name, query.other, query.word("arm"))
        stamp = source.stamp()
        kept = self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            return kept.value
        try:
            found = self._made(source, query)
        except duckdb.Error as error:
            raise refusal(source.path, error) from error
        self._kept.put(key, stamp, found)
        return found

    def _made(self, source: DatabaseFile, query: Query) -> Document:
        # Imports all of the statistics; without them the pages start in half the time.
        from agentload.report.advise import advise, compare

        name = _known(source, query.name)
        if query.other:
            arm = query.word("arm") or None
            return compare(
                source.path,
                name,
                _known(source, query.other),
                setting=self.setting,
                arm=arm,
                profile=self.profile,
            )
        return advise(source.path, name, setting=self.setting, profile=self.profile)


def _home(source: DatabaseFile, query: Query) -> str:
    """Return the links back: a report knows no other page."""
    base = f"/db/{quote(source.name, safe='')}"
    back = (
        (f"{base}/runs/{quote(name, safe='')}", f"← {name}")
        for name in (query.name, query.other)
        if name
    )
    blocks = (f"{base}/runs/{quote(query.other or query.name, safe='')}#blocks", "blocks and calls")
    links = "".join(
        f'<a href="{escape(href)}">{escape(label)}</a>'
        for href, label in ((f"{base}/", "agentload"), *back, blocks)
    )
    return f'<nav aria-label="Pages">{links}</nav>'


def _known(source: DatabaseFile, name: str) -> str:
    return source.ask(("run", name), partial(run_named, name=name)).value
