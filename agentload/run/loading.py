"""Use the database beside an event loop: who keeps it open is waited for in steps short enough to hear of a stop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from agentload.errors import StoreError
from agentload.store.database import READER_PATIENCE_S, BusyError, reading
from agentload.store.loader import load
from agentload.store.places import journals

STEP_S: Final = 1.0
"""How long one attempt waits, in a thread that nobody can stop."""

Notice = Callable[[str], None]


async def looked_at(database: Path, *, notice: Notice) -> None:
    """See that a database can take rows. Raises StoreError: better known now than after an hour."""

    def look(patience_s: float) -> None:
        with reading(database, patience_s=patience_s):
            pass

    await _patiently(look, patience_s=READER_PATIENCE_S, is_stopping=lambda: False, notice=notice)


async def loaded(run_id: str, database: Path, *, patience_s: float, is_stopping: Callable[[], bool], notice: Notice) -> str | None:
    """Bring a database up to date with a run's journals; return why that could not be, be it that somebody stops us."""

    def once(patience_s: float) -> None:
        load(journals(database, run_id), database, patience_s=patience_s)

    try:
        await _patiently(once, patience_s=patience_s, is_stopping=is_stopping, notice=notice)
    except StoreError as error:
        notice(f"not loaded yet: {error.message}")
        return error.message
    return None


async def _patiently(act: Callable[[float], None], *, patience_s: float, is_stopping: Callable[[], bool], notice: Notice) -> None:
    until_s, is_told = time.monotonic() + patience_s, False
    while True:
        try:
            return await asyncio.to_thread(act, min(STEP_S, patience_s))
        except BusyError as error:
            if is_stopping() or time.monotonic() >= until_s:
                raise
            if not is_told:
                is_told = True
                notice(f"waiting for the database: {error.message}")
