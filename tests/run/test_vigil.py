"""A dead endpoint is waited for only as long as somebody wants to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.layout.plan import plan
from agentload.model.plan import ClosedLoop, Load
from agentload.model.rows import BlockRow
from agentload.run import vigil
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extended
from agentload.study.kinds import OnDead
from tests.live.scripted import Answer, Peer, serving
from tests.run.playing import STUDY, Journalled, answering, playing, trace

pytestmark = pytest.mark.loopback


def dying() -> Answer:
    """Return a server that breaks every connection from its first chat on."""
    alive, is_dead = answering(), False

    async def answer(peer: Peer) -> None:
        nonlocal is_dead
        is_dead = is_dead or peer.request.line.split()[1].endswith("/chat/completions")
        peer.reset() if is_dead else await alive(peer)

    return answer


async def test_a_stop_ends_the_wait_for_a_dead_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vigil, "LOOK_S", 0.02)
    made = plan(trace(6), ["a"], run="r1", pairs=1, load=Load(arrivals=ClosedLoop(sessions=6)))
    is_lost = asyncio.Event()
    async with serving(dying()) as server:
        how = playing(made, [Endpoint(name="a", url=server.url)], tmp_path / "x.duckdb")
        leg = Journalled(how, notice=lambda said: is_lost.set() if "waiting for it" in said else None)
        task = asyncio.create_task(leg.play())
        await is_lost.wait()
        await asyncio.sleep(0.05)
        leg.stop()
        ended = await asyncio.wait_for(task, 2.0)
    assert ended.was_stopped
    rows = [row for path in journals(how.database, "r1") for row in journal.read(path)]
    assert [row.void for row in rows if isinstance(row, BlockRow)] == ["a died during the block"]


@pytest.mark.parametrize(("on_dead", "was_stopped"), [("stop", True), ("skip", False)])
async def test_what_was_played_names_the_arms_that_stopped_answering(tmp_path: Path, *, on_dead: OnDead, was_stopped: bool) -> None:
    made = plan(trace(6), ["a", "b"], run="r1", pairs=1, load=Load(arrivals=ClosedLoop(sessions=6)))
    async with serving(answering()) as one, serving(dying()) as other:
        endpoints = (Endpoint(name="a", url=one.url), Endpoint(name="b", url=other.url))
        how = playing(made, endpoints, tmp_path / "x.duckdb", study=extended(STUDY, on_dead=on_dead))
        ended = await asyncio.wait_for(Journalled(how).play(), 5.0)
    assert (ended.died, ended.was_stopped) == (("b",), was_stopped)
