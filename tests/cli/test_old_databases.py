"""What older versions wrote is read, judged, listed and added to as what this one writes."""

import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.builtin import find
from agentload.cli.main import main
from agentload.model.rows import ArmRow, RunRow
from agentload.store import tables
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from agentload.study.stored import clock_start_of, study_of
from agentload.ui.pages.jobs import jobs
from agentload.ui.pages.listed import comparisons, decisions, overview, runs
from agentload.ui.pages.run import run
from agentload.ui.source import Query
from tests.databases import COMMITS, unpacked

Called = Callable[..., tuple[int, str, str]]
SIMULATED = {"9618594": "sim-b3d83edf4e", "7933c57": "sim-d4ce3c3898", "ed8c596": "sim-f0f7bfcc0e"}


OLDEST, *LATER = COMMITS  # the oldest lacks most of what is read


@pytest.fixture(params=[OLDEST, *(pytest.param(each, marks=pytest.mark.slow) for each in LATER)])
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(commit: str, tmp_path: Path) -> Path:
    return unpacked(f"{commit}.duckdb", tmp_path / "old.duckdb")


@pytest.fixture
def agentload(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Called:
    """Run the command in this process; return its exit
    code, what it printed and what it complained of.
    """

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["agentload", *arguments])
        return main(), *capfd.readouterr()

    return called


def described(database: Path) -> tuple[RunRow, ...]:
    with reading(database) as connection:
        return tables.rows(connection, RunRow)


def test_runs_are_listed_reported_and_advised_on(commit: str, old: Path, agentload: Called) -> None:
    code, out, _ = agentload("runs", "list", "old.duckdb", "--json")
    names = [each["run_id"] for each in json.loads(out)]
    assert (code, names) == (0, [row.run_id for row in described(old)])
    for name in names[
        :3
    ]:  # a simulation, an evaluation and a sweep; what comes then was stopped, or is a job's
        assert agentload("runs", "show", name, "--db", "old.duckdb")[0] == 0
        code, out, _ = agentload("advise", "old.duckdb", "--run", name, "--json")
        assert (code, json.loads(out)["made"]["run"]) == (0, name)
    code, out, _ = agentload("report", "old.duckdb", "--run", SIMULATED[commit], "--out", "reports")
    assert (code, "decision.html" in out) == (0, True)


def test_runs_of_two_versions_are_compared_once_one_is_loaded(
    commit: str, tmp_path: Path, old: Path, agentload: Called
) -> None:
    assert old.is_file()
    other = next(each for each in COMMITS if each != commit)
    unpacked(f"{other}.journal", tmp_path / "other.journal")
    assert agentload("runs", "load", "other.journal", "--db", "old.duckdb")[0] == 0
    both = f"{SIMULATED[commit]},{SIMULATED[other]}"
    code, out, _ = agentload("compare", "old.duckdb", "--runs", both, "--json")
    assert (code, json.loads(out)["made"]["compared_with"]) == (0, SIMULATED[commit])


def test_new_runs_go_in_beside_the_old_ones(old: Path, agentload: Called) -> None:
    before = described(old)
    options = "--profile llama-3.1-8b-h100 --arms bf16,fp8 --pairs 2 --max-calls 4 --db old.duckdb"
    assert agentload("simulate", "short_chat", *options.split())[0] == 0
    *first, latest = described(old)
    assert (tuple(first), latest.study is not None) == (before, True)


def test_pages_show_them(commit: str, old: Path) -> None:
    with reading(old) as connection:
        listed = runs(connection, Query(page="runs"))
        names = [line.run.run_id for line in listed.lines]
        assert names[-1] == SIMULATED[commit]
        assert [
            run(connection, Query(page="run", name=name)).summary.run.run_id for name in names
        ] == names
        assert decisions(connection, Query(page="decisions")).total == 0
        assert comparisons(connection, Query(page="comparisons")).groups == ()
        watched = [] if commit == "9618594" else ["nightly"]
        assert [line.job for line in jobs(connection, Query(page="jobs")).lines] == watched
        unloaded = overview(
            connection, Query(page="overview", journalled=(names[0], "another"))
        ).unloaded
        assert unloaded == ("another",)


def test_an_old_run_opens_though_it_stored_no_study(old: Path) -> None:
    rows = described(old)
    assert rows
    assert {study_of(row) for row in rows} == {None}
    assert {clock_start_of(study_of(row)) for row in rows} == {"due"}


def test_a_run_whose_study_nobody_wrote_down_cannot_be_resumed(
    agentload: Called, tmp_path: Path
) -> None:
    with reading(unpacked("9618594.duckdb", tmp_path / "old.duckdb")) as connection:
        simulated, *_ = tables.rows(connection, RunRow)
        arms = tables.rows(connection, ArmRow, run_id=simulated.run_id)
    now = hashlib.sha256(find("traces", "short_chat").read_bytes()).hexdigest()
    unknown = replace(simulated, command="agentload", options="{}", trace_hash=now)
    folder = journal_folder(tmp_path / "old.duckdb", unknown.run_id)
    folder.mkdir(parents=True)
    with Writer(folder / "leg001.journal") as journal:
        journal.append(unknown)
        for arm in arms:
            journal.append(arm)
    servers = ("--endpoints", "emulated:llama-3.1-8b-h100", "--pairs", "2", "--max-calls", "4")
    code, _, said = agentload(
        "replay", "short_chat", *servers, "--db", "old.duckdb", "--resume", unknown.run_id
    )
    assert (code, "is of an older version" in said, "hint: replay it again" in said) == (
        1,
        True,
        True,
    ), said
