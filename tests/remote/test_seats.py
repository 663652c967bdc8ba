"""`--on here`: several dispatchers on this machine, each with a share of the plan."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from agentload.errors import UsageError
from agentload.live.look import cores
from agentload.live.workers.node import NodeProcess
from agentload.model.rows import CallRow
from agentload.remote.seats import HERE, check, count_here, seats
from agentload.store import journal
from agentload.store.places import journals
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.tracefile import write
from tests.remote.fleet import facts, order, served, traced

ROOT = Path(__file__).parents[2]
STUDY = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="a=http://127.0.0.1:1/v1"))


@pytest.mark.parametrize("on", ["slurm", "hereabouts", "rays", ""])
def test_a_place_that_has_no_nodes_is_refused_with_those_that_have(on: str) -> None:
    with pytest.raises(UsageError, match="here, ray or ray:ADDRESS"):
        check(extend(STUDY, on=on))


def test_nodes_keep_no_bytes_of_calls() -> None:
    with pytest.raises(UsageError, match="--keep-raw"):
        check(extend(STUDY, on=HERE, keep_raw="all"))


def test_this_machine_has_a_node_for_each_core_unless_told_otherwise() -> None:
    assert count_here(None) == len(cores())
    assert count_here(5) == 5


async def test_nodes_are_numbered_and_end_where_none_was_started() -> None:
    async with seats(HERE, nodes=3, resume="") as found:
        assert [each.number for each in found] == [1, 2, 3]
        assert all(isinstance(each, NodeProcess) for each in found)


def calls(database: Path) -> list[CallRow]:
    rows = [row for path in journals(database, "r") for row in journal.read(path)]
    return [row for row in rows if isinstance(row, CallRow)]


@pytest.mark.slow
@pytest.mark.loopback
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_two_dispatchers_make_the_calls_of_one(tmp_path: Path, workers: str) -> None:
    trace = tmp_path / "trace.jsonl"
    write(trace, traced(8, wait_s=0.5))
    found: list[list[CallRow]] = []
    async with served() as urls:
        endpoints = ",".join(f"{arm}={url}" for arm, url in urls.items())
        for own in ((), ("--on", HERE, "--nodes", "2", "--workers", workers)):
            database = tmp_path / f"{len(found)}.duckdb"
            place = ("--db", str(database), "--run-id", "r")
            words = ["replay", str(trace), "--endpoints", endpoints, "--pairs", "1", *place, *own]
            running = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "agentload", *words, cwd=ROOT
            )
            assert await running.wait() == 0
            found.append(calls(database))
    one, two = found
    assert facts(two) == facts(one)
    assert len(two) == len(one) > 40
    assert order(two) == order(one)
