"""Databases open by the columns that they have: those of older
versions, and of newer ones as far as they can be understood.
"""

from pathlib import Path
from typing import Any

import duckdb
import pytest

from agentload.errors import StoreError
from agentload.store.database import VERSION, reading, writing
from agentload.store.loader import load
from tests.databases import COMMITS, unpacked

ADDED = {
    "9618594": {"arms": 6, "blocks": 2, "calls_row": 4, "runs": 1},
    "7933c57": {"blocks": 2, "calls_row": 4, "runs": 1},
    "ed8c596": {"blocks": 1, "calls_row": 2, "runs": 1},
}
Columns = dict[tuple[str, str], tuple[str, bool]]


@pytest.fixture(params=COMMITS)
def commit(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def old(commit: str, tmp_path: Path) -> Path:
    return unpacked(f"{commit}.duckdb", tmp_path / "main.duckdb")  # a name that is also a schema's


def columns(connection: duckdb.DuckDBPyConnection) -> Columns:
    query = (
        "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE "
        "NOT internal"
    )
    return {
        (table, column): (type_, nullable)
        for table, column, type_, nullable in connection.execute(query).fetchall()
    }


def of_the_file(path: Path) -> Columns:
    with duckdb.connect(str(path), read_only=True) as connection:
        return columns(connection)


def figures(connection: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    return connection.execute(
        "SELECT request_id, chunk_ns, ttft_ms, tpot_ms, turn_ms, study, gateway, prime, "
        "machine, usd_per_gpu_hour "
        "FROM turns JOIN runs USING (run_id) JOIN arms USING (run_id, arm) ORDER BY request_id"
    ).fetchall()


def test_a_reader_sees_every_table_column_and_view_and_leaves_the_file_as_it_is(
    old: Path, tmp_path: Path
) -> None:
    with writing(tmp_path / "new.duckdb") as connection:
        newest = columns(connection)
    before = old.read_bytes()
    with reading(old) as connection:
        seen = columns(connection)
        rows = figures(connection)
    assert {place: type_ for place, (type_, _) in seen.items()} == {
        place: type_ for place, (type_, _) in newest.items()
    }
    assert rows
    assert {row[5:8] for row in rows} == {(None, None, False)}
    assert all(turn_ms > 0 for _, _, _, _, turn_ms, *_ in rows)
    assert old.read_bytes() == before


def test_a_writer_adds_what_is_missing_and_nothing_that_was_read_changes(
    commit: str, old: Path, tmp_path: Path
) -> None:
    with writing(tmp_path / "new.duckdb") as connection:
        newest = columns(connection)
    before = of_the_file(old)
    with reading(old) as connection:
        read = figures(connection)
    with writing(old) as connection:
        assert connection.execute("SELECT version FROM schema_version").fetchall() == [(VERSION,)]
    added = of_the_file(old).keys() - before.keys()
    assert of_the_file(old) == newest
    assert {table: sum(of == table for of, _ in added) for table in ADDED[commit]} == ADDED[commit]
    with reading(old) as connection:
        assert figures(connection) == read


def test_a_file_that_was_brought_up_to_date_is_left_alone_from_then_on(old: Path) -> None:
    with writing(old):
        pass
    before = old.read_bytes()
    with writing(old):
        pass
    with reading(old):
        pass
    assert old.read_bytes() == before


def test_an_update_that_fails_half_way_leaves_the_file_as_it_was(old: Path) -> None:
    with duckdb.connect(str(old)) as connection:
        connection.execute(
            "CREATE TABLE turns (a INTEGER)"
        )  # in the place of a view, which is made after the tables
    before = of_the_file(old)
    with pytest.raises(duckdb.Error), writing(old):
        pass
    assert of_the_file(old) == before


def test_rows_of_any_age_go_into_a_database_of_any_age(old: Path, tmp_path: Path) -> None:
    with reading(old) as connection:
        runs = len(connection.execute("FROM runs").fetchall())
    journals = [unpacked(f"{each}.journal", tmp_path / f"{each}.journal") for each in COMMITS]
    loaded = load(journals, old)
    assert (loaded.calls, loaded.faults) == (
        32,
        [],
    )  # 16 of the three journals' 48 calls were there
    assert load(journals, old).calls == 0
    with reading(old) as connection:
        assert len(connection.execute("FROM runs").fetchall()) == runs + 2


def test_columns_and_tables_of_a_newer_version_are_kept_and_left_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    with writing(path) as connection:
        connection.execute("CREATE TABLE orders (a INTEGER)")
        connection.execute("ALTER TABLE runs ADD COLUMN colour VARCHAR DEFAULT 'red'")
        connection.execute("ALTER TABLE calls_row ADD COLUMN taste INTEGER")
        connection.execute("UPDATE schema_version SET digest = 'newer'")
    assert load([unpacked("ed8c596.journal", tmp_path / "a.journal")], path).calls == 16
    with reading(path) as connection:
        assert connection.execute(
            "SELECT DISTINCT colour, taste FROM runs JOIN turns USING (run_id)"
        ).fetchall() == [("red", None)]


def test_a_newer_database_whose_rows_need_what_we_do_not_know_can_be_read_but_not_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.duckdb"
    with writing(path) as connection:
        connection.execute("ALTER TABLE runs ADD COLUMN colour VARCHAR")
        connection.execute("ALTER TABLE runs ALTER COLUMN colour SET NOT NULL")
        connection.execute("UPDATE schema_version SET digest = 'newer'")
    with reading(path):
        pass
    with pytest.raises(StoreError, match="runs needs colour") as caught, writing(path):
        pass
    assert "newer agentload" in str(caught.value.hint)


@pytest.mark.parametrize("version", [1, None])
def test_a_database_from_before_version_2_is_refused_with_a_way_out(
    version: int | None, tmp_path: Path
) -> None:
    path = tmp_path / "x.duckdb"
    with writing(path) as connection:
        connection.execute(
            "UPDATE schema_version SET version = ?" if version else "DELETE FROM schema_version",
            [version] if version else [],
        )
    for opening in (reading, writing):
        with pytest.raises(StoreError, match="reads version 2 and later") as caught, opening(path):
            pass
        assert "agentload runs load" in str(caught.value.hint)
