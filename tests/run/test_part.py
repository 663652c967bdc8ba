"""Somebody else has the database open: what is played
does not stand still for it, and Ctrl-C is heard.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import duckdb
import pytest

from agentload.run import part
from agentload.run.part import load_run, look_at
from agentload.store.database import reading, writing
from agentload.watch.ledger import history, stored_alarms


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(part, "STEP_S", 0.02)
    path = tmp_path / "x.duckdb"
    with writing(path):
        pass
    return path


BUSY = "another connection of this process has it open"


async def test_without_patience_the_wait_is_short_and_told(database: Path) -> None:
    told: list[str] = []
    with reading(database):
        async with asyncio.timeout(60):
            error = await load_run(
                "r1", database, patience_s=0.01, is_stopping=lambda: False, notice=told.append
            )
    assert (error, told) == (f"{database}: {BUSY}", [f"not loaded yet: {database}: {BUSY}"])


async def test_being_asked_to_stop_ends_the_longest_wait(database: Path) -> None:
    told: list[str] = []
    with reading(database):
        async with asyncio.timeout(60):
            error = await load_run(
                "r1",
                database,
                patience_s=600,
                is_stopping=lambda: len(told) > 0,
                notice=told.append,
            )
    assert error == f"{database}: {BUSY}"
    assert told == [f"waiting for the database: {error}", f"not loaded yet: {error}"]


async def test_what_waits_goes_on_when_the_database_is_closed(database: Path) -> None:
    with ExitStack() as stack:
        stack.enter_context(reading(database))
        asyncio.get_running_loop().call_later(0.05, stack.close)
        async with asyncio.timeout(60):
            assert (
                await load_run(
                    "r1", database, patience_s=600, is_stopping=lambda: False, notice=lambda _: None
                )
                is None
            )
            await look_at(database, notice=lambda _: None)


async def test_a_database_that_a_kill_left_without_tables_is_no_obstacle(tmp_path: Path) -> None:
    """With none at all a run goes on; with an empty one it refused to."""
    database = tmp_path / "x.duckdb"
    await look_at(database, notice=lambda _: None)
    duckdb.connect(str(database)).close()
    await look_at(database, notice=lambda _: None)
    assert history(database, "nightly") == ()
    assert stored_alarms(database, "nightly") == ()
