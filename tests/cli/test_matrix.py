from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from agentload.cli.matrix import matrix
from agentload.errors import UsageError
from tests.cli.test_replay import AGENTLOAD
from tests.conftest import Spawn

TWO = """
models:
  toy: {endpoints: "emulated:llama-3.1-8b-h100"}
  gone: {endpoints: "a=http://127.0.0.1:9/v1"}
workloads:
  short: {generate: short_chat, options: {sessions: 8}, scale: 0.3}
  long: {generate: short_chat, options: {sessions: 8}}
measure: {pairs: 2, sessions: 4, waits: {user: 0.1}, noise: false, accuracy: {items: 6, contexts: 2k, tasks: [needle]}, CONTEXTS}
server: {price_per_hour: 2.0}
"""


def file(folder: Path, contexts: str = "contexts: {lengths: 512, pairs: 1, output: 8}") -> Path:
    path = folder / "matrix.yaml"
    path.write_text(TWO.replace("CONTEXTS", contexts))
    return path


def agentload(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AGENTLOAD, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_dry_run_tells_cells_calls_minutes_and_cost_and_leaves_nothing_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_text(
        TWO.replace("CONTEXTS", "contexts: 1k..4k, concurrency: {}").replace(
            "gone: {endpoints", "new: {serve: org/m, windows: false} #"
        )
    )
    matrix(file=path, dry_run=True)
    assert capsys.readouterr().out.splitlines() == [
        "matrix: 8 cells",
        "  toy: bf16, fp8 × short, long",
        "  new: bf16, fp8 × short, long",
        "  new: fp8-skip-sw is left out: the model has no sliding-window layers",
        "",
        "step                          calls  starts  minutes   USD",
        "toy: replay                      72       –        1     –",
        "toy: context                     18       –        1     –",
        "toy: concurrency, 4 searches      –       –       56     –",
        "toy: accuracy                    12       –        0     –",
        "new: replay                      72       5       11  0.35",
        "new: context                     18       7       15  0.49",
        "new: concurrency, 4 searches      –       4       64  2.13",
        "new: accuracy                    12       3        6  0.20",
        "",
        "204 calls and those of the searches, 19 starts of servers, about 3 h, 3.18 USD",
        "assumed: 20 ms a token, 10,000 new prompt tokens a second, 2 min a start",
        "nothing was started (--dry-run)",
    ]
    matrix(file=path, dry_run=True, json=True, only="new")
    said = json.loads(capsys.readouterr().out)
    assert said["cells"] == [
        ["new", arm, workload] for arm in ("bf16", "fp8") for workload in ("short", "long")
    ]
    assert said["steps"][0]["command"].startswith("agentload replay ")
    assert said["usd"] == pytest.approx(3.19, abs=0.01)
    assert list(tmp_path.iterdir()) == [path]


def test_a_preset_is_printed_for_the_model_that_one_asks_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    matrix(preset="mini-lab", model="org/mine")
    assert "  model: org/mine # a name, or a folder" in capsys.readouterr().out


def test_it_is_either_a_file_or_a_preset() -> None:
    for given in ({}, {"file": Path("x"), "preset": "mini-lab"}):
        with pytest.raises(UsageError, match="either a file or --preset"):
            matrix(**given)  # type: ignore[arg-type]  # by name
    with pytest.raises(UsageError, match="--minutes must be positive"):
        matrix(file=Path("x"), minutes=0)
    with pytest.raises(UsageError, match="--dry-run takes its file") as error:
        matrix(preset="agentx", dry_run=True)
    assert error.value.hint == (
        "agentload matrix --preset agentx > agentx.yaml && agentload matrix agentx.yaml --dry-run"
    )


@pytest.mark.slow
@pytest.mark.loopback
def test_a_matrix_ends_in_reports_and_one_page_and_says_what_failed(tmp_path: Path) -> None:
    done = agentload("matrix", file(tmp_path), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "error: 1 of it failed: gone/a" in done.stderr
    out = tmp_path / "matrix"
    page = (out / "matrix.md").read_text()
    assert "Use FP8 KV-cache for:" in page
    assert "([report](toy/report/decision.md))" in page
    assert (out / "toy/report/decision.html").exists()
    assert "- gone, a: cannot reach http://127.0.0.1:9/v1/models: Connection refused" in page
    said = json.loads((out / "matrix.json").read_text())
    assert {(row["workload"], row["config"]) for row in said["record"]} == {
        (workload, arm) for workload in ("short", "long", None) for arm in ("bf16", "fp8")
    }
    for row in said["record"]:
        assert (row["kind"], row["answers_asked"]) == ("emulated", 6)
        assert row["pool_tokens"] > 0
        assert row["workload"] is None or row["itl_p50_ms"]["n"] >= 8
    with duckdb.connect(str(out / "toy/agentload.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]


@pytest.mark.slow
@pytest.mark.loopback
def test_killed_between_steps_and_in_their_middle_it_goes_on_and_plays_nothing_twice(
    tmp_path: Path, spawn: Spawn
) -> None:
    path, out = file(tmp_path), tmp_path / "matrix"
    command = [*AGENTLOAD, "matrix", str(path), "--only", "toy"]
    journals = out / "toy/agentload.journal"

    def begun(until: str) -> subprocess.Popen[str]:
        process = spawn(command, tmp_path)
        assert process.stderr is not None
        for line in process.stderr:
            if until in line:
                return process
        raise AssertionError(until)

    first = begun("toy/replay")
    while not list(journals.glob("*/leg001.journal")):
        time.sleep(0.1)
    time.sleep(1.5)
    first.send_signal(signal.SIGTERM)  # in the middle of the replay: it is passed on
    first.communicate(timeout=120)
    assert first.returncode == 130
    second = begun("toy/accuracy")
    second.kill()  # with the replay and the sweep behind it
    second.communicate(timeout=120)
    for _ in range(20):  # the verb that was left behind holds the folder to its end
        done = agentload("matrix", path, "--only", "toy", cwd=tmp_path)
        if "a verb of one that was killed" not in done.stderr:
            break
        time.sleep(0.5)
    assert done.returncode == 0, done.stderr
    assert "toy/replay" not in done.stderr
    with duckdb.connect(str(out / "toy/agentload.duckdb"), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(1,)]
        pairs = connection.execute(
            "SELECT pair FROM blocks WHERE void IS NULL GROUP BY pair, salt HAVING "
            "count(DISTINCT arm) = 2"
        ).fetchall()
        assert sorted(pair for (pair,) in pairs) == [0, 1, 1_000_000]
        assert connection.execute(
            'SELECT arm, count(*) FROM answers WHERE "right" IS NOT NULL GROUP BY arm ORDER BY arm'
        ).fetchall() == [("bf16", 6), ("fp8", 6)]


FAKE = """#!/bin/sh
# Stands for `vllm serve MODEL --port P --kv-cache-dtype D …`
while [ $# -gt 0 ]; do
  case $1 in
    --port) port=$2 ;;
    --kv-cache-dtype) case $2 in fp8) arm=fp8 ;; *) arm=bf16 ;; esac ;;
    --block-size) echo "ValueError: No common block size for $2"; exit 3 ;;
  esac
  shift
done
exec AGENTLOAD emulate llama-3.1-8b-h100/$arm --port $port
"""


@pytest.mark.slow
@pytest.mark.loopback
def test_servers_that_the_matrix_starts_take_turns_and_one_that_crashes_on_its_flags_is_told_with_its_code(
    tmp_path: Path,
) -> None:
    server = tmp_path / "vllm"
    server.write_text(FAKE.replace("AGENTLOAD", str(Path(sys.executable).with_name("agentload"))))
    server.chmod(0o755)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "m.yaml"
    path.write_text(f"""
models: {{toy: {{serve: llama-3.1-8b}}}}
configs: {{bf16: , broken: {{base: fp8, block-size: 7}}, fp8: }}
workloads: {{short: {{generate: short_chat, options: {{sessions: 2}}, scale: 0.3}}}}
measure: {{pairs: 1, sessions: 2, waits: {{user: 0.1}}, accuracy: {{items: 2, contexts: 2k, tasks: [needle]}}}}
server: {{command: {server}, port: {port}}}
""")
    done = agentload("matrix", path, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "error: 1 of it failed: toy/broken" in done.stderr
    said = json.loads((tmp_path / "m/matrix.json").read_text())
    assert said["missing"] == [
        {
            "model": "toy",
            "what": "broken",
            "why": "ValueError: No common block size for 7",
            "code": 3,
            "is_failure": True,
        }
    ]
    assert [
        (row["config"], row["workload"], row["kind"], row["answers_asked"])
        for row in said["record"]
    ] == [(arm, workload, "emulated", 2) for workload in ("short", None) for arm in ("bf16", "fp8")]
    # The server that was started last before the replay
    # gave up is the only one that was tried on its own.
    assert [line for line in done.stderr.splitlines() if "does its server start" in line] == [
        "toy/broken: does its server start?"
    ]
    again = agentload("matrix", path, cwd=tmp_path)
    assert "broken" not in again.stderr.replace(
        "toy/broken\n", ""
    )  # it is known, and told once more at the end
    assert [line for line in again.stderr.splitlines() if line.startswith("[")] == [
        "[3/3] toy/report on bf16, fp8; about 1 min left in all"
    ]
