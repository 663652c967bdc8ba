"""Windows are the same calls on real sockets and in virtual time:
the same sessions, turns and sizes, whatever a server takes for them.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import duckdb
import msgspec
import pytest

import agentload
from agentload.model.rows import BlockRow
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.store import tables
from agentload.store.database import reading
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef, Virtual

ARMS = ("bf16", "fp8")
PROFILE = "llama-3.1-8b-h100"
LOAD = Load(sessions=3, duration_s=4.0, wait_cap_s={"user": 0.2, "tool": 0.1})
STUDY = Replay(
    traces=(TraceRef(path="demo-chat"),),
    servers=Virtual(profile=PROFILE, arms=ARMS, noise=False),
    pairs=2,
    windows=6,
    load=LOAD,
    seed=3,
)


def sent(database: Path) -> tuple[dict[tuple[object, ...], list[tuple[object, ...]]], list[str]]:
    """Return what each session sent in each block, in its order, and the salts of the blocks."""
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(
            "SELECT pair, arm, session, turn, context_tokens, asked_tokens, prime FROM "
            "calls_row WHERE NOT tail ORDER BY turn"
        ).fetchall()
    found = defaultdict[tuple[object, ...], list[tuple[object, ...]]](list)
    for pair, arm, session, *call in rows:
        found[pair, arm, session].append(tuple(call))
    with reading(database) as connection:
        salts = sorted({each.salt for each in tables.rows(connection, BlockRow, run_id="w")})
    return found, salts


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_live_windows_are_those_of_virtual_time_call_by_call(tmp_path: Path) -> None:
    agentload.simulate(STUDY, db=tmp_path / "virtual.duckdb", run_id="w")
    with start(arms_of(PROFILE, ARMS), ServerOptions(noise=False)) as servers:
        endpoints = ",".join(f"{arm}={url}" for arm, url in servers.urls.items())
        agentload.replay(
            msgspec.structs.replace(STUDY, servers=Live(endpoints=endpoints)),
            db=tmp_path / "live.duckdb",
            run_id="w",
        )
    (simulated, salts), (played, played_salts) = (
        sent(tmp_path / "virtual.duckdb"),
        sent(tmp_path / "live.duckdb"),
    )
    assert salts == played_salts
    primed = {key for key, calls in simulated.items() if calls[0][-1]}
    assert len(primed) >= 2 * 2 * 3
    assert primed == {key for key, calls in played.items() if calls[0][-1]}
    both = simulated.keys() & played.keys()
    assert len(both) >= 0.8 * max(len(simulated), len(played)), (
        "only sessions that follow late may be one side's alone"
    )
    for key in both:
        shared = min(len(simulated[key]), len(played[key]))
        assert simulated[key][:shared] == played[key][:shared]
    calls = sum(len(simulated[key]) for key in both), sum(len(played[key]) for key in both)
    assert min(calls) > 24
