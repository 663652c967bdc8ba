"""A whole replay of an arm that answers wrongly in every way,
beside one that answers well: it is played, stored and reported.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentload.model.trace import Header, Session, Trace, Turn
from agentload.store.database import reading
from agentload.tracefile.files import write
from tests.cli.test_replay import AGENTLOAD, said
from tests.conftest import Spawn
from tests.live.hostile import MODES, TIMED_OUT
from tests.live.scripted import Peer, serving
from tests.run.playing import OUTPUT, answering

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
# An answer out of a cache makes its pair invalid, which is then played again.
QUICK = [
    name
    for name, mode in MODES.items()
    if not mode.ends & TIMED_OUT and not name.startswith("age_")
]


async def test_a_night_with_a_hostile_server_is_played_stored_and_reported(
    tmp_path: Path, spawn: Spawn
) -> None:
    asked = 0

    async def hostile(peer: Peer) -> None:
        nonlocal asked
        if not peer.request.line.split()[1].endswith("/chat/completions"):
            await answering()(peer)
            return
        asked += 1
        await MODES[QUICK[asked % len(QUICK)]].answer(peer)

    sessions = tuple(
        Session(
            session=f"s{i}",
            workload="chat",
            start_s=0.05 * i,
            turns=(Turn(add=(said("user", 9, f"s{i}"),), output=OUTPUT),),
        )
        for i in range(len(QUICK))
    )
    write(tmp_path / "t.jsonl", Trace(header=Header(name="t", seed=1), sessions=sessions))
    async with serving(answering()) as good, serving(hostile) as bad:
        arms = f"good={good.url},bad={bad.url}"
        options = ["--pairs", "1", "--db", "x.duckdb", "--force", "--keep-raw", "failures"]
        replay = spawn(
            [*AGENTLOAD, "replay", "t.jsonl", "--endpoints", arms, "--model", "m", *options],
            tmp_path,
        )
        _, errors = await asyncio.to_thread(replay.communicate, timeout=200)
        bad.failures.clear()
    assert (replay.returncode, "Traceback" in errors) == (0, False), errors
    with reading(tmp_path / "x.duckdb") as connection:
        ends = dict(
            connection.execute(
                "SELECT arm || ' ' || status, count(*) FROM calls GROUP BY ALL"
            ).fetchall()
        )
    assert ends["good ok"] == len(QUICK)
    assert sum(count for end, count in ends.items() if end.startswith("bad ")) == len(QUICK)
    assert {
        "bad unreadable",
        "bad aborted",
        "bad filtered",
        "bad stream_error",
        "bad http_error",
        "bad truncated",
    } <= ends.keys()
    for verb in (["report", "x.duckdb", "-o", "there"], ["advise", "x.duckdb"]):
        done = spawn([*AGENTLOAD, *verb], tmp_path)
        _, errors = await asyncio.to_thread(done.communicate, timeout=100)
        assert (done.returncode, "Traceback" in errors) == (0, False), errors
