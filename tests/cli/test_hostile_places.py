"""Where a run's files cannot be written, or what it needs is taken
from it while it is on: an error and no traceback, and it goes on.
"""

from __future__ import annotations

import resource
import signal
import subprocess
import time
from pathlib import Path

import duckdb
import pytest

from agentload.store.codec import header
from agentload.store.journal import read
from agentload.store.loader import load
from agentload.store.places import journalled_runs, journals
from tools.kills import AGENTLOAD, _command, _servers

pytestmark = [pytest.mark.loopback, pytest.mark.slow]


def begun(database: Path, command: list[str], said: Path) -> subprocess.Popen[bytes]:
    with said.open("wb") as file:
        running = subprocess.Popen(command, stdout=file, stderr=file)
    until_s = time.monotonic() + 60
    while not journalled_runs(database) and running.poll() is None and time.monotonic() < until_s:
        time.sleep(0.05)
    time.sleep(1.5)
    return running


def goes_on(database: Path, command: list[str]) -> None:
    (run,) = journalled_runs(database)
    done = subprocess.run(
        [*command, "--resume", run], capture_output=True, text=True, check=False, timeout=400
    )
    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    with duckdb.connect(str(database), read_only=True) as connection:
        ((calls, names, pairs),) = connection.execute(
            "SELECT (SELECT count(*) FROM calls_row), (SELECT count(DISTINCT request_id) "
            "FROM calls_row),"
            " (SELECT count(DISTINCT pair) FROM blocks WHERE void IS NULL)"
        ).fetchall()
    assert (calls == names, pairs) == (True, 12)


@pytest.mark.parametrize(
    ("kind", "limit"),
    [(resource.RLIMIT_FSIZE, 1000), (resource.RLIMIT_NOFILE, 12), (resource.RLIMIT_AS, 100 << 20)],
    ids=["the size of files", "open files", "memory"],
)
def test_a_run_whose_limits_are_drawn_in_says_so_and_goes_on(
    tmp_path: Path, kind: int, limit: int
) -> None:
    database, said = tmp_path / "x.duckdb", tmp_path / "said"
    with _servers(tmp_path, "replay") as endpoints:
        command = _command("replay", endpoints, database)
        running = begun(database, command, said)
        resource.prlimit(running.pid, kind, (limit, limit))
        assert running.wait(timeout=400) in (0, 1)
        assert "Traceback" not in said.read_text(), said.read_text()
        if kind == resource.RLIMIT_AS:
            assert "error: out of memory" in said.read_text(), said.read_text()
        goes_on(database, command)


def test_a_database_that_is_deleted_under_a_run_is_made_of_its_journals(tmp_path: Path) -> None:
    database, said = tmp_path / "x.duckdb", tmp_path / "said"
    with _servers(tmp_path, "replay") as endpoints:
        command = _command("replay", endpoints, database)
        running = begun(database, command, said)
        until_s = time.monotonic() + 60
        while not database.exists() and time.monotonic() < until_s:
            time.sleep(0.05)
        database.unlink()
        assert running.wait(timeout=400) == 0, said.read_text()
        goes_on(database, command)


def test_a_database_that_is_deleted_between_executions_has_its_history_again(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    with _servers(tmp_path, "replay") as endpoints:
        command = _command("watch", endpoints, database)
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
            assert done.returncode in (0, 3), done.stderr
            assert "Traceback" not in done.stderr
            database.unlink()
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=400)
        assert done.returncode in (0, 3), done.stderr
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT count(*) FROM executions").fetchall() == [(3,)]
        assert connection.execute("SELECT count(DISTINCT run_id) >= 1 FROM runs").fetchall() == [
            (True,)
        ]


def test_two_jobs_share_a_database_at_once(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with _servers(tmp_path, "replay") as endpoints:
        command = _command("watch", endpoints, database)
        file = database.with_suffix(".yaml")
        other = tmp_path / "other.yaml"
        nightly, hourly = endpoints.split(",")  # jobs that share a server disturb each other
        other.write_text(file.read_text().replace("nightly", "hourly").replace(nightly, hourly))
        commands = (command, [*command[:-3], "hourly", "--file", str(other)])
        both = [
            subprocess.Popen(each, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            for each in commands
        ]
        late = dict.fromkeys(("nightly", "hourly"), 0)
        for job, again, running in zip(late, commands, both, strict=True):
            _, said = running.communicate(timeout=240)
            if (
                running.returncode == 1 and "has it open" in said
            ):  # on a slow machine it may wait in vain: the next one brings it in
                late[job] = 1
                done = subprocess.run(
                    again, capture_output=True, text=True, check=False, timeout=240
                )
                assert done.returncode in (0, 3), done.stderr
            else:
                assert running.returncode in (0, 3), said
            assert "Traceback" not in said
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute(
            "SELECT job, count(*) FROM executions GROUP BY job ORDER BY job"
        ).fetchall() == [("hourly", 1 + late["hourly"]), ("nightly", 1 + late["nightly"])]
        assert connection.execute(
            "SELECT count(*) = count(DISTINCT request_id) FROM calls_row"
        ).fetchall() == [(True,)]


def test_every_prefix_of_what_was_written_is_a_run_that_loads(tmp_path: Path) -> None:
    """A machine that loses power keeps some first part of a file, or
    that with zeros behind: reserved space that nobody had written.
    """
    database, said = tmp_path / "x.duckdb", tmp_path / "said"
    with _servers(tmp_path, "replay") as endpoints:
        running = begun(database, _command("replay", endpoints, database), said)
        running.send_signal(signal.SIGKILL)
        running.wait()
    (run,) = journalled_runs(database)
    (path,) = journals(database, run)
    whole = path.read_bytes().rstrip(b"\0")
    rows = list(read(path))
    cut = tmp_path / "cut.journal"
    ends = sorted({*range(len(header()), len(whole), max(1, len(whole) // 400)), len(whole)})
    seen = 0
    for end in ends:
        for behind in (0, 4096):
            cut.write_bytes(whole[:end] + bytes(behind))
            found = list(read(cut, damaged=lambda _: None))
            assert found == rows[: len(found)]
            assert len(found) >= seen
        seen = len(found)
    assert seen == len(rows)
    for end in ends[:: max(1, len(ends) // 5)]:
        cut.write_bytes(whole[:end])
        loaded = tmp_path / f"{end}.duckdb"
        load([cut], loaded)
        load([path], loaded)  # the rest comes to it, and nothing twice
        with duckdb.connect(str(loaded), read_only=True) as connection:
            assert connection.execute(
                "SELECT count(*) = count(DISTINCT request_id) FROM calls_row"
            ).fetchall() == [(True,)]


@pytest.mark.parametrize("verb", ["replay", "simulate", "trace", "report"])
def test_a_file_system_that_takes_no_files_is_an_error(tmp_path: Path, verb: str) -> None:
    """/proc is there for everybody and takes files of nobody, root included."""
    at = Path("/proc/agentload")
    commands = {
        "replay": [
            "replay",
            "demo-chat",
            "--endpoints",
            "emulated:llama-3.1-8b-h100/fp8",
            "--db",
            f"{at}.duckdb",
        ],
        "simulate": [
            "simulate",
            "demo-chat",
            "--profile",
            "llama-3.1-8b-h100",
            "--db",
            f"{at}.duckdb",
        ],
        "trace": ["trace", "generate", "rag", "-o", f"{at}.jsonl"],
        "report": ["trace", "import", "openai_chat", str(tmp_path), "-o", f"{at}.jsonl"],
    }
    (tmp_path / "x.jsonl").write_text(
        '{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}\n'
    )
    done = subprocess.run(
        [*AGENTLOAD, *commands[verb]], capture_output=True, text=True, check=False, timeout=240
    )
    assert (done.returncode, "Traceback" in done.stderr, "error: " in done.stderr) == (
        1,
        False,
        True,
    ), done.stderr
