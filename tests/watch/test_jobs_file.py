"""A jobs file is read strictly and edited without losing what it says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentload.cli.watch.executions import run
from agentload.errors import AgentloadError
from agentload.watch.jobs_file import add, environment_file, read_environment, read_jobs, remove
from tests.cli.watch.jobs import watch_file

ENTRY = {
    "traces": ["rag"],
    "endpoints": "prod=http://127.0.0.1:8000/v1",
    "schedule": {"cron": "0 2 * * *", "time_zone": "Europe/Berlin"},
}


def test_jobs_that_are_added_can_be_read_and_removed_again(tmp_path: Path) -> None:
    path = tmp_path / "watch.yaml"
    add(path, "one", ENTRY)
    add(path, "two", {**ENTRY, "budget": {"calls": 40}})
    jobs = read_jobs(path)
    assert [(each.name, each.budget.calls, each.schedule.time_zone) for each in jobs.jobs] == [
        ("one", None, "Europe/Berlin"),
        ("two", 40, "Europe/Berlin"),
    ]
    assert jobs.database == tmp_path / "watch.duckdb"
    remove(path, "one")
    assert [each.name for each in read_jobs(path).jobs] == ["two"]


def test_comments_survive_an_added_job(tmp_path: Path) -> None:
    path = tmp_path / "watch.yaml"
    add(path, "one", ENTRY)
    path.write_text("# ours\n" + path.read_text())
    add(path, "two", ENTRY)
    assert path.read_text().startswith("# ours\n")
    assert len(read_jobs(path).jobs) == 2


def test_a_file_that_is_laid_out_otherwise_is_still_extended(tmp_path: Path) -> None:
    path = tmp_path / "watch.yaml"
    path.write_text("jobs: {}\n")
    add(path, "one", ENTRY)
    assert [each.name for each in read_jobs(path).jobs] == ["one"]


def test_paths_are_those_beside_the_file_wherever_it_is_called_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    for folder in (home, home / "traces", tmp_path, tmp_path / "traces"):
        folder.mkdir(exist_ok=True)
        for name in ("mine.jsonl", "chat.jsonl", "arms.yaml"):
            (folder / name).write_text("")
    monkeypatch.chdir(tmp_path)
    entry = {
        **ENTRY,
        "traces": ["mine.jsonl", "./mine.jsonl", "../mine.jsonl", "chat", "rag"],
        "endpoints": "arms.yaml",
    }
    added = add(home / "watch.yaml", "one", entry)
    beside = str(home / "mine.jsonl")
    assert added.traces == (
        beside,
        beside,
        str(tmp_path / "mine.jsonl"),
        str(home / "traces/chat.jsonl"),
        "rag",
    )
    assert added.endpoints == str(home / "arms.yaml")


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [("traces", ["./mine.jsonl"], "trace"), ("endpoints", "./mine.yaml", "arms file")],
)
def test_a_path_that_is_relative_to_the_shell_is_refused_with_the_one_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: object, what: str
) -> None:
    (tmp_path / "mine.jsonl").write_text("")
    (tmp_path / "mine.yaml").write_text("")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(AgentloadError, match=f"no {what} '") as caught:
        add(Path("elsewhere/jobs.yaml"), "one", {**ENTRY, key: value})
    assert str(caught.value.hint).startswith("paths are relative to elsewhere/jobs.yaml: ../mine.")
    assert not Path("elsewhere/jobs.yaml").exists()


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({**ENTRY, "traces": []}, "traces names at least one"),
        ({**ENTRY, "endpoints": "prod=http://me:secret@h/v1"}, "endpoints holds a password"),
        ({**ENTRY, "pairs": 2}, "pairs must be >= 3"),
        ({**ENTRY, "shedule": 1}, "unknown field `shedule`"),
        ({**ENTRY, "metrics": ["tftt_ms"]}, "Invalid enum value 'tftt_ms'"),
        ({**ENTRY, "budget": {"minutes": 0}}, "budget.minutes must be positive"),
        (
            {**ENTRY, "budget": {"minutes": float("nan")}},
            "budget.minutes must be a finite number, got nan",
        ),
        ({**ENTRY, "budget": {"usd": float("inf")}}, "budget.usd must be a finite number, got inf"),
        (
            {**ENTRY, "schedule": {"cron": "0 2 * * *", "stagger_s": float("-inf")}},
            "schedule.stagger_s must be a finite number, got -inf",
        ),
        (
            {**ENTRY, "load": {"wait_cap_s": {"user": float("inf")}}},
            "load.wait_cap_s.user must be a finite number, got inf",
        ),
        (
            {**ENTRY, "policy": {"slos": [{}, {"ttft_ms": float("nan")}]}},
            "policy.slos.1.ttft_ms must be a finite number, got nan",
        ),
        ({**ENTRY, "load": {"sessions": 0}}, "load.sessions must be >= 1"),
        ({**ENTRY, "load": {"max_in_flight": 0}}, "load.max_in_flight must be >= 1"),
        ({**ENTRY, "load": {"rate_per_s": 0}}, "load.rate_per_s must be positive"),
        (
            {**ENTRY, "load": {"wait_scale": {"user": -1}}},
            "load.wait_scale must be zero or more, got -1",
        ),
        ({**ENTRY, "schedule": {"cron": "0 2"}}, "expected five fields"),
        (
            {**ENTRY, "load": {"sessions": 2, "rate_per_s": 1.0}},
            "job 'one': load.sessions (closed loop) and load.rate_per_s (open loop) exclude each",
        ),
        ({**ENTRY, "policy": {"min_chnge": 1}}, "min_chnge"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(
    tmp_path: Path, entry: dict[str, object], message: str
) -> None:
    with pytest.raises(AgentloadError) as caught:
        add(tmp_path / "watch.yaml", "one", entry)
    assert message in caught.value.message
    assert not (tmp_path / "watch.yaml").exists()


def test_a_name_that_no_scheduler_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AgentloadError, match="a name has small letters"):
        add(tmp_path / "watch.yaml", "Nightly run", ENTRY)


def test_a_job_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    add(tmp_path / "watch.yaml", "one", ENTRY)
    with pytest.raises(AgentloadError) as caught:
        read_jobs(tmp_path / "watch.yaml").named("two")
    assert caught.value.hint == "its jobs: one"


def test_a_trace_that_is_not_there_is_refused_when_the_job_is_added_and_not_in_the_night(
    tmp_path: Path,
) -> None:
    with pytest.raises(AgentloadError, match="no trace 'ragg'") as caught:
        add(tmp_path / "watch.yaml", "one", {**ENTRY, "traces": ["ragg"]})
    assert str(caught.value.hint).startswith("did you mean rag")
    assert not (tmp_path / "watch.yaml").exists()


def written(folder: Path, text: str, *, mode: int = 0o600) -> Path:
    path = environment_file(folder / "watch.yaml")
    path.write_text(text)
    path.chmod(mode)
    return path


def test_variables_are_read_as_a_shell_would(tmp_path: Path) -> None:
    path = written(tmp_path, "# ours\nKEY=sk-1=2\n\nexport HOOK='https://x/y z'\nEMPTY=\n")
    assert path.name == "watch.env"
    assert read_environment(path) == {"KEY": "sk-1=2", "HOOK": "https://x/y z", "EMPTY": ""}
    assert read_environment(tmp_path / "none.env") == {}


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [("KEY=x", 0o640, "others may read it"), ("A=1\nsk-secret", 0o600, ":2: expected NAME=")],
)
def test_a_file_that_is_not_right_is_refused_without_its_content(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    with pytest.raises(AgentloadError, match=message) as caught:
        read_environment(written(tmp_path, text, mode=mode))
    assert "sk-secret" not in caught.value.message


def test_what_the_caller_set_wins_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OURS", "set")
    monkeypatch.delenv("AGENTLOAD_TEST_HOOK", raising=False)
    written(tmp_path, "OURS=file\nAGENTLOAD_TEST_HOOK=https://x\n")
    run("nightly", file=watch_file(tmp_path, schedule={"cron": "0 0 29 2 *"}), scheduled=True)
    assert (os.environ["OURS"], os.environ["AGENTLOAD_TEST_HOOK"]) == ("set", "https://x")
    monkeypatch.delenv("AGENTLOAD_TEST_HOOK")
