from __future__ import annotations

import json
import socket
import sys
from pathlib import Path

import duckdb
import pytest
import yaml

from agentload.errors import UsageError
from agentload.evidence.gather import gather
from agentload.store.database import reading
from agentload.tracefile.files import write
from tests.cli.verbs import agentload
from tests.layout.test_plan import session, trace


def arms_file(folder: Path, *arms: str, first: str | None = None) -> str:
    """Emulated arms that share a port, as servers share a GPU: two at once cannot be.

    The *first* start of each meets these faults.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "faults.yaml").write_text(f"faults: [{first}]" if first else "faults: []")
    entries = {}
    for arm in arms:
        serve = (
            f"exec {Path(sys.executable).with_name('agentload')} emulate "
            f"llama-3.1-8b-h100/{arm} --port {port}"
        )
        mark = folder / f"{arm}.started"
        script = (
            f"if test -e {mark}; then {serve}; else touch {mark}; {serve} --faults "
            f"{folder / 'faults.yaml'}; fi"
        )
        entries[arm] = {
            "url": f"http://127.0.0.1:{port}/v1",
            "expect": {"kv_cache_dtype": arm},
            "launch": ["sh", "-c", script],
        }
    path = folder / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"arms": entries}))
    return str(path)


def short(folder: Path) -> str:
    path = folder / "t.jsonl"
    write(path, trace(*(session(f"s{number}") for number in range(8))))
    return str(path)


@pytest.mark.slow
@pytest.mark.loopback
def test_arms_that_cannot_run_side_by_side_are_started_in_turn_and_each_pair_carries_its_start(
    tmp_path: Path,
) -> None:
    database = tmp_path / "r.duckdb"
    agentload(
        "replay --pairs 4 --restarts 2 --launch --sessions 2",
        short(tmp_path),
        endpoints=arms_file(tmp_path, "bf16", "fp8"),
        db=database,
        logs=tmp_path / "logs",
    )
    with reading(database) as connection:
        ((run, study),) = connection.execute("SELECT run_id, study FROM runs").fetchall()
        evidence = gather(connection, run)
        assert connection.execute("SELECT count(*), count(void) FROM blocks").fetchall() == [(8, 0)]
    starts = {
        each.arm: sorted(
            dict.fromkeys(zip(each.calls.pair.tolist(), each.calls.restart.tolist(), strict=True))
        )
        for each in evidence.observations
        if each.calls
    }
    assert [[pair for pair, _ in found] for found in starts.values()] == [[0, 1, 2, 3]] * 2
    assert all(len({start for _, start in found}) == 2 for found in starts.values())
    assert json.loads(study)["servers"]["restarts"] == 2
    assert all(each.calls.ok.all() for each in evidence.observations if each.calls)
    assert len(list((tmp_path / "logs").glob("*/*.log"))) == 5  # one more to see what both are


@pytest.mark.slow
@pytest.mark.loopback
def test_a_control_is_a_start_of_its_own_of_the_server_that_it_copies(tmp_path: Path) -> None:
    database = tmp_path / "r.duckdb"
    agentload(
        "replay --pairs 1 --aa fp8 --launch --sessions 1",
        short(tmp_path),
        endpoints=arms_file(tmp_path, "fp8"),
        db=database,
        logs=tmp_path / "logs",
    )
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute(
            "SELECT arm, count(DISTINCT facts ->> 'process_start_s') FROM fingerprints "
            "GROUP BY arm ORDER BY arm"
        ).fetchall()
        assert connection.execute("SELECT count(*), count(void) FROM blocks").fetchall() == [(2, 0)]
    # The control is not met on its own, and the start of whichever plays first is kept.
    assert sorted(count for _, count in rows) == [1, 2]
    assert len(list((tmp_path / "logs").glob("*/*.log"))) == 2


@pytest.mark.slow
@pytest.mark.loopback
def test_a_server_that_dies_in_its_block_is_started_anew_and_its_pair_played_again(
    tmp_path: Path,
) -> None:
    database = tmp_path / "r.duckdb"
    # Three requests prime the server; the block dies of its sixth.
    arms = arms_file(tmp_path, "fp8", first="{kind: crash, after_tokens: 0, only: 9}")
    agentload(
        "replay --pairs 1 --launch --sessions 1",
        short(tmp_path),
        endpoints=arms,
        db=database,
        logs=tmp_path / "logs",
    )
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute("SELECT void, salt FROM blocks ORDER BY round").fetchall()
    assert [(void, salt.endswith("~1")) for void, salt in rows] == [
        ("fp8 died during the block", False),
        (None, True),
    ]


def test_a_dry_run_counts_the_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    agentload(
        "replay --pairs 4 --restarts 2 --aa bf16 --launch --dry-run",
        short(tmp_path),
        endpoints=arms_file(tmp_path, "bf16", "fp8"),
    )
    assert "starts    7 of servers, one at a time" in capsys.readouterr().out


def test_there_must_be_something_to_start(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a has no launch command"):
        agentload("replay rag --endpoints a=http://127.0.0.1:9/v1 --launch")
    with pytest.raises(UsageError, match="emulated ones are started anyway"):
        agentload("replay rag --endpoints emulated:llama-3.1-8b-h100 --launch")


@pytest.mark.slow
@pytest.mark.loopback
def test_a_server_that_dies_of_its_load_is_started_again_and_the_steps_are_kept_beside_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "r.duckdb"
    arms = arms_file(tmp_path, "fp8", first="{kind: crash, after_tokens: 0, only: 30}")
    agentload(
        "replay --endpoints emulated:llama-3.1-8b-h100/fp8 --pairs 1 --sessions 1",
        short(tmp_path),
        db=database,
    )
    with duckdb.connect(str(database), read_only=True) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    agentload(
        "sweep --concurrency --start 2 --seconds 1.5 --slo ttft=1 --launch",
        endpoints=arms,
        trace=short(tmp_path),
        db=database,
        into=run,
        logs=tmp_path / "logs",
    )
    assert "it died: ended with code 0" in capsys.readouterr().err
    with duckdb.connect(str(database), read_only=True) as connection:
        rows = connection.execute("SELECT arm, probe, outcome FROM probes").fetchall()
    assert ("fp8", "capacity", "died") in rows
