import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest

from agentload.errors import StoreError
from agentload.model.rows import LegRow, Row, SampleRow
from agentload.store import codec, loader
from agentload.store.codec import Damage
from agentload.store.database import reading
from agentload.store.journal import Reader, Writer, read
from agentload.store.loader import Loaded, load
from agentload.store.tables import TABLES
from tests.store.rows import ONE_OF_EACH, S, block_row, call


def write(path: Path, rows: Iterable[Row]) -> Path:
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    return path


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    with reading(path) as connection:
        rows: list[tuple[object, ...]] = connection.execute(sql).fetchall()
    return rows


def counts(path: Path) -> dict[str, object]:
    with reading(path) as connection:
        return {
            target.name: connection.execute(f"SELECT count(*) FROM {target.name}").fetchall()[0][0]
            for target in TABLES.values()
        }


def test_every_row_lands_in_its_table_with_absent_as_null(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    assert load([write(tmp_path / "a.journal", ONE_OF_EACH)], database) == Loaded(
        calls=2, stamps=5, faults=[]
    )
    kinds = [target.name for target in TABLES.values()]
    assert counts(database) == dict.fromkeys(kinds, 1) | {"calls_row": 2}
    assert query(
        database,
        "SELECT request_id, status, http_status, prompt_tokens, chunk_ns IS NULL, error "
        "FROM calls ORDER BY ALL",
    ) == [
        ("r1-bf16-0-1", "ok", None, None, False, None),
        ("r1-bf16-0-2", "refused", None, None, True, "nobody listens"),
    ]
    assert query(
        database,
        "SELECT chunk_count, first_chunk_tokens, streamed_tokens, gap_p99_us FROM calls "
        "ORDER BY ALL",
    ) == [(5, 1, 5, 20_000), (None, None, None, None)]
    assert query(database, "SELECT facts->>'version' FROM fingerprints") == [("0.33.0",)]
    assert query(database, "SELECT gap_us, tokens FROM chunks") == [
        ([None, 20000, 20000, 20000, 20000], [1, 1, 1, 1, 1])
    ]
    assert query(database, "SELECT gap_us, late_at, late_us, tokens FROM chunks_row") == [
        ([None, 20000, 20000, 20000, 20000], None, None, None)
    ]


def test_a_whole_number_that_an_old_journal_has_as_a_float_is_read_as_what_it_is(
    tmp_path: Path,
) -> None:
    database = tmp_path / "x.duckdb"
    rows = [call(1, prompt_tokens=5.0), call(2, prompt_tokens=7), call(3)]
    assert load([write(tmp_path / "a.journal", rows)], database).calls == 3
    prompts = query(database, "SELECT prompt_tokens FROM calls_row ORDER BY request_id")
    assert prompts == [(5,), (7,), (None,)]


def test_a_fraction_in_a_column_of_whole_numbers_is_not_rounded(tmp_path: Path) -> None:
    journal = write(tmp_path / "a.journal", [call(1, prompt_tokens=5.5)])
    with pytest.raises(TypeError, match=r"5\.5"):
        load([journal], tmp_path / "x.duckdb")


def test_loading_again_changes_nothing_whatever_the_journal_is_called(tmp_path: Path) -> None:
    database, journal = tmp_path / "x.duckdb", write(tmp_path / "a.journal", ONE_OF_EACH)
    load([journal], database)
    before = counts(database)
    assert load([journal, journal], database) == Loaded(calls=0, stamps=0, faults=[])
    assert load([Path(shutil.copy(journal, tmp_path / "b.journal"))], database) == Loaded(
        calls=0, stamps=0, faults=[]
    )
    # Another journal at the same path is no continuation of the first.
    journal.unlink()
    write(journal, [call(9), *ONE_OF_EACH])
    assert load([journal], database) == Loaded(calls=1, stamps=5, faults=[])
    assert counts(database) == before | {"calls_row": 3}


def test_a_load_goes_on_where_the_last_one_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, path = tmp_path / "x.duckdb", tmp_path / "a.journal"
    read_from: list[int] = []

    def noted(path: Path, *, offset: int, damaged: Callable[[Damage], None]) -> Reader:
        read_from.append(offset)
        return read(path, offset=offset, damaged=damaged)

    monkeypatch.setattr(loader, "read", noted)
    with Writer(path) as journal:
        for number in range(3):
            journal.append(call(number))
            journal.flush()
            assert load([path], database) == Loaded(calls=1, stamps=5, faults=[])
    record = len(codec.record(call(0)))
    assert read_from == [0, len(codec.header()) + record, len(codec.header()) + 2 * record]


def test_the_later_row_of_a_leg_or_block_replaces_the_earlier_one(tmp_path: Path) -> None:
    begun = LegRow(run_id="r1", leg=0, host="h", boot_id=None, monotonic_ns=5, wall_ns=6)
    rows: list[Row] = [
        begun,
        block_row(),
        block_row(arm="fp8"),
        replace(begun, status="done", ended_ns=9, health='{"loop_stall_ms":1.5}'),
    ]
    database = tmp_path / "x.duckdb"
    load(
        [
            write(tmp_path / "a.journal", rows),
            write(tmp_path / "b.journal", [block_row(void="clock drop")]),
        ],
        database,
    )
    assert query(database, "SELECT status, ended_ns, health->>'loop_stall_ms' FROM legs") == [
        ("done", 9, "1.5")
    ]
    assert query(database, "SELECT arm, void FROM blocks ORDER BY arm") == [
        ("bf16", "clock drop"),
        ("fp8", None),
    ]


def test_samples_without_labels_are_told_apart_by_time_and_name(tmp_path: Path) -> None:
    rows = [
        SampleRow(run_id="r1", leg=0, arm="a", at_ns=at, name=name, value=1.0)
        for at in (1, 2)
        for name in ("running", "waiting")
    ]
    database = tmp_path / "x.duckdb"
    load(
        [
            write(tmp_path / "a.journal", rows),
            write(tmp_path / "b.journal", [*rows, replace(rows[0], labels="{}")]),
        ],
        database,
    )
    assert query(database, "SELECT count(*) FROM samples") == [(5,)]


def test_what_is_whole_around_damage_is_loaded_and_the_damage_reported(tmp_path: Path) -> None:
    journal = write(tmp_path / "a.journal", [call(number) for number in range(3)])
    record, head = len(codec.record(call(0))), len(codec.header())
    content = bytearray(journal.read_bytes())
    content[head + record + 40] ^= 1
    journal.write_bytes(content[:-10])
    assert load([journal], tmp_path / "x.duckdb") == Loaded(
        calls=1,
        stamps=5,
        faults=[(journal, Damage(kind="torn", offset=head + record, length=2 * record - 10))],
    )
    journal.write_bytes(content)
    assert load([journal], tmp_path / "x.duckdb") == Loaded(
        calls=1,
        stamps=5,
        faults=[(journal, Damage(kind="damaged", offset=head + record, length=record))],
    )


WRITE = """
import os, sys, time
from pathlib import Path
from agentload.store import journal
from tests.store.rows import call
journal.DUE_NS = int(sys.argv[2])
number = 0
with journal.Writer(Path(sys.argv[1])) as writer:
    while True:
        writer.append(call(number))
        now_ns = time.monotonic_ns()
        writer.flush_if_due(now_ns)
        os.write(1, f"{number} {now_ns}\\n".encode())
        number += 1
        time.sleep(0.0002)
"""


@pytest.mark.slow
def test_kill_9_costs_at_most_what_was_measured_within_the_last_flush_interval(
    tmp_path: Path,
) -> None:
    interval_ns = S // 50  # a shorter second, to keep the test short
    rng = random.Random(4)
    for attempt in range(3):
        path, database = tmp_path / f"{attempt}.journal", tmp_path / f"{attempt}.duckdb"
        with subprocess.Popen(
            [sys.executable, "-c", WRITE, path, str(interval_ns)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.02, 0.15))
            process.kill()
            seen = [line.split() for line in process.stdout if line.endswith("\n")]
        last_ns = int(seen[-1][1])
        safe = {
            f"r1-bf16-0-{number}" for number, at_ns in seen if int(at_ns) < last_ns - interval_ns
        } | {"r1-bf16-0-0"}
        load([path], database)
        load([path], database)
        stored = [
            request_id for (request_id,) in query(database, "SELECT request_id FROM calls_row")
        ]
        assert safe <= set(stored)
        assert len(stored) == len(set(stored))


LOAD = """
import sys
from pathlib import Path
from agentload.store import loader
loader.BATCH_BYTES = 2000
print("begin", flush=True)
loader.load([Path(sys.argv[1])], Path(sys.argv[2]))
"""


@pytest.mark.slow
def test_a_load_killed_anywhere_is_completed_by_the_next(tmp_path: Path) -> None:
    journal = write(
        tmp_path / "a.journal", [*ONE_OF_EACH, *(call(number) for number in range(10, 2010))]
    )
    database = tmp_path / "x.duckdb"
    rng = random.Random(5)
    for _ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", LOAD, journal, database], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.3))
            process.kill()
    load([journal], database)
    assert query(
        database, "SELECT count(*), count(DISTINCT request_id), sum(len(chunk_ns)) FROM calls"
    ) == [(2002, 2002, 2001 * 5)]
    assert query(database, "SELECT count(*), count(DISTINCT call_id) FROM chunks_row") == [
        (2001, 2001)
    ]


def test_threads_that_load_at_the_same_time_take_turns(tmp_path: Path) -> None:
    journals = [
        write(tmp_path / f"{run}.journal", [call(number, run=run) for number in range(300)])
        for run in ("r1", "r2", "r3")
    ]
    with ThreadPoolExecutor() as pool:
        assert [
            loaded.calls
            for loaded in pool.map(lambda journal: load([journal], tmp_path / "x.duckdb"), journals)
        ] == [300] * 3
    assert query(
        tmp_path / "x.duckdb", "SELECT count(*), count(DISTINCT call_id) FROM calls_row"
    ) == [(900, 900)]


@pytest.mark.parametrize(
    "error",
    [
        duckdb.IOException("IO Error: Could not write file: No space left on device"),
        duckdb.TransactionException(
            'TransactionContext Error: Failed to commit: Could not write file "x.wal": No '
            "space left on device"
        ),
    ],
)
def test_what_goes_wrong_inside_a_transaction_leaves_nothing_of_it(
    error: duckdb.Error, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> tuple[int, int]:
        raise error

    journal = write(tmp_path / "a.journal", ONE_OF_EACH)
    store_calls = loader._store_calls
    monkeypatch.setattr(loader, "_store_calls", full)
    with pytest.raises(StoreError, match="No space left on device") as caught:
        load([journal], tmp_path / "x.duckdb")
    monkeypatch.setattr(loader, "_store_calls", store_calls)
    assert str(caught.value.hint).startswith("free some disk space; nothing is lost")
    assert set(counts(tmp_path / "x.duckdb").values()) == {0}
    assert load([journal], tmp_path / "x.duckdb").calls == 2
