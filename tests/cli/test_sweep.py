from __future__ import annotations

from pathlib import Path

import pytest

from agentload.errors import PlanError, UsageError
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.layout import traces as contexts
from agentload.live import health
from agentload.store.database import reading
from agentload.tracefile.files import write
from tests.cli.verbs import agentload
from tests.layout.test_plan import session, trace

SWEPT = (516.0, 1028.0, 2052.0)
"""Contexts of a sweep of 512, 1k and 2k, in the middle of an answer of 8 tokens."""


@pytest.mark.slow
@pytest.mark.loopback
def test_a_context_sweep_is_a_run_whose_evidence_has_the_lines_of_each_arm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "s.duckdb"
    agentload(
        "sweep --endpoints emulated:llama-3.1-8b-h100/bf16+fp8 --contexts 512,1k,2k "
        "--pairs 2 --output 8 --no-noise",
        db=database,
    )
    assert "6       6" in capsys.readouterr().out
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
        evidence = gather(connection, run_view(connection, run))
        # A busy machine may read all tokens of an answer at once: then they have no pace.
        calls = connection.execute(
            "SELECT arm, context_tokens + 4.0, tpot_ms IS NULL FROM turns ORDER BY ALL"
        ).fetchall()
    assert [(arm, tokens) for arm, tokens, _ in calls] == [
        (arm, tokens) for arm in ("bf16", "fp8") for tokens in SWEPT for _ in range(2)
    ]
    assert [
        (each.arm, tokens) for each in evidence.sweeps for tokens in sorted(each.context_tokens)
    ] == [(arm, tokens) for arm, tokens, is_at_once in calls if not is_at_once]


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_a_context_sweep_beside_a_replay_gives_its_report_lines_and_is_none_of_its_workloads(
    tmp_path: Path,
) -> None:
    database, short = tmp_path / "s.duckdb", tmp_path / "short.jsonl"
    write(short, trace(*(session(f"s{number}") for number in range(4))))
    arms = "emulated:llama-3.1-8b-h100/bf16+fp8"
    agentload("replay --pairs 2 --sessions 1 --no-noise", short, endpoints=arms, db=database)
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    with pytest.raises(PlanError, match="has an arm 'bf16' and the endpoints have not"):
        agentload(
            "sweep --endpoints emulated:llama-3.1-8b-h100/fp8 --contexts 512", db=database, into=run
        )
    agentload(
        "sweep --contexts 512,1k --pairs 2 --output 4 --no-noise",
        endpoints=arms,
        db=database,
        into=run,
    )
    with reading(database) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        assert connection.execute(
            "SELECT leg, count(DISTINCT pair) FROM blocks GROUP BY leg ORDER BY leg"
        ).fetchall() == [(1, 2), (2, 2)]
        evidence = gather(connection, run_view(connection, run))
    assert [each.name for each in evidence.workloads] == ["w"]
    assert [
        (each.arm, len(each.itl_ms), sorted(set(each.pair.tolist()))) for each in evidence.sweeps
    ] == [("bf16", 4, [1_000_000, 1_000_001]), ("fp8", 4, [1_000_000, 1_000_001])]


@pytest.mark.loopback
def test_a_search_for_concurrency_tells_each_trial_and_what_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        health, "void_reason", lambda **_: None
    )  # whatever else this machine does meanwhile
    short = tmp_path / "short.jsonl"
    write(short, contexts.sweep((256, 512), pairs=2, output=64, seed=1))
    arm = "emulated:llama-3.1-8b-h100/fp8"
    agentload(
        "sweep --concurrency --start 1 --seconds 0.6 --slo tpot=0.1 --no-noise",
        endpoints=arm,
        trace=short,
    )
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["fp8", "–", "–", "2", "slo", "1"]
    assert "0% of" in printed.err


def test_one_kind_of_sweep_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="either"):
        agentload("sweep --endpoints a=http://x/v1")
    with pytest.raises(UsageError, match="either"):
        agentload("sweep --endpoints a=http://x/v1 --contexts 1k --concurrency")
    with pytest.raises(UsageError, match="--start must be >= 1, got 0"):
        agentload("sweep --endpoints a=http://x/v1 --concurrency --start 0")
