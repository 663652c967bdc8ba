"""A first signal lets what is in flight come to its end, a second
one, of whatever kind, ends it; nothing that was measured is lost.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from agentload.model.rows import CallRow
from agentload.store import journal
from agentload.store.places import journalled_runs, journals
from tests.cli.test_replay import AGENTLOAD, traced
from tests.conftest import Spawn
from tests.live.scripted import END, STREAM, Peer, serving, token
from tests.run.playing import answering

pytestmark = [pytest.mark.loopback, pytest.mark.slow]


@pytest.mark.parametrize(
    ("signals", "workers"),
    [
        ((signal.SIGINT,), 1),
        ((signal.SIGINT, signal.SIGINT), 1),
        ((signal.SIGINT, signal.SIGTERM, signal.SIGINT), 1),
        ((signal.SIGTERM, signal.SIGHUP), 1),
        ((signal.SIGINT, signal.SIGINT), 2),
    ],
)
async def test_a_second_signal_ends_what_the_first_lets_end(
    signals: tuple[signal.Signals, ...], workers: int, tmp_path: Path, spawn: Spawn
) -> None:
    begun, ends = asyncio.Event(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        if "/chat/completions" not in peer.request.line:
            await answering()(peer)
            return
        await peer.send(STREAM)
        while not ends.is_set():
            begun.set()
            await peer.events(token("a"))
            await asyncio.sleep(0.05)
        await peer.events(token("b", finish="length"), "[DONE]")
        await peer.send(END)

    trace = traced(tmp_path / "t.jsonl", wait_s=0.02)
    async with serving(slow) as server:
        options = ["--pairs", "1", "--workers", str(workers), "--db", "x.duckdb", "--force"]
        running = spawn(
            [
                *AGENTLOAD,
                "replay",
                trace,
                "--endpoints",
                f"a={server.url}",
                "--model",
                "m",
                *options,
            ],
            tmp_path,
        )
        await asyncio.wait_for(begun.wait(), 300)
        await asyncio.sleep(0.5)
        for position, number in enumerate(signals):
            running.send_signal(number)
            if position == 0:
                await asyncio.sleep(1.0)
                assert running.poll() is None, (
                    "the first signal lets what is in flight come to its end"
                )
        if len(signals) == 1:
            ends.set()
        _, errors = await asyncio.to_thread(running.communicate, timeout=30)
    assert (running.returncode, "Traceback" in errors) == (130, False), errors
    (run,) = journalled_runs(tmp_path / "x.duckdb")
    rows = [
        row
        for path in journals(tmp_path / "x.duckdb", run)
        for row in journal.read(path)
        if isinstance(row, CallRow)
    ]
    assert rows
    assert {row.status for row in rows} <= ({"long"} if len(signals) == 1 else {"stopped"})
    assert "--resume" in errors
