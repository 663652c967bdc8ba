import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import duckdb
import pytest

from agentload.errors import StoreError
from agentload.store.database import VERSION, BusyError, reading, writing

Opened = AbstractContextManager[duckdb.DuckDBPyConnection]

HOLD = """
import sys, duckdb
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "r")
print("open", flush=True)
sys.stdin.read(1)
connection.close()
"""


@contextmanager
def held(path: Path, mode: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(path), mode]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def created(path: Path) -> Path:
    with writing(path):
        pass
    return path


@pytest.mark.parametrize(("mode", "opening"), [("w", reading), ("w", writing), ("r", writing)])
def test_who_finds_the_database_in_use_waits_until_it_is_closed(mode: str, opening: Callable[..., Opened], tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with held(path, mode) as other:
        with pytest.raises(BusyError, match=f"process {other.pid} (has been writing it|keeps it open)"), opening(path, patience_s=0.1):
            pass
        assert other.stdin is not None
        other.stdin.close()
        with opening(path, patience_s=20):
            pass


def test_a_connection_of_the_same_process_is_waited_for_as_well(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with reading(path), pytest.raises(StoreError, match="another connection of this process"), writing(path, patience_s=0.1):
        pass


def test_readers_do_not_shut_each_other_out(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with held(path, "r"), reading(path, patience_s=0):
        pass


def test_a_database_of_a_later_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with writing(path) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    for opening in (reading, writing):
        with pytest.raises(StoreError, match=f"version 99, this agentload reads up to version {VERSION}") as caught, opening(path):
            pass
        assert "newer agentload" in str(caught.value.hint)


def test_a_duckdb_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE theirs (a INTEGER)")
    for opening in (reading, writing):
        with pytest.raises(StoreError, match="not one of agentload"), opening(path):
            pass
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("theirs",)]


@pytest.mark.parametrize("opened", [reading, writing])
@pytest.mark.parametrize("name", ["trace.jsonl", "calls.csv", "calls.parquet"])
def test_a_file_of_data_is_no_database_and_none_in_memory_takes_its_place(
    opened: Callable[[Path], Opened], name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text('{"a": 1}\n')
    with pytest.raises(StoreError, match="not a valid DuckDB database"), opened(path):
        pass
    assert path.read_text() == '{"a": 1}\n'


def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with pytest.raises(StoreError, match="no such database"), reading(path):
        pass
    path.write_text("text " * 5000)
    began = time.monotonic()
    with pytest.raises(StoreError, match="not a valid DuckDB database"), reading(path):
        pass
    assert time.monotonic() - began < 5
