"""Defaults of options in files, below what is typed."""

from pathlib import Path

import pytest
import yaml

from agentload.cli import _defaults
from agentload.cli.main import run
from agentload.errors import UsageError


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return the file of the working directory and the user's own; neither is there."""
    (tmp_path / "here").mkdir()
    (tmp_path / "config/agentload").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Path(_defaults.NAME), tmp_path / "config/agentload" / _defaults.NAME


def study(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert run(["replay", "demo-rag", "--print-study", *words]) == 0
    found: dict[str, object] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_what_is_typed_comes_before_the_nearer_file_and_that_before_the_users_own(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    here, own = places
    own.write_text(
        'endpoints = "emulated:llama-3.1-8b-h100"\npairs = 9\n[replay]\nseed = 5\nlenient = true\n'
    )
    here.write_text('pairs = 8\n[replay]\nsessions = 4\nwait-cap = ["user=1", "tool=2"]\n')
    found = study(capsys, "--sessions", "3")
    load = found["load"]
    assert isinstance(load, dict)
    assert (found["pairs"], found["seed"], found["lenient"], load["sessions"]) == (8, 5, True, 3)
    assert load["wait_cap_s"] == {"user": 1.0, "tool": 2.0}


def test_a_study_that_is_run_or_resumed_takes_nothing_from_files() -> None:
    assert not _defaults.are_taken_by(["run"], ["study.yaml"])
    assert not _defaults.are_taken_by(["replay"], ["rag", "--resume=r1"])
    assert not _defaults.are_taken_by(["replay"], ["rag", "--resume", "r1"])
    assert _defaults.are_taken_by(["replay"], ["rag"])


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        (
            "[replay]\nsesions = 4\n",
            "agentload.toml: [replay]: no option 'sesions'",
            "did you mean sessions?",
        ),
        ("replay = 4\n", "agentload.toml: 'replay' is a verb, and takes a table", "[replay]"),
        (
            "[replay\n",
            "agentload.toml: Expected ']'",
            'keys are options without their dashes: db = "bench.duckdb"',
        ),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(
    places: tuple[Path, Path], text: str, said: str, hint: str
) -> None:
    places[0].write_text(text)
    with pytest.raises(UsageError) as caught:
        run(["replay", "demo-rag", "--endpoints", "x=http://x/v1", "--dry-run"])
    assert caught.value.message.startswith(said)
    assert caught.value.hint == hint


def test_defaults_are_said_when_they_are_taken_and_not_with_quiet(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    places[0].write_text('db = "bench.duckdb"\n[kv]\ngpu = "H100"\nrules = false\n')
    shape = (
        "--shape",
        "layers=32,kv_heads=8,head_dim=128",
        "--max-model-len",
        "32768",
        "--kv-memory",
        "40G",
    )
    assert run(["kv", *shape]) == 0
    assert capsys.readouterr().err == "defaults from agentload.toml: gpu = H100, rules = false\n"
    assert run(["kv", *shape, "--quiet"]) == 0
    assert capsys.readouterr().err == ""


def test_a_database_is_the_default_of_verbs_that_read_too(
    places: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    places[0].write_text('db = "bench.duckdb"\n')
    with pytest.raises(Exception, match=r"bench\.duckdb: no such database"):
        run(["runs", "list"])
    assert "note" not in capsys.readouterr().err
