from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentload.cli import main as cli


def agentload(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["agentload", *arguments])
    return cli.main()


def test_every_shipped_profile_is_listed_with_the_arms_that_can_be_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agentload(monkeypatch, "profile", "list", "--json") == 0
    listed = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert listed["gpt-oss-20b-h100"]["arms"] == ["bf16", "fp8", "fp8-skip-sw"]
    assert listed["kimi-k2.5-accuracy"] == {
        "name": "kimi-k2.5-accuracy",
        "title": listed["kimi-k2.5-accuracy"]["title"],
        "arms": [],
        "accuracy_only": ["bf16", "fp8"],
    }


def test_a_profile_is_shown_with_its_figures_and_their_sources(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agentload(monkeypatch, "profile", "show", "llama-3.1-8b-h100") == 0
    shown = capsys.readouterr().out
    assert "6.44 ms + 4.37e-05 ms a cached token" in shown
    assert "source        blog:" in shown
    assert agentload(monkeypatch, "profile", "show", "lama-3.1-8b-h100") == 1
    assert "llama-3.1-8b-h100" in capsys.readouterr().err


def test_arms_of_a_prior_say_what_they_are_and_that_nobody_has_measured_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert agentload(monkeypatch, "profile", "show", "llama-3.1-8b-h100-priors") == 0
    arms = {part.partition(":")[0]: part for part in capsys.readouterr().out.split("\n\n")}
    tier = (
        "64 GiB of KV blocks outside the GPU, read back at 50 GB/s, lost when the server restarts"
    )
    assert {name for name, part in arms.items() if tier in part} == {"bf16-offload", "fp8-offload"}
    assert "4 tokens a step (ngram), each kept in 72.5%" in arms["bf16-drafts"]
    priors = {name for name, part in arms.items() if "a prior that nobody has measured" in part}
    assert priors == {name for name in arms if name.startswith(("bf16-", "fp8-"))}


@pytest.mark.slow
def test_a_simulated_rocm_server_is_a_prior_whose_known_issue_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The issue is of the dtype that vLLM fell back to on that card, without a word."""
    database = str(tmp_path / "x.duckdb")
    simulated = ["demo-rag", "--profile", "llama-3.1-8b-mi300x-prior", "--sessions", "2"]
    assert agentload(monkeypatch, "simulate", *simulated, "--db", database) == 0
    capsys.readouterr()
    assert agentload(monkeypatch, "advise", database, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    known = [each for each in document["decision"]["findings"] if each["rule"] == "known_issues"]
    assert [each["arm"] for each in known] == ["fp8"]
    assert known[0]["message"].startswith("vllm#45562, closed as of ")
    assert "unvalidated_backend" in {each["rule"] for each in document["decision"]["skipped"]}
    assert "prior" in json.dumps(document)


@pytest.mark.slow
def test_a_profile_fitted_to_a_run_gives_back_what_the_run_was_made_with(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    database, mine = str(tmp_path / "x.duckdb"), str(tmp_path / "mine.yaml")
    simulated = [
        "demo-rag",
        "demo-chat",
        "--profile",
        "llama-3.1-8b-h100",
        "--db",
        database,
        "--sessions",
        "2",
        "--no-noise",
    ]
    assert agentload(monkeypatch, "simulate", *simulated) == 0
    capsys.readouterr()
    assert (
        agentload(
            monkeypatch,
            "profile",
            "fit",
            database,
            "--like",
            "llama-3.1-8b-h100",
            "-o",
            mine,
            "--json",
        )
        == 0
    )
    step = json.loads(capsys.readouterr().out)["fp8"]["step"]
    assert step["decode_ms"] == pytest.approx(6.58, rel=0.02)
    assert step["decode_ms_per_token"] == pytest.approx(2.37e-5, rel=0.1)
    assert step["prefill_ms_per_token"] == pytest.approx(0.02286, rel=0.1)
    assert agentload(monkeypatch, "simulate", "demo-chat", "--profile", mine, "--db", database) == 0


def test_a_run_without_arms_of_the_profile_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    database = str(tmp_path / "x.duckdb")
    assert (
        agentload(
            monkeypatch,
            "simulate",
            "demo-chat",
            "--profile",
            "llama-3.1-8b-h100",
            "--arms",
            "bf16",
            "--db",
            database,
        )
        == 0
    )
    assert (
        agentload(
            monkeypatch,
            "profile",
            "fit",
            database,
            "--like",
            "kimi-k2.5-accuracy",
            "-o",
            str(tmp_path / "m.yaml"),
        )
        == 1
    )
    assert "kimi-k2.5-accuracy" in capsys.readouterr().err
