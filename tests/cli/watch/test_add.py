"""A job that is added from the docs' example is one that its time limit lets end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentload.errors import TraceError
from agentload.study.parts import Live
from agentload.watch.jobs_file import read_jobs
from tests.cli.verbs import agentload

DOCS = Path(__file__).parents[3] / "docs" / "watch.md"
MINUTES = re.compile(r"a run takes about (\d+) min;")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def first_example() -> str:
    return next(
        line.removeprefix("agentload ")
        for line in DOCS.read_text().splitlines()
        if line.startswith("agentload watch add")
    )


def test_the_first_example_of_the_docs_makes_a_job_within_its_time_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload(first_example())
    out, err = capsys.readouterr()
    taken = MINUTES.search(out)
    assert taken is not None, out
    job = read_jobs(folder / "watch.yaml").named("nightly-rag")
    assert int(taken[1]) < job.budget.minutes
    assert job.study.load.wait_cap_s == {"user": 60}
    assert not err


def test_a_job_that_takes_longer_than_its_limit_is_warned_of_with_an_option_of_the_verb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    agentload(f"{first_example()} --wait-cap user=1000000")
    err = capsys.readouterr().err
    assert "warning: a run is stopped after 60 min, its time limit: one user wait takes" in err
    assert "--wait-cap user=300 shortens the whole run" in err


def test_a_job_whose_key_is_set_elsewhere_is_added_and_its_time_is_said_to_be_unknown(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload(f"{first_example()} --api-key-env KEY_OF_CRON")
    out, err = capsys.readouterr()
    assert "how long a run takes is not known here: prod: environment variable KEY_OF_CRON" in err
    assert "a run takes" not in out
    job = read_jobs(folder / "watch.yaml").named("nightly-rag")
    assert isinstance(job.study.servers, Live)
    assert job.study.servers.api_key_env == "KEY_OF_CRON"


def test_a_trace_that_cannot_be_played_makes_no_job(folder: Path) -> None:
    (folder / "x.jsonl").write_text(
        '{"kind":"agentload-trace","version":1,"name":"x"}\n'
        '{"session":"a","workload":"w","turns":[{"add":[["user",4,"k"]],"output":3}]}\n'
    )
    with pytest.raises(TraceError, match=r"x\.jsonl:2: session a: has no start_s"):
        agentload("watch add n --trace x.jsonl --endpoints a=http://h/v1 --cron '0 2 * * *'")
    assert not (folder / "watch.yaml").exists()
