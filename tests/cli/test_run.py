"""A study that was printed is the run that was typed, on another day and from another folder."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.cli._print import notice, worded_by
from agentload.errors import PlanError, TraceError, UsageError
from agentload.model.rows import CallRow, RunRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.store import journal
from agentload.store.places import journals
from agentload.tracefile import write
from tests.cli.verbs import agentload

SIMULATED = "simulate tiny.jsonl --profile llama-3.1-8b-h100 --arms bf16,fp8 --pairs 2 --sessions 2"
SEARCHED = (
    "simulate tiny.jsonl --profile llama-3.1-8b-h100 --arms bf16 --find max-rate --slo ttft=500"
)
EMULATED = (
    "replay tiny.jsonl --endpoints emulated:llama-3.1-8b-h100/bf16 --pairs 2 --sessions 2 "
    "--wait-cap user=0"
)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    turns = (Turn(add=(Segment(role="user", tokens=40, key="u"),), output=4),)
    sessions = tuple(
        Session(session=f"s{number}", workload="chat", start_s=float(number), turns=turns)
        for number in range(4)
    )
    write(tmp_path / "tiny.jsonl", Trace(header=Header(name="tiny", seed=1), sessions=sessions))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def printed(line: str, path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    capsys.readouterr()
    agentload(f"{line} --print-study")
    path.parent.mkdir(exist_ok=True)
    path.write_text(capsys.readouterr().out)
    return path


def written(database: str, run: str) -> bytes:
    return b"".join(path.read_bytes() for path in journals(Path(database), run))


def prompts(database: str, run: str) -> set[tuple[int, str, int, str | None]]:
    rows = (
        row
        for path in journals(Path(database), run)
        for row in journal.read(path)
        if isinstance(row, CallRow)
    )
    return {(row.pair, row.session, row.turn, row.prompt_hash) for row in rows}


def test_a_printed_study_simulates_the_same_bytes_under_one_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = printed(SIMULATED, here / "study.yaml", capsys)
    agentload(f"{SIMULATED} --run-id r --db x.duckdb")
    first = written("x.duckdb", "r")
    agentload(f"run {study} --run-id r --db x.duckdb")
    assert written("x.duckdb", "r") == first


@pytest.mark.loopback
def test_a_printed_study_sends_the_same_prompts_under_one_name(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = printed(EMULATED, here / "study.yaml", capsys)
    agentload(f"{EMULATED} --run-id r --db a.duckdb")
    agentload(f"run {study} --run-id r --db b.duckdb")
    assert prompts("a.duckdb", "r") == prompts("b.duckdb", "r") != set()


def test_paths_of_a_study_are_relative_to_its_file(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = printed(SIMULATED, here / "study.yaml", capsys)
    elsewhere = here / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    agentload(f"run ../{study.name} --run-id r --db x.duckdb")
    (run,) = (
        row
        for path in journals(Path("x.duckdb"), "r")
        for row in journal.read(path)
        if isinstance(row, RunRow)
    )
    assert run.command.startswith("agentload simulate ../tiny.jsonl ")


def test_a_trace_that_holds_something_else_than_the_study_says_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = printed(SIMULATED, here / "study.yaml", capsys)
    (here / "tiny.jsonl").write_text(
        (here / "tiny.jsonl").read_text().replace('"output":4', '"output":5')
    )
    with pytest.raises(TraceError, match="not the trace that the study was written for"):
        agentload(f"run {study} --db x.duckdb")


def test_no_password_of_a_url_is_printed_or_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = (
        "replay tiny.jsonl --endpoints a=http://me:hunter2@127.0.0.1:1/v1?token=hunter2 "
        "--api-key-env KEY"
    )
    study = printed(line, here / "study.yaml", capsys)
    assert "hunter2" not in study.read_text()
    assert "api_key_env: KEY" in study.read_text()


def test_what_is_wrong_with_a_study_is_said_in_its_fields(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = printed(SIMULATED.replace("--sessions 2", "--sessions 9"), here / "many.yaml", capsys)
    with pytest.raises(PlanError) as error:
        agentload(f"run {file}")
    assert error.value.message.startswith("load: {sessions: 9} is never reached")
    assert error.value.hint is not None
    assert "else load: {sessions: 2}, fewer pairs" in error.value.hint
    assert "--" not in error.value.hint
    with pytest.raises(UsageError) as of_place:
        agentload(f"run {file} --into RUN --run-id r")
    assert of_place.value.message.startswith("--into ")  # an option that this verb has


def test_what_a_study_would_do_is_said_in_its_fields(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = Turn(add=(Segment(role="user", tokens=40, key="u"),), output=4)
    later = replace(first, wait_s=4_000.0, wait="user")
    sessions = (Session(session="s", workload="chat", start_s=0.0, turns=(first, later)),)
    write(here / "tiny.jsonl", Trace(header=Header(name="tiny", seed=1), sessions=sessions))
    line = EMULATED.replace("--pairs 2 --sessions 2 --wait-cap user=0", "--pairs 1")
    file = printed(line, here / "long.yaml", capsys)
    agentload(f"{line} --dry-run")
    assert "--wait-cap user=" in capsys.readouterr().out
    agentload(f"run {file} --dry-run")
    said = capsys.readouterr().out
    assert "load: {wait_cap_s: {user: " in said
    assert not re.search("--(?!dry-run)", said)


def test_what_is_noticed_is_said_in_the_words_of_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = "shorter with --max-calls 9", "resume with: agentload run x.yaml --max-calls 9"
    with worded_by(lambda text: text.replace("--max-calls ", "budget.calls: ")):
        for text in said:
            notice(text)
    notice(said[0])
    assert capsys.readouterr().err.splitlines() == [
        "shorter with budget.calls: 9",
        said[1],  # a whole command is typed
        said[0],
    ]


def test_a_file_that_is_no_study_is_refused_with_its_name(here: Path) -> None:
    with pytest.raises(UsageError, match=r"no\.yaml: no such file"):
        agentload("run no.yaml")
    (here / "binary.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match=r"binary\.yaml:1: not text"):
        agentload("run binary.yaml")


@pytest.mark.parametrize(
    ("line", "place", "says"),
    [
        (
            EMULATED,
            "--into RUN",
            "--into keeps sweeps, searches and questions beside a run, and this is a replay",
        ),
        (SIMULATED, "--into RUN", "--into does nothing without --find"),
        (
            SEARCHED,
            "--into RUN",
            "--into keeps searches for max-concurrency, and this is one for max-rate",
        ),
        (SIMULATED, "--resume RUN", "--resume continues a replay on servers, questions to them"),
        (
            "sweep --contexts 1k --endpoints emulated:llama-3.1-8b-h100",
            "--resume RUN",
            "--resume continues a replay on servers",
        ),
        (
            "probe --endpoints emulated:llama-3.1-8b-h100",
            "--into RUN",
            "a probe stores nothing: --into does nothing",
        ),
        (
            "probe --endpoints emulated:llama-3.1-8b-h100",
            "--run-id r",
            "--run-id names a run, and a probe is none",
        ),
        (
            EMULATED,
            "--resume RUN --run-id r",
            "--run-id names a new run, --resume and --into one that there is",
        ),
    ],
)
def test_a_study_is_kept_where_one_of_its_kind_can_be_before_any_run_is_looked_up(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, place: str, says: str
) -> None:
    study = printed(line, here / "study.yaml", capsys)
    with pytest.raises(UsageError) as error:
        agentload(
            f"run {study} --db nowhere.duckdb {place}"
            if "probe" not in line
            else f"run {study} {place}"
        )
    assert error.value.message.startswith(says)
    assert error.value.hint
