"""A whole replay of an arm that answers wrongly in every way,
beside one that answers well: it is played, stored and reported.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentload.model.trace import Header, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.server import ServerOptions
from agentload.store.database import reading
from agentload.tracefile.files import write
from tests.ask.test_hostile import BODIES, saying
from tests.cli.test_replay import AGENTLOAD, said
from tests.conftest import Spawn
from tests.live.hostile import MODES, TIMED_OUT
from tests.live.hostility import behind, passed_on
from tests.live.scripted import Answer, Peer, serving
from tests.run.playing import OUTPUT, answering
from tests.serve.serving import served

pytestmark = [pytest.mark.loopback, pytest.mark.slow]
# An answer out of a cache makes its pair invalid, which is then played again.
QUICK = [
    name
    for name, mode in MODES.items()
    if not mode.ends & TIMED_OUT and not name.startswith("age_")
]


async def test_an_evaluation_of_a_hostile_server_names_what_failed_and_grades_the_rest(
    tmp_path: Path, spawn: Spawn
) -> None:
    """Every fourth answer is right, so that the arm is not given up after so many failures."""
    wrong = [MODES[name].answer for name in QUICK[::4]] + [saying(each) for each in BODIES.values()]
    failed = 0

    def by_turns(url: str) -> Answer:
        at, turn, modes = urlsplit(url), cycle(range(4)), iter(wrong)

        async def answer(peer: Peer) -> None:
            nonlocal failed
            mode = next(modes, None) if next(turn) else None
            if mode is None:
                await passed_on(peer, at.hostname, at.port)
            else:
                failed += 1
                await mode(peer)

        return answer

    (arm,), options = arms_of("llama-3.1-8b-h100", ["bf16"]), ServerOptions(speed=1000.0)
    async with served(arm, options) as good, serving(behind(good.url, by_turns(good.url))) as bad:
        arms, items = f"good={good.url},bad={bad.url}", str(4 * len(wrong) // 3)
        asked = [
            "--tasks",
            "needle",
            "--contexts",
            "1k",
            "--items",
            items,
            "--total-timeout",
            "10s",
        ]
        evaluation = spawn(
            [*AGENTLOAD, "eval", "--endpoints", arms, *asked, "--db", "x.duckdb"], tmp_path
        )
        _, errors = await asyncio.to_thread(evaluation.communicate, timeout=200)
        bad.failures.clear()
    assert (evaluation.returncode, "Traceback" in errors) == (0, False), errors
    with reading(tmp_path / "x.duckdb") as connection:
        query = "SELECT arm, score IS NULL, signals ->> 'error' FROM answers"
        rows = connection.execute(query).fetchall()
    unread = [error for arm, is_unread, error in rows if arm == "bad" and is_unread]
    assert failed >= len(wrong) > len(unread) > len(wrong) / 2  # some are asked again
    assert all(7 < len(error) <= 300 and error.isprintable() for error in unread)
    assert [row for row in rows if row[0] == "good" and row[1]] == []


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
