"""Make a run's report, or a comparison of two, when it is asked for; the latest few are kept until the database changes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import duckdb

from agentload.report.formats.html import html
from agentload.report.parts import Document
from agentload.report.policy import Setting
from agentload.store.database import refusal
from agentload.ui.pages.run import run_named
from agentload.ui.source import Asked, Kept, Source

KEPT: Final = 8
Key: TypeAlias = tuple[str, str, str, str]
"""Database, run, later run, arm: no other word of a query makes another report."""


@dataclass(slots=True, kw_only=True)
class Reports:
    """Report pages of all databases, decided with one setting."""

    setting: Setting
    profile: str | None = None
    _kept: Kept[Key, str] = field(default_factory=partial(Kept, KEPT))
    # One at a time: a report of a long run takes seconds and a GB. Those that wait keep no thread from the pages.
    _thread: ThreadPoolExecutor = field(default_factory=partial(ThreadPoolExecutor, 1, "reports"))

    async def page(self, source: Source, asked: Asked) -> str:
        """Return the page; raise `AgentloadError` if a run is not there, or two cannot be compared."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._page, source, asked)

    async def close(self, _: object = None) -> None:
        """Make no more of them; one that is being made comes to its end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _page(self, source: Source, asked: Asked) -> str:
        key = (source.name, asked.name, asked.other, asked.word("arm"))
        stamp, kept = source.stamp(), self._kept.get(key)
        if kept is not None and kept.stamp == stamp:
            return kept.value
        try:
            page = html(self._document(source, asked))
        except duckdb.Error as error:
            raise refusal(source.path, error) from error
        self._kept.put(key, stamp, page)
        return page

    def _document(self, source: Source, asked: Asked) -> Document:
        # All of the statistics: the pages themselves start in half of the time without them.
        from agentload.report.advise import advise
        from agentload.report.compare import compare

        name = _known(source, asked.name)
        if asked.other:
            arm = asked.word("arm") or None
            return compare(source.path, name, _known(source, asked.other), setting=self.setting, arm=arm, profile=self.profile)
        return advise(source.path, name, setting=self.setting, profile=self.profile)


def _known(source: Source, name: str) -> str:
    return source.ask(("run", name), partial(run_named, name=name)).value
