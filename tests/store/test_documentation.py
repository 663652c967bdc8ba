"""docs/database.md names every column, and its queries run."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from agentload.model.rows import AnswerRow, Row
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from tests.store.rows import MS, ONE_OF_EACH, block_row, call

PAGE = Path(__file__).parents[2] / "docs" / "database.md"
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(scope="module")
def connection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("documentation")
    told: dict[str, Any] = {
        "first_ns": 10_080 * MS,
        "done_ns": 10_200 * MS,
        "prompt_tokens": 1000,
        "cached_tokens": 500,
    }
    rows: list[Row] = [*ONE_OF_EACH, block_row(arm="fp8", void="clock drop")]
    rows += [call(5, arm=arm, **told) for arm in ("bf16", "fp8")]
    rows += [replace(row, arm="fp8") for row in ONE_OF_EACH if isinstance(row, AnswerRow)]
    with Writer(folder / "a.journal") as journal:
        for row in rows:
            journal.append(row)
    load([folder / "a.journal"], folder / "x.duckdb")
    with reading(folder / "x.duckdb") as found:
        yield found


@pytest.mark.parametrize(
    "query", QUERIES, ids=lambda query: query.splitlines()[0].removeprefix("-- ")[:40]
)
def test_every_query_of_the_page_runs_and_finds_something(
    query: str, connection: duckdb.DuckDBPyConnection
) -> None:
    assert connection.execute(query).fetchall()


def test_every_table_and_column_is_on_the_page(connection: duckdb.DuckDBPyConnection) -> None:
    page = PAGE.read_text(encoding="utf-8")
    columns = connection.execute(
        "SELECT table_name, column_name FROM duckdb_columns() WHERE schema_name = 'main' "
        "AND NOT internal"
    ).fetchall()
    named = set(re.findall(r"`(\w+)", page))
    assert {(table, column) for table, column in columns if not {table, column} <= named} == set()
    assert len(QUERIES) >= 8
