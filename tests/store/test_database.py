import os
import signal
import subprocess
import sys
import time
import weakref
from _thread import start_new_thread
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from random import Random
from threading import Timer

import duckdb
import pytest

from agentload.errors import StoreError
from agentload.store import attachment
from agentload.store.database import VERSION, AbsentError, BusyError, reading, refusal, writing
from tests.databases import COMMITS, unpacked

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
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def created(path: Path) -> Path:
    with writing(path):
        pass
    return path


@pytest.mark.parametrize(("mode", "opening"), [("w", reading), ("w", writing), ("r", writing)])
def test_who_finds_the_database_in_use_waits_until_it_is_closed(
    mode: str, opening: Callable[..., Opened], tmp_path: Path
) -> None:
    path = created(tmp_path / "x.duckdb")
    with held(path, mode) as other:
        with (
            pytest.raises(
                BusyError, match=f"process {other.pid} (has been writing it|has it open)"
            ),
            opening(path, patience_s=0.1),
        ):
            pass
        assert other.stdin is not None
        other.stdin.close()
        with opening(path, patience_s=20):
            pass


def test_a_connection_of_the_same_process_is_waited_for_as_well(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with (
        reading(path),
        pytest.raises(StoreError, match="another connection of this process"),
        writing(path, patience_s=0.1),
    ):
        pass


def test_readers_do_not_shut_each_other_out(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with held(path, "r"), reading(path, patience_s=0):
        pass


def test_readers_of_one_process_close_a_database_with_the_last_of_them(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with ExitStack() as stack:
        with reading(path), reading(path), held(path, "r"):
            stack.enter_context(reading(path))
        with pytest.raises(AssertionError), held(path, "w"):
            pass  # the third still reads
    with held(path, "w"):
        pass


def test_databases_that_are_open_at_once_keep_their_tables_apart(tmp_path: Path) -> None:
    new = created(tmp_path / "x.duckdb")
    old = unpacked(f"{COMMITS[0]}.duckdb", tmp_path / "y.duckdb")
    duckdb.connect(str(tmp_path / "z.duckdb")).close()
    count = "SELECT count(*) > 0 FROM calls_row"
    with reading(new) as one, reading(old) as other:
        assert one.execute(count).fetchall() == [(False,)]
        assert other.execute(count).fetchall() == [(True,)]
        with pytest.raises(AbsentError), reading(tmp_path / "z.duckdb"):
            pass


def test_a_forked_process_opens_what_its_parent_had_open_before(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    child = os.fork()
    if not child:
        with reading(path) as connection:
            rows = connection.execute("SELECT count(*) FROM runs").fetchall()
        os._exit(rows != [(0,)])
    assert os.waitpid(child, 0) == (child, 0)


def test_a_database_of_a_later_version_is_refused_with_a_way_out(tmp_path: Path) -> None:
    path = created(tmp_path / "x.duckdb")
    with writing(path) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    for opening in (reading, writing):
        with (
            pytest.raises(
                StoreError, match=f"version 99, this agentload reads up to version {VERSION}"
            ) as caught,
            opening(path),
        ):
            pass
        assert "newer agentload" in str(caught.value.hint)


def test_a_duckdb_file_of_somebody_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE theirs (a INTEGER)")
    for opening in (reading, writing):
        with pytest.raises(StoreError, match="not written by agentload"), opening(path):
            pass
    with duckdb.connect(str(path)) as connection:
        assert connection.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [
            ("theirs",)
        ]


def test_a_schema_version_of_somebody_else_is_not_ours(tmp_path: Path) -> None:
    path = tmp_path / "theirs.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute(
            "CREATE TABLE schema_version (version VARCHAR); INSERT INTO schema_version "
            "VALUES ('1.0.2')"
        )
    for opening in (reading, writing):
        with pytest.raises(StoreError, match="not written by agentload"), opening(path):
            pass


@pytest.mark.parametrize("reason", ["Permission denied", "Read-only file system"])
def test_a_file_that_may_not_be_written_is_not_taken_for_a_damaged_one(reason: str) -> None:
    said = refusal(Path("x.duckdb"), duckdb.IOException(f'Cannot open file "x.duckdb": {reason}'))
    assert said.hint == "change its permissions, or copy it and its journals to where you may write"


@pytest.mark.parametrize("opened", [reading, writing])
@pytest.mark.parametrize("name", ["trace.jsonl", "calls.csv", "calls.parquet"])
def test_a_file_of_data_is_no_database_and_none_in_memory_takes_its_place(
    opened: Callable[[Path], Opened], name: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_text('{"a": 1}\n')
    with pytest.raises(StoreError, match=": not a database"), opened(path):
        pass
    assert path.read_text() == '{"a": 1}\n'


def test_what_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with pytest.raises(StoreError, match="no such database"), reading(path):
        pass
    path.write_text("text " * 5000)
    began = time.monotonic()
    with pytest.raises(StoreError, match=": not a database"), reading(path):
        pass
    assert time.monotonic() - began < 5


KILLED = """
import os, signal, sys
from pathlib import Path
from agentload.store import database

def killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)

{moment} = killed
with database.writing(Path(sys.argv[1])):
    pass
"""


@pytest.mark.parametrize("moment", ["database._create", "os.fsync", "os.link"])
def test_a_database_whose_making_is_killed_is_not_there(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    assert (
        subprocess.run(
            [sys.executable, "-c", KILLED.format(moment=moment), str(path)], check=False
        ).returncode
        == -9
    )
    assert not path.exists()
    with reading(created(path)) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


def test_a_database_without_tables_is_not_there_and_is_made(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    duckdb.connect(str(path)).close()
    with pytest.raises(AbsentError), reading(path):
        pass
    with reading(created(path)):
        pass


def test_whoever_is_slower_to_make_a_database_takes_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.duckdb"
    link = os.link

    def linked(beside: Path, place: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        with writing(path) as connection:
            connection.execute("INSERT INTO schema_version (version) VALUES (0)")
        link(beside, place)

    monkeypatch.setattr(os, "link", linked)
    with writing(path) as connection:
        assert connection.execute("SELECT count(*) FROM schema_version").fetchall() == [(2,)]
    assert list(tmp_path.iterdir()) == [path]


def test_where_files_cannot_be_linked_a_database_is_made_in_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_: (tmp_path / "nowhere").rmdir())
    with reading(created(tmp_path / "x.duckdb")):
        pass


def test_a_folder_is_no_database_that_could_be_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError) as raised, reading(tmp_path):
        pass
    assert not isinstance(raised.value, AbsentError)


def test_an_older_database_is_read_whatever_signs_its_name_has(tmp_path: Path) -> None:
    path = unpacked(f"{COMMITS[0]}.duckdb", tmp_path / "a\"b; it's.duckdb")
    with reading(path) as connection:
        assert connection.execute("SELECT count(*) > 0 FROM calls_row").fetchall() == [(True,)]


def test_a_damaged_database_is_an_error_wherever_the_damage_lies(tmp_path: Path) -> None:
    path, broken, rng = tmp_path / "x.duckdb", tmp_path / "y.duckdb", Random(7)
    with writing(path):
        pass
    whole, refused = path.read_bytes(), list[str]()
    for number in range(60):
        damaged = bytearray(whole)
        match number % 4:
            case 0:
                del damaged[rng.randrange(len(damaged)) :]
            case 1:
                for _ in range(rng.choice((1, 20, 2000))):
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            case 2:
                begin = rng.randrange(len(damaged))
                damaged[begin : begin + 4096] = bytes(4096)
            case _:
                for _ in range(30):
                    damaged[rng.randrange(12_288)] = rng.randrange(256)
        broken.write_bytes(damaged)
        try:
            with reading(broken) as connection:
                connection.execute("SELECT * FROM runs, schema_version").fetchall()
        except StoreError as error:
            refused.append(error.message)
    assert len(refused) > 15
    assert all(message.startswith(f"{broken}: ") for message in refused)
    with reading(path) as connection:  # whatever a damaged file did to this process's DuckDB
        assert connection.execute("SELECT count(*) FROM runs").fetchall() == [(0,)]


@pytest.mark.slow  # the library looks for signals now and then, on a busy machine after minutes
def test_ctrl_c_during_a_query_stays_ctrl_c(tmp_path: Path) -> None:
    with writing(tmp_path / "x.duckdb"):
        pass

    def stopped(opened: Callable[[Path], Opened]) -> None:
        with opened(tmp_path / "x.duckdb") as connection:
            Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
            connection.execute("SELECT max(hash(i)) FROM range(10000000000) AS t(i)").fetchone()

    for opened in (reading, writing):
        with pytest.raises(KeyboardInterrupt):
            stopped(opened)


@pytest.mark.slow
def test_ctrl_c_at_any_instant_leaves_no_file_attached_and_stays_ctrl_c(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with writing(path):
        pass
    stopped = 0
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for number in range(200):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0001 * (1 + number % 100))
                with (reading if number % 3 else writing)(path) as connection:
                    connection.execute("SELECT 1").fetchall()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                stopped += 1
            assert attachment._library().attachments == {}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert stopped
    with writing(path, patience_s=0.0):
        pass


def test_the_thread_that_opens_and_closes_keeps_nothing_of_duckdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with writing(tmp_path / "x.duckdb"):
        pass
    not_over = []

    def start(run: Callable[[], None], arguments: tuple[()]) -> None:
        not_over.append(run)  # as a thread that has not left its last line
        start_new_thread(run, arguments)

    monkeypatch.setattr(attachment, "start_new_thread", start)
    with reading(tmp_path / "x.duckdb") as connection:
        kept = weakref.ref(connection)
    assert len(not_over) == 2
    del connection
    assert kept() is None
