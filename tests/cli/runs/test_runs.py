import json
import sys
from pathlib import Path
from typing import Any

import pytest

from agentload.cli import main as cli
from agentload.model.rows import ArmRow, LegRow, Row
from agentload.store.database import writing
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from tests.store.rows import S, block_row, call, run_row

ROWS: tuple[Row, ...] = (
    run_row(),
    LegRow(
        run_id="r1",
        leg=0,
        host="box",
        boot_id=None,
        monotonic_ns=0,
        wall_ns=0,
        ended_ns=20 * S,
        status="done",
        health=json.dumps(
            {
                "send_lag_p99_ms": 0.31,
                "loop_stall_max_ms": 260.0,
                "coalesced_share": 0.02,
                "read_path": "thread",
                "cpu_share": 0.4,
                "void": "stood still",
            }
        ),
    ),
    ArmRow(run_id="r1", arm="bf16", position=0, url="http://a:8000/v1", model="m"),
    ArmRow(run_id="r1", arm="fp8", position=1, url=None, model="m", profile="p/fp8"),
    block_row(drain_ns=18 * S),
    call(1, output_tokens=5, first_ns=11 * S, last_ns=12 * S, done_ns=12 * S),
    call(2, chunks=None, status="refused"),
    block_row(arm="fp8", void="clock drop"),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    place = journal_folder(Path("agentload.duckdb"), "r1")
    with Writer(place / "leg000.journal") as journal:
        for row in ROWS:
            journal.append(row)
    return tmp_path


@pytest.fixture
def agentload(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "Agentload":
    return Agentload(monkeypatch, capsys)


class Agentload:
    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys
        self.code = 0
        self.err = ""

    def __call__(self, *arguments: str) -> str:
        self._monkeypatch.setattr(sys, "argv", ["agentload", "runs", *arguments])
        self.code = cli.main()
        captured = self._capsys.readouterr()
        self.err = captured.err
        return captured.out

    def json(self, *arguments: str) -> Any:  # noqa: ANN401  # whatever the verb prints
        return json.loads(self(*arguments, "--json"))


def test_journals_are_loaded_by_the_name_of_their_run_once(agentload: Agentload) -> None:
    assert agentload("load", "r1") == "r1: 2 calls, 5 stamps loaded\n"
    assert agentload("load") == "r1: 0 calls, 0 stamps loaded\n"
    assert agentload.json("load", "agentload.journal", "--db", "new.duckdb") == [
        {"name": "agentload.journal", "calls": 2, "stamps": 5, "faults": []}
    ]


def test_what_a_crash_cut_or_a_disk_damaged_is_named(agentload: Agentload) -> None:
    path = journal_folder(Path("agentload.duckdb"), "r1") / "leg000.journal"
    path.write_bytes(path.read_bytes()[:-3])
    lost = len(path.read_bytes())
    out = agentload("load", str(path))
    assert out.splitlines()[0] == f"{path}: 2 calls, 5 stamps loaded"
    assert "bytes were cut by a crash" in out
    content = bytearray(path.read_bytes())
    content[lost // 2] ^= 1
    path.write_bytes(content)
    assert "are damaged; what is whole around them was loaded" in agentload(
        "load", str(path), "--db", "new.duckdb"
    )
    assert agentload.code == 0


def test_runs_without_journals_or_names_are_named(agentload: Agentload) -> None:
    assert (agentload("load", "r9"), agentload.code) == ("", 1)
    assert (
        agentload.err
        == "error: no journals of a run 'r9' next to agentload.duckdb\nhint: there are: r1\n"
    )
    assert (agentload("load", "--db", "other.duckdb"), agentload.code) == ("", 1)
    assert "no journals next to other.duckdb" in agentload.err


def test_the_list_names_runs_that_wait_to_be_loaded(agentload: Agentload) -> None:
    with writing(Path("agentload.duckdb")):
        pass
    assert agentload.json("list") == []
    agentload("list")
    assert agentload.err == "not loaded yet: r1 (agentload runs load r1 --db agentload.duckdb)\n"
    agentload("load")
    assert agentload("list") == (
        "run  kind       started (UTC)     name  arms      blocks  invalid  calls     ok  status\n"
        "r1   simulated  2023-11-14 22:13  rag   bf16,fp8       2        1      2  50.0%  done\n"
    )
    assert agentload.err == ""
    assert [each["run_id"] for each in agentload.json("list")] == ["r1"]


def test_show_prints_health_arms_statuses_latencies_blocks_and_voids(agentload: Agentload) -> None:
    agentload("load")
    assert agentload("show", "r") == (
        "run r1: rag, simulated, done\n"
        "trace rag (abc), interleaved, seed 7, agentload 0.1.0\n"
        "agentload replay\n"
        "\n"
        "part 0 on box: done after 20.0 s\n"
        "  send lag p99 0.31 ms, loop stall 260.0 ms, coalesced reads 2.0%, CPU 40%, read by thread\n"
        "  invalid: stood still\n"
        "\n"
        "arm   calls  ended            model  machine  where\n"
        "bf16      2  1 ok, 1 refused  m            –  http://a:8000/v1\n"
        "fp8       0  –                m            –  p/fp8\n"
        "\n"
        "workload  arm   gaps  ITL p50     p95  p99 ms  TPOT p50     p95  p99 ms\n"
        "rag       bf16     4   20.000  20.000  20.000    20.000  20.000  20.000\n"
        "\n"
        "part  round  pair  block  arm   seconds  drain  calls  ok  tokens/s  requests/s  invalid\n"
        "   0      0     0      0  bf16     10.0    20%      2   1       0.6        0.12\n"
        "   0      0     0      0  fp8      10.0      –      0   0         –           –  "
        "clock drop\n"
    )
    shown = agentload.json("show", "r1")
    assert (shown["summary"]["run"]["run_id"], shown["summary"]["blocks"][1]["void"]) == (
        "r1",
        "clock drop",
    )


def test_show_without_a_database_or_run_says_how_to_get_one(agentload: Agentload) -> None:
    assert (agentload("show", "--run", "r1"), agentload.code) == ("", 1)
    assert agentload.err.startswith("error: agentload.duckdb: no such database\nhint: ")
    agentload("load")
    assert (agentload("show", "--run", "x"), agentload.code) == ("", 1)
    assert agentload.err == "error: no run 'x' in agentload.duckdb\nhint: runs: r1\n"


def test_delete_asks_unless_told_not_to(
    agentload: Agentload, monkeypatch: pytest.MonkeyPatch
) -> None:
    agentload("load")
    assert (agentload("delete", "r1"), agentload.code) == ("", 2)
    assert "nobody to ask" in agentload.err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", lambda text, **_: asked.append(text))
    assert (agentload("delete", "r1"), agentload.code, asked) == ("", 1, ["delete r1 (2 calls)?"])
    assert (
        agentload("delete", "r1", "--yes", "--keep-journals") == "deleted r1: 2 calls, 0 journals\n"
    )
    assert agentload("load") == "r1: 2 calls, 5 stamps loaded\n"
    assert agentload.json("delete", "r1", "--yes") == [{"run_id": "r1", "calls": 2, "journals": 1}]
    assert agentload.json("list") == []
    assert not journal_folder(Path("agentload.duckdb"), "r1").exists()


def test_show_names_the_files_with_raw_bytes_and_delete_takes_them_along(
    agentload: Agentload, folder: Path
) -> None:
    raw = journal_folder(Path("agentload.duckdb"), "r1") / "leg000-7.raw.jsonl.zst"
    (folder / raw).write_bytes(b"0" * 2_500_000)
    agentload("load")
    assert agentload("show", "r1").endswith(
        f"\n\nraw bytes of calls (2.5 MB), a JSON line a call: zstdcat FILE\n  {raw}\n"
    )
    assert agentload.json("show", "r1")["raw"] == [str(raw)]
    agentload("delete", "r1", "--yes")
    assert not (folder / raw).exists()


@pytest.mark.parametrize(
    "older", [("r1",), ("r1", "--db", "agentload.duckdb"), ("--db=agentload.duckdb", "--run", "r1")]
)
def test_older_ways_to_name_a_run_still_work_and_say_how_it_is_done_now(
    agentload: Agentload, older: tuple[str, ...]
) -> None:
    agentload("load")
    now = agentload("show", "agentload.duckdb", "--run", "r1")
    assert (agentload("show", *older), agentload.code) == (now, 0)
    assert agentload.err.startswith("note: ")
    assert agentload("show") == now
