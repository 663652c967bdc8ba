from __future__ import annotations

from pathlib import Path

import pytest

from agentload.cli import sweep
from agentload.errors import UsageError
from agentload.evidence.gather import gather
from agentload.experiment import contexts
from agentload.store.database import reading
from agentload.tracefile.writer import write


@pytest.mark.loopback
def test_a_context_sweep_is_a_run_whose_evidence_has_the_lines_of_each_arm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = tmp_path / "s.duckdb"
    sweep.run(endpoints="emulated:llama-3.1-8b-h100/bf16+fp8", context="512,1k,2k", pairs=2, output=8, db=database, noise=False)
    assert "6       6" in capsys.readouterr().out
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
        evidence = gather(connection, run)
    assert [(each.arm, sorted(each.context_tokens.tolist())) for each in evidence.sweeps] == [
        (arm, [516.0, 516.0, 1028.0, 1028.0, 2052.0, 2052.0]) for arm in ("bf16", "fp8")
    ]


@pytest.mark.loopback
def test_a_search_for_concurrency_tells_each_trial_and_what_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = tmp_path / "short.jsonl"
    write(short, contexts.sweep((256, 512), pairs=2, output=4, seed=1))
    arm = "emulated:llama-3.1-8b-h100/fp8"
    sweep.run(endpoints=arm, trace=str(short), concurrency=True, start=1, seconds=0.6, slo="tpot=0.1", noise=False)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == ["fp8", "–", "1", "1"]
    assert "0% of" in printed.err


def test_one_kind_of_sweep_has_to_be_named() -> None:
    with pytest.raises(UsageError, match="either"):
        sweep.run(endpoints="a=http://x/v1")
    with pytest.raises(UsageError, match="either"):
        sweep.run(endpoints="a=http://x/v1", context="1k", concurrency=True)
