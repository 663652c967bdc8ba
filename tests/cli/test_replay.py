from __future__ import annotations

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import duckdb
import pytest

from agentload.cli.main import main
from agentload.model.rows import BlockRow
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.processes import Servers, start
from agentload.serve.server import ServerOptions
from agentload.store import journal
from agentload.store.database import reading
from agentload.store.places import journalled_runs, journals
from agentload.tracefile.files import write
from tests.conftest import Spawn

pytestmark = pytest.mark.loopback
AGENTLOAD = (sys.executable, "-m", "agentload")
Typed: TypeAlias = Callable[..., tuple[int, str, str]]


def said(role: str, tokens: int, key: str) -> Segment:
    # tests name roles freely
    return Segment(role=role, tokens=tokens, key=key)  # type: ignore[arg-type]


def talk(name: str, *, start_s: float, wait_s: float) -> Session:
    turns = (
        Turn(add=(said("user", 60, f"{name}.0"),), output=8),
        Turn(
            add=(said("assistant", 8, f"{name}.a"), said("user", 30, f"{name}.1")),
            output=5,
            wait="user",
            wait_s=wait_s,
        ),
    )
    return Session(session=name, workload="chat", start_s=start_s, prefix="P", turns=turns)


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with start(
        arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]), ServerOptions(noise=False, speed=50.0)
    ) as running:
        yield running


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return traced(tmp_path / "t.jsonl", wait_s=0.02)


def traced(path: Path, *, wait_s: float) -> Path:
    sessions = tuple(talk(f"s{i}", start_s=0.02 * i, wait_s=wait_s) for i in range(6))
    write(
        path,
        Trace(
            header=Header(name="t", seed=1, prefixes={"P": (said("system", 100, "sys"),)}),
            sessions=sessions,
        ),
    )
    return path


NEEDLESS = (
    *("agentload.decision", "agentload.importers", "agentload.remote.crew", "agentload.ui"),
    *("agentload.run.capacity", "agentload.serve.server", "agentload.virtual.shell"),
    *("aiohttp.web", "jinja2", "openai", "pandas", "prometheus_client", "pyarrow.compute"),
    *("ray", "scipy.stats"),
)
"""What a replay against running servers has no use for, and what takes long to import."""


def endpoints(servers: Servers) -> str:
    return ",".join(f"{arm}={url}" for arm, url in servers.urls.items())


def agentload(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [*AGENTLOAD, *map(str, arguments)]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.fixture
def typed(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Typed:
    """Run the command in this process: another takes seconds to begin.

    Returns its exit code, what it said and what it complained of.
    """

    def called(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["agentload", *arguments])
        return main(), *capfd.readouterr()

    return called


def test_a_replay_stores_one_row_an_attempt_with_the_request_id_that_the_server_saw(
    servers: Servers, trace: Path, typed: Typed, tmp_path: Path
) -> None:
    code, out, err = typed(
        "replay",
        str(trace),
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "2",
        "--json",
    )
    assert code == 0, err
    summary = json.loads(out)
    assert [(arm["arm"], arm["calls"], arm["ok"], arm["failed"]) for arm in summary["arms"]] == [
        ("bf16", 12, 12, {}),
        ("fp8", 12, 12, {}),
    ]
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        wanted = (
            "run_id, arm, block, workload, session, turn, attempt, request_id, replica, "
            "due_ns, released_ns, sent_ns, first_ns, "
            "first_answer_ns, last_ns, done_ns, stamp_source, prompt_tokens, "
            "context_tokens, cached_tokens, output_tokens, status, "
            "http_status, finish_reason, chunk_ns, chunk_tokens"
        )
        rows = database.execute(f"SELECT {wanted} FROM calls").fetchall()
        assert len(rows) == 24
        assert all(value is not None for row in rows for value in row)
        assert len({row[7] for row in rows}) == 24
        # equal bytes on both arms
        pairs = database.execute(
            "SELECT count(DISTINCT prompt_hash), count(*) FROM calls GROUP BY pair, session, turn"
        ).fetchall()
        assert set(pairs) == {(1, 2)}


def test_a_dry_run_sends_nothing_and_says_what_it_would_cost(
    servers: Servers, trace: Path, typed: Typed, tmp_path: Path
) -> None:
    code, out, err = typed(
        "replay",
        str(trace),
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "2",
        "--dry-run",
    )
    assert code == 0, err
    assert "bf16 12, fp8 12" in out
    assert "nothing was sent" in out
    assert not (tmp_path / "x.duckdb").exists()


def test_a_dry_run_on_several_nodes_says_how_many_calls_each_sends(
    trace: Path, typed: Typed
) -> None:
    code, out, err = typed(
        "replay",
        str(trace),
        "--endpoints",
        "a=http://127.0.0.1:9/v1",
        "--on",
        "here",
        "--nodes",
        "2",
        "--blocks",
        "1",
        "--dry-run",
    )
    assert code == 0, err
    calls = int(re.findall(r"^calls     a (\d+)$", out, re.MULTILINE)[0])
    ((one, other),) = re.findall(r"^nodes     2: (\d+), (\d+) calls$", out, re.MULTILINE)
    assert int(one) + int(other) == calls
    assert min(int(one), int(other)) > 0


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_more_dispatchers_than_families_of_sessions_are_refused_before_a_server_is_asked(
    more: list[str], trace: Path, typed: Typed
) -> None:
    code, out, err = typed(
        "replay",
        str(trace),
        "--endpoints",
        "a=http://127.0.0.1:9/v1",  # where nobody listens
        "--on",
        "here",
        "--nodes",
        "40",
        "--blocks",
        "1",
        *more,
    )
    assert (code, out) == (1, "")
    assert "cannot be divided over 40 nodes" in err
    assert "--nodes 6" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["t.jsonl", "--endpoints", "a=http://127.0.0.1:9/v1"],
            ("a: cannot reach http://127.0.0.1:9/v1/models", "is the server up?"),
        ),
        (
            ["t.jsonl", "--endpoints", "EMULATED", "--model", "nope"],
            ("does not serve 'nope'", "--model one of: llama-3.1-8b"),
        ),
        (["missing.jsonl", "--endpoints", "EMULATED"], ("no trace 'missing.jsonl'", "")),
        (["broken.jsonl", "--endpoints", "EMULATED"], ("broken.jsonl:2", "")),
        (
            ["t.jsonl", "--endpoints", "EMULATED", "--db", "other.duckdb"],
            ("other.duckdb: a DuckDB file, but not written by agentload", "use another path"),
        ),
        (
            ["t.jsonl", "--endpoints", "EMULATED", "--resume", "nobody"],
            ("no journal of run nobody", "agentload runs list"),
        ),
        (["t.jsonl", "--endpoints", "emulated:nope"], ("no profile 'nope'", "")),
        (["t.jsonl", "--endpoints", "emulated:llama-3.1-8b-h100/int4"], ("no arm 'int4'", "bf16")),
    ],
)
def test_what_a_user_can_mend_is_an_error_with_a_hint(
    servers: Servers, trace: Path, typed: Typed, arguments: list[str], says: tuple[str, str]
) -> None:
    trace.with_name("broken.jsonl").write_text(
        trace.read_text().splitlines()[0] + '\n{"session":"s","turns":[{"output":"many"}]}\n'
    )
    duckdb.connect(str(trace.with_name("other.duckdb"))).execute(
        "CREATE TABLE t (x INTEGER)"
    ).close()
    code, _, said = typed(
        "replay", *(endpoints(servers) if a == "EMULATED" else a for a in arguments)
    )
    assert (code, said.startswith("error: "), "Traceback" in said) == (1, True, False), said
    error, _, hint = said.partition("hint: ")
    assert says[0] in error
    assert says[1] in hint


@pytest.mark.parametrize(
    "arguments",
    [
        ["--design", "zigzag"],
        ["--sessions", "2", "--rate", "1"],
        ["--wait-cap", "user"],
        ["--pairs", "many"],
        ["--cancel-share", "7"],
        ["--workers", "0"],
    ],
)
def test_options_that_make_no_sense_are_usage_errors(
    servers: Servers, trace: Path, typed: Typed, arguments: list[str]
) -> None:
    code, _, said = typed("replay", str(trace), "--endpoints", endpoints(servers), *arguments)
    assert (code, said.startswith("error: ")) == (2, True), said


@pytest.mark.slow
def test_ctrl_c_stores_what_was_measured_exits_130_and_resume_plays_the_rest(
    servers: Servers, tmp_path: Path, spawn: Spawn
) -> None:
    slow = traced(tmp_path / "slow.jsonl", wait_s=0.6)
    command = [
        *AGENTLOAD,
        "replay",
        str(slow),
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "3",
    ]
    running = spawn(command, tmp_path)
    wait_for_blocks(tmp_path, 3)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=90)
    assert running.returncode == 130, stderr
    assert "--resume" in stderr
    run = stderr.partition("run ")[2].split()[0]
    resumed = agentload(
        "replay",
        slow,
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "3",
        "--resume",
        run,
        cwd=tmp_path,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert_whole(tmp_path, run)


@pytest.mark.slow
def test_ctrl_c_while_a_silent_server_is_asked_who_it_is_ends_at_once(
    trace: Path, tmp_path: Path, spawn: Spawn
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"a=http://127.0.0.1:{silent.getsockname()[1]}/v1"
        command = [
            *AGENTLOAD,
            "replay",
            str(trace),
            "--endpoints",
            url,
            "--model",
            "m",
            "--db",
            "x.duckdb",
        ]
        running = spawn(command, tmp_path)
        asked, _ = silent.accept()
        with asked:
            asked.recv(1)
            running.send_signal(signal.SIGINT)
            _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr.splitlines()[-1] == "error: stopped before anything was sent"
    assert not (tmp_path / "x.journal").exists()


@pytest.mark.slow
def test_a_run_is_given_more_pairs_on_resume_but_no_other_trace(
    servers: Servers, trace: Path, tmp_path: Path
) -> None:
    agentload(
        "replay",
        trace,
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "1",
        cwd=tmp_path,
    )
    (run,) = journalled_runs(tmp_path / "x.duckdb")
    more = agentload(
        "replay",
        trace,
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "2",
        "--resume",
        run,
        cwd=tmp_path,
    )
    assert more.returncode == 0, more.stderr
    with reading(tmp_path / "x.duckdb") as connection:
        assert connection.execute(
            "SELECT leg, pair, block, arm FROM blocks ORDER BY ALL"
        ).fetchall() == [
            (leg, pair, 0, arm) for leg, pair in ((1, 0), (2, 1)) for arm in ("bf16", "fp8")
        ]
    other = traced(tmp_path / "other.jsonl", wait_s=0.03)
    done = agentload(
        "replay",
        other,
        "--endpoints",
        endpoints(servers),
        "--db",
        "x.duckdb",
        "--pairs",
        "1",
        "--resume",
        run,
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "began with trace" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["wait", "skip", "stop"])
def test_an_endpoint_that_dies_is_awaited_skipped_or_ends_the_run(
    policy: str, servers: Servers, tmp_path: Path, spawn: Spawn
) -> None:
    slow = traced(tmp_path / "slow.jsonl", wait_s=0.4)
    arms = arms_of("llama-3.1-8b-h100", ["fp8"])
    with start(arms, ServerOptions(noise=False, speed=50.0)) as mortal:
        port = int(mortal.urls["fp8"].split(":")[2].split("/")[0])
        both = f"bf16={servers.urls['bf16']},fp8={mortal.urls['fp8']}"
        command = [
            *AGENTLOAD,
            "replay",
            str(slow),
            "--endpoints",
            both,
            "--db",
            "x.duckdb",
            "--pairs",
            "2",
            "--on-dead",
            policy,
        ]
        running = spawn(command, tmp_path)
        wait_for_blocks(tmp_path, 1)
    if policy == "wait":
        time.sleep(6)  # longer than what is asked again at once
        with start(arms, ServerOptions(noise=False, speed=50.0, port=port)):
            _, stderr = running.communicate(timeout=120)
    else:
        _, stderr = running.communicate(timeout=120)
    assert "fp8 stopped answering" in stderr
    assert running.returncode == {"wait": 0, "skip": 0, "stop": 130}[policy], stderr
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as database:
        whole = (
            "SELECT arm, count(*) FROM blocks WHERE void IS NULL AND ended_ns IS NOT NULL "
            "GROUP BY arm ORDER BY arm"
        )
        counts = dict(database.execute(whole).fetchall())
        died = database.execute("SELECT count(*) FROM blocks WHERE void LIKE '%died%'").fetchone()
    assert died is not None
    assert died[0] >= 1
    if policy == "wait":
        assert min(counts.values()) >= 2
    if policy == "skip":
        assert counts["bf16"] == 2


def wait_for_blocks(folder: Path, count: int) -> None:
    """Wait until the journal names so many finished blocks."""
    database = folder / "x.duckdb"
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        paths = [path for run in journalled_runs(database) for path in journals(database, run)]
        if sum(isinstance(row, BlockRow) for path in paths for row in journal.read(path)) >= count:
            return
        time.sleep(0.05)
    raise AssertionError("no block was finished in time")


def assert_whole(folder: Path, run: str) -> None:
    """Check that every pair is there once, whole, on both arms."""
    with duckdb.connect(str(folder / "x.duckdb"), read_only=True) as database:
        query = """
            SELECT b.pair, b.salt, count(DISTINCT b.arm), (SELECT count(*) FROM calls_row c
                JOIN blocks x
                ON x.run_id = c.run_id AND x.pair = c.pair AND x.arm = c.arm AND x.leg = c.leg
                    AND x.salt = b.salt
                WHERE c.run_id = b.run_id AND c.pair = b.pair AND c.status = 'ok'
                    AND x.void IS NULL)
            FROM blocks b WHERE b.run_id = ? AND b.void IS NULL GROUP BY b.run_id, b.pair, b.salt"""
        whole = [row for row in database.execute(query, [run]).fetchall() if row[2] == 2]
        assert sorted(row[0] for row in whole) == [0, 1, 2]
        assert sum(row[3] for row in whole) == 24
        assert database.execute(
            "SELECT count(*) - count(DISTINCT request_id) FROM calls_row"
        ).fetchone() == (0,)


def test_a_full_disk_is_an_error_with_a_hint_and_keeps_what_was_measured(
    servers: Servers, trace: Path, typed: Typed, tmp_path: Path
) -> None:
    # A file size limit stands in for a full disk: the
    # journal may not grow beyond its first reserve.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, before[1]))
    try:
        code, _, said = typed(
            "replay", str(trace), "--endpoints", endpoints(servers), "--db", "x.duckdb"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert code == 1, said
    assert "error: " in said
    assert "hint: " in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_replay_imports_nothing_that_it_has_no_use_for_and_leaves_nothing_of_duckdb(
    servers: Servers, trace: Path, tmp_path: Path
) -> None:
    program = (
        "import sys; from agentload.cli.main import main; assert main() == 0; print(*sys.modules)"
    )
    typed = ("replay", trace, "--endpoints", endpoints(servers), "--pairs", "2", "--force")
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, typed)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    imported = done.stdout.splitlines()[-1].split()
    assert "agentload.live.wire" in imported
    assert [name for name in NEEDLESS if name in imported] == []
    assert "leaked" not in done.stderr
