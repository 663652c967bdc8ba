"""The verbs that decide: advise, report, compare, decide."""

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.cli import _decide
from agentload.cli import main as cli
from agentload.cli._board import Board
from agentload.decision.look import Look
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.errors import AgentloadError, InterruptError, UsageError
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace, place_of
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.study.argv import build_study
from agentload.study.kinds import Decide
from agentload.study.parts import Live, TraceRef, Virtual
from tests.evidence.runs import block
from tests.importers import test_prometheus
from tests.report.conftest import simulated
from tests.store.rows import run_row
from tests.study.words import split


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("decide") / "sim.duckdb"
    simulated(path)
    simulated(path, "--no-noise")
    return path


def agentload(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["agentload", *arguments])
    capsys.readouterr()
    code = cli.main()
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_advise_prints_the_decision_and_fails_the_gate_that_was_asked_for(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = agentload(
        monkeypatch, capsys, "advise", str(database), "--fail-on", "avoid,test-further"
    )
    assert code == 3
    assert out.startswith("Simulated:")
    assert "Stay on BF16" in out
    assert "How sure? Effect: open" in out
    assert error.startswith("error: the verdict is 'test further': stay on BF16")


def test_advise_prints_json_and_passes_a_gate_of_another_verdict(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, error = agentload(
        monkeypatch, capsys, "advise", str(database), "--fail-on", "avoid,gates", "--json"
    )
    assert (code, error) == (0, "")
    assert json.loads(out)["format"] == "agentload-decision/1"


def test_a_verdict_that_does_not_exist_is_a_usage_error(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = agentload(monkeypatch, capsys, "advise", str(database), "--fail-on", "maybe")
    assert code == 2
    assert error == (
        "error: --fail-on: 'maybe' is no verdict\nhint: one of: use, avoid, calibrate, "
        "test-further, no-difference, gates, slo, bounded\n"
    )


def test_report_writes_the_formats_asked_for_and_names_them(
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = agentload(
        monkeypatch,
        capsys,
        "report",
        str(database),
        "-o",
        str(tmp_path / "r"),
        "--format",
        "json,md",
    )
    headline, *paths = out.splitlines()
    assert code == 0
    assert headline.startswith("stay on BF16")
    assert paths == [str(tmp_path / "r" / "decision.json"), str(tmp_path / "r" / "decision.md")]
    assert all(Path(path).is_file() for path in paths)


def test_report_refuses_a_format_it_does_not_know(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = agentload(monkeypatch, capsys, "report", str(database), "--format", "pdf")
    assert (code, error) == (2, "error: no format 'pdf'\nhint: any of: data,html,json,md,txt\n")


def test_compare_prints_the_verdict_on_the_later_run_and_writes_it(
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = sorted(folder.name for folder in database.with_suffix(".journal").iterdir())
    code, out, _ = agentload(
        monkeypatch,
        capsys,
        "compare",
        str(database),
        "--runs",
        ",".join(names),
        "-o",
        str(tmp_path),
    )
    assert code == 0
    assert f"{names[1]} against {names[0]} on gpt-oss-20b" in out
    assert (tmp_path / "decision.html").is_file()


def test_compare_wants_two_runs(
    database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hints = set()
    for runs in ("a", "a,a", "a,", "a,b,c"):
        code, _, error = agentload(monkeypatch, capsys, "compare", str(database), "--runs", runs)
        said, hint = error.splitlines()
        assert (code, said) == (2, f"error: --runs: expected two runs, got {runs!r}")
        hints.add(hint.removeprefix("hint: "))
    (hint,) = hints
    words = shlex.split(hint)
    assert words[:4] == ["agentload", "compare", str(database), "--runs"]
    assert agentload(monkeypatch, capsys, *words[1:])[0] == 0  # the two are of one trace


def test_two_runs_of_one_trace_are_offered_where_later_ones_played_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    database = tmp_path / "my runs.duckdb"
    for run, trace in (("r1", "abc"), ("r2", "abc"), ("r3", "xyz")):
        journal = journal_folder(database, run) / "leg001.journal"
        with Writer(journal) as writer:
            writer.append(replace(run_row(run), trace_hash=trace))
        load([journal], database)
    code, _, error = agentload(monkeypatch, capsys, "compare", str(database))
    assert (code, error) == (
        2,
        (
            "error: --runs: expected two runs, got none\n"
            f"hint: agentload compare '{database}' --runs r1,r2\n"
        ),
    )


def test_a_database_that_is_not_there_is_an_error_with_a_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, error = agentload(monkeypatch, capsys, "report", str(tmp_path / "none.duckdb"))
    assert code == 1
    assert error.startswith(f"error: {tmp_path / 'none.duckdb'}: no such database\nhint: ")


def test_a_report_says_how_its_load_compares_with_production_if_it_may_ask(
    database: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = agentload(monkeypatch, capsys, "advise", str(database))
    assert (code, "likeness to production (report --against)" in out) == (0, True)
    metrics = tmp_path / "m.prom"
    metrics.write_text(test_prometheus.CHAT)
    code, out, _ = agentload(
        monkeypatch, capsys, "advise", str(database), "--against", f"prometheus={metrics}", "--json"
    )
    found = json.loads(out)
    assert (code, found["made"]["origin"].partition(" ")[0], len(found["production"])) == (
        0,
        "synthetic",
        9,
    )
    code, _, error = agentload(
        monkeypatch, capsys, "report", str(database), "--against", f"prometheus={tmp_path / 'none'}"
    )
    assert (code, error) == (
        1,
        (
            f"error: {tmp_path / 'none'}: No such file or directory\nhint: curl SERVER/metrics "
            "> FILE\n"
        ),
    )
    code, _, error = agentload(
        monkeypatch, capsys, "report", str(database), "--against", str(metrics)
    )
    assert (
        code,
        error.startswith("error: --against takes prometheus=URL or prometheus=FILE, got "),
    ) == (2, True)


def test_a_decision_in_virtual_time_that_was_stopped_is_made_anew_by_the_command_that_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(text: str) -> None:
        if "block pair" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(Board, "audience", lambda _: Audience(notice=interrupted))
    made = Decide(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")),
        budget_s=300.0,
    )
    with pytest.raises(InterruptError) as stopped:
        _decide.decide(
            made, StudyPlace(database=tmp_path / "x.duckdb"), is_dry=False, as_json=False
        )
    said, _, typed = str(stopped.value.hint).partition(": agentload ")
    assert said == "make it again with"
    assert build_study(*split(shlex.split(typed))) == made
    assert "--resume" not in typed
    with pytest.raises(UsageError) as refused:
        place_of(made, resume="sim-1")
    assert "made again" in str(refused.value.hint)


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (Live(endpoints="a=http://127.0.0.1:9/v1,b=http://127.0.0.1:8/v1"), "resume with"),
        (Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8")), "make it again with"),
    ],
)
def test_a_budget_that_paid_for_no_pair_is_replaced_by_the_one_that_pays_in_the_next_command(
    servers: Live | Virtual, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = tmp_path / "x.duckdb"
    with Writer(journal_folder(database, "r") / "leg001.journal") as writer:
        writer.append(block("a", 0, 0.0))
    ended = DecisionOutcome(
        run_id="r",
        document=None,
        asked=(),
        ending="budget",
        left_minutes=2.0,
        wants=(Look(criterion="speed", amount=1), 3.0),
        enough_minutes=46.2,
    )
    monkeypatch.setattr(Deciding, "play", lambda _: ended)
    made = Decide(traces=(TraceRef(path="demo-chat"),), servers=servers, budget_s=300.0)
    with pytest.raises(AgentloadError, match="--budget 47m pays for it") as unaffordable:
        _decide.decide(made, StudyPlace(database=database), is_dry=False, as_json=False)
    words, _, typed = str(unaffordable.value.hint).partition(": agentload ")
    arguments = shlex.split(typed)
    assert words == said
    assert arguments[arguments.index("--budget") + 1] == "47m"
    assert ("--resume" in arguments) == isinstance(servers, Live)
