from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import pytest
from scipy.stats import binomtest

from agentload.cli.main import main
from agentload.emulator.answers import success_rate
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from tests.cli.test_relay import arms_file

pytestmark = pytest.mark.loopback
PROFILE = "llama-3.1-8b-h100-old-kernel"


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(arms_of(PROFILE), ServerOptions(noise=False, speed=1000.0)) as running:
        yield running


def endpoints(servers: Servers) -> str:
    return ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


class Agentload(Protocol):
    def __call__(self, *arguments: str | Path) -> Done: ...


@pytest.fixture
def agentload(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Agentload:
    """Run the command in this process and in the test's
    folder: another process takes a second to begin.
    """

    def called(*arguments: str | Path) -> Done:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["agentload", *map(str, arguments)])
        code = main()
        out, err = capfd.readouterr()
        return Done(code, out, err)

    return called


def rows(database: Path, query: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(database), read_only=True) as connection:
        return connection.execute(query).fetchall()


def test_every_arm_is_asked_the_same_and_measured_rates_are_the_true_ones(
    servers: Servers, agentload: Agentload, tmp_path: Path
) -> None:
    asked = (
        "--tasks",
        "needle,json_recall,variable_tracking",
        "--contexts",
        "24k",
        "--depths",
        "4",
        "--items",
        "60",
        "--aa",
        "bf16",
    )
    done = agentload(
        "eval", "--endpoints", endpoints(servers), *asked, "--db", "x.duckdb", "--json"
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    arms = {each["arm"]: each for each in summary["arms"]}
    for arm in arms_of(PROFILE):
        found = arms[arm.name]
        assert (found["answered"], found["failed"]) == (60, 0)
        # The true rate must lie within the exact interval
        # that one honest measurement in 10,000 misses.
        interval = binomtest(found["right"], 60).proportion_ci(confidence_level=0.9999)
        assert interval.low <= success_rate(arm, 24_500) <= interval.high
    # The same server twice, with the same seed, is the same
    # here: real ones differ, and this is where it shows.
    control = arms["bf16@aa"]
    assert (control["right"], control["lost"], control["won"], control["agreement"]) == (
        arms["bf16"]["right"],
        0,
        0,
        1.0,
    )
    database = tmp_path / "x.duckdb"
    paired = rows(
        database,
        "SELECT count(DISTINCT arm), count(*) FROM answers GROUP BY task, context_tokens, "
        "item, depth, repetition",
    )
    assert paired == [(3, 3)] * 60
    lengths = rows(
        database,
        "SELECT DISTINCT context_tokens - (signals ->> 'prompt_tokens')::INT BETWEEN 60 "
        "AND 400 FROM answers",
    )
    assert lengths == [(True,)]
    garbage = rows(
        database,
        "SELECT arm, count(*) > 2 FROM answers WHERE signals ->> 'garbage' IS NOT NULL "
        "GROUP BY arm",
    )
    assert garbage == [("fp8", True)]
    decided = agentload("advise", "x.duckdb")
    assert "Answers are less accurate at 24k" in decided.stdout
    assert "avoid FP8" in decided.stdout


def test_what_every_arm_answered_is_not_asked_again(
    servers: Servers, agentload: Agentload, tmp_path: Path
) -> None:
    asked = (
        "--endpoints",
        endpoints(servers),
        "--tasks",
        "needle",
        "--contexts",
        "2k",
        "--depths",
        "2",
        "--db",
        "x.duckdb",
    )
    first = agentload("eval", *asked, "--json")
    run = json.loads(first.stdout)["run_id"]
    database = tmp_path / "x.duckdb"
    before = rows(database, "FROM answers ORDER BY ALL")
    again = agentload("eval", *asked, "--resume", run)
    assert again.returncode == 0, again.stderr
    assert rows(database, "FROM answers ORDER BY ALL") == before
    assert rows(database, "SELECT leg, status FROM legs ORDER BY leg") == [(1, "done"), (2, "done")]
    other = agentload("eval", *asked, "--resume", run, "--items", "9")
    assert (other.returncode, other.stderr.splitlines()[0]) == (
        1,
        f"error: run {run} began with other items",
    )


@pytest.mark.slow
def test_questions_to_servers_that_run_only_while_they_are_asked_are_resumed(
    agentload: Agentload, tmp_path: Path
) -> None:
    asked = (
        "--endpoints",
        "emulated:llama-3.1-8b-h100",
        "--tasks",
        "needle",
        "--contexts",
        "2k",
        "--depths",
        "2",
        "--db",
        "x.duckdb",
    )
    first = agentload("eval", *asked, "--json")
    again = agentload("eval", *asked, "--resume", json.loads(first.stdout)["run_id"])
    assert again.returncode == 0, again.stderr
    assert rows(tmp_path / "x.duckdb", "SELECT leg, status FROM legs ORDER BY leg") == [
        (1, "done"),
        (2, "done"),
    ]


def test_answers_may_join_a_run_of_the_same_arms(
    servers: Servers, agentload: Agentload, tmp_path: Path
) -> None:
    asked = (
        "--endpoints",
        endpoints(servers),
        "--contexts",
        "2k",
        "--depths",
        "2",
        "--db",
        "x.duckdb",
        "--json",
    )
    run = json.loads(agentload("eval", *asked, "--tasks", "needle").stdout)["run_id"]
    for _ in range(2):  # the second time nothing is left to ask
        joined = agentload("eval", *asked, "--tasks", "pointer_chase", "--into", run)
        assert joined.returncode == 0, joined.stderr
    counted = rows(
        tmp_path / "x.duckdb",
        "SELECT run_id, task, count(*) FROM answers GROUP BY ALL ORDER BY task",
    )
    assert counted == [(run, "needle", 4), (run, "pointer_chase", 4)]
    assert rows(tmp_path / "x.duckdb", "SELECT count(*) FROM legs") == [(1,)]
    stranger = agentload(
        "eval",
        "--endpoints",
        f"other={next(iter(servers.urls.values()))}",
        *asked[2:],
        "--into",
        run,
    )
    assert stranger.stderr.splitlines()[-2] == f"error: run {run} has no arm 'other'"


def test_an_endpoint_that_fails_leaves_rows_without_a_grade(
    servers: Servers, agentload: Agentload, tmp_path: Path
) -> None:
    # Its window is shorter than this prompt: the server
    # refuses it, which says nothing of its answers.
    text = " ".join(["word"] * 140_000)
    items = [
        {
            "id": "long",
            "messages": [{"role": "user", "content": text}],
            "grader": {"has": "x"},
            "context": 4096,
        },
        {
            "id": "short",
            "messages": [{"role": "user", "content": 'Reply with exactly "ready to go".'}],
            "grader": {"equals": "ready to go"},
        },
    ]
    own = tmp_path / "own.jsonl"
    own.write_text("\n".join(map(json.dumps, items)))
    done = agentload("eval", "--endpoints", endpoints(servers), "--own", own, "--db", "x.duckdb")
    assert done.returncode == 0, done.stderr
    found = rows(
        tmp_path / "x.duckdb",
        "SELECT item, \"right\", score, (signals ->> 'http_status')::INT FROM answers "
        "WHERE arm = 'bf16' ORDER BY item",
    )
    assert found == [("long", None, None, 400), ("short", True, 1.0, None)]


def test_a_dry_run_tells_items_tokens_and_minutes_and_sends_nothing(
    agentload: Agentload, tmp_path: Path
) -> None:
    asked = ("--contexts", "4k..128k", "--items", "1380", "--dry-run")
    done = agentload("eval", "--endpoints", f"emulated:{PROFILE}", *asked)
    assert done.stdout.splitlines() == [
        "tasks     needle, needle-multikey-2, tool_log, json_recall, exact_copy",
        "contexts  4k, 8k, 16k, 32k, 64k, 128k; 10 depths",
        "questions 1,380, each once on bf16, fp8",
        "answers   2,760",
        "tokens    118,702,080 in",
        (
            "duration  about 106 min (with 10,000 prompt tokens a second, 20 ms a token, "
            "answers of 64)"
        ),
        "nothing was sent (--dry-run)",
    ]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--contexts", "4"], "error: 0 tokens besides question and answer are too few"),
        (["--resume", "a", "--into", "b"], "error: --resume continues a run of its own kind"),
    ],
)
def test_what_cannot_be_asked_is_said_in_a_line(
    servers: Servers, agentload: Agentload, tmp_path: Path, arguments: list[str], error: str
) -> None:
    done = agentload("eval", "--endpoints", endpoints(servers), "--db", "x.duckdb", *arguments)
    assert done.returncode in {1, 2}
    assert done.stderr.startswith(error), done.stderr


@pytest.mark.slow
def test_servers_that_cannot_run_side_by_side_are_asked_one_after_the_other(
    agentload: Agentload, tmp_path: Path
) -> None:
    arms = arms_file(tmp_path, "bf16", "fp8")
    asked = (
        "--endpoints",
        arms,
        "--launch",
        "--tasks",
        "needle",
        "--contexts",
        "2k",
        "--depths",
        "3",
        "--db",
        "x.duckdb",
    )
    first = agentload("eval", *asked, "--json")
    assert first.returncode == 0, first.stderr
    run = json.loads(first.stdout)["run_id"]
    database = tmp_path / "x.duckdb"
    found = rows(
        database,
        "SELECT arm, count(\"right\"), count(signals ->> 'agreement') FROM answers GROUP "
        "BY arm ORDER BY arm",
    )
    assert found == [
        ("bf16", 3, 0),
        ("fp8", 3, 3),
    ]  # what the reference said is kept for the comparison
    starts = [log.parent.name for log in sorted((tmp_path / "logs").glob("*/*.log"))]
    assert starts == [
        "start-001",
        "start-002",
        "start-003",
    ]  # both are met, the reference stays and is asked, then the other
    # Of a run that is gone on with, only what is missing
    # is asked, and nothing is started for what is there.
    more = agentload(
        "eval", *asked[:-4], "--depths", "3", "--items", "6", "--db", "x.duckdb", "--into", run
    )
    assert more.returncode == 0, more.stderr
    assert rows(
        database,
        "SELECT arm, count(DISTINCT item), count(*) FROM answers GROUP BY arm ORDER BY arm",
    ) == [("bf16", 6, 6), ("fp8", 6, 6)]
    again = agentload("eval", *asked, "--into", run)
    assert (again.returncode, "ready after" in again.stderr) == (0, False)


def test_questions_of_which_none_fits_a_window_are_an_error(agentload: Agentload) -> None:
    done = agentload("eval", "--profile", PROFILE, "--contexts", "10m")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "no question was asked: each is longer than the shortest window of the arms" in done.stderr
    )
