"""`runs csv` has a row for each request, and one for each reading of a server."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import duckdb
import pytest

from agentload.cli.runs.csv import csv as csv_verb
from tests.cli.verbs import agentload


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("csv") / "x.duckdb"
    agentload(
        "simulate short_chat --profile llama-3.1-8b-h100 --arms bf16,fp8 --sessions 4 --pairs 2 "
        "--duration 60 --wait-cap user=2",
        db=path,
    )
    return path


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_each_request_is_a_row_with_what_it_took(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload("runs csv", database, out=tmp_path / "x.csv")
    assert capsys.readouterr().out == ""
    found = rows((tmp_path / "x.csv").read_text("utf-8"))
    with duckdb.connect(str(database), read_only=True) as connection:
        calls, output, ttft = connection.sql(
            "SELECT count(*), sum(output_tokens), sum(ttft_ms) FROM turns"
        ).fetchall()[0]
    assert len(found) == calls
    assert sum(int(each["output_tokens"]) for each in found) == output
    assert sum(float(each["ttft_ms"]) for each in found) == pytest.approx(ttft)
    assert {each["arm"] for each in found} == {"bf16", "fp8"}


def test_intervals_have_the_batch_the_pool_and_tokens_since_the_reading_before(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    agentload("runs csv --intervals", database)
    found = rows(capsys.readouterr().out)
    with duckdb.connect(str(database), read_only=True) as connection:
        totals = dict(
            connection.sql(
                "SELECT arm, max(value) - min(value) FROM samples WHERE name = 'output_tokens' "
                "GROUP BY arm"
            ).fetchall()
        )
    for arm, total in totals.items():
        own = [each for each in found if each["arm"] == arm]
        assert all(0 <= float(each["running"]) <= 4 for each in own)
        assert all(0 <= float(each["kv_usage"]) <= 1 for each in own)
        tokens = sum(float(e["output_tokens_per_s"]) * float(e["seconds"]) for e in own)
        assert tokens == pytest.approx(total)
        assert total > 0


def test_help_and_docs_say_what_every_column_is(
    database: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = re.findall(r"\w+", csv_verb.__doc__ or "")
    docs = Path("docs/database.md").read_text("utf-8")
    for options in ("", " --intervals"):
        agentload(f"runs csv{options}", database)
        columns = capsys.readouterr().out.splitlines()[0].split(",")
        assert [each for each in columns if each not in told] == []
        assert [each for each in columns if f"`{each}`" not in docs] == []
