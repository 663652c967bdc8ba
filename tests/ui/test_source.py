from pathlib import Path

import duckdb
import pytest

from agentload.errors import StoreError
from agentload.store.database import writing
from agentload.ui import source
from agentload.ui.source import DatabaseFile, sources
from tests.ui.site import empty, stored, whole


class Question:
    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, connection: duckdb.DuckDBPyConnection) -> int:
        self.asked += 1
        ((count,),) = connection.execute("SELECT count(*) FROM runs").fetchall()
        return int(count)


def test_a_database_is_asked_again_only_when_it_has_changed(tmp_path: Path) -> None:
    asked, question = DatabaseFile("bench", empty(tmp_path)), Question()
    assert [asked.ask("runs", question).value for _ in range(3)] == [0, 0, 0]
    assert question.asked == 1
    stored(tmp_path, whole("r1"))
    assert (asked.ask("runs", question).value, question.asked) == (1, 2)


def test_while_it_is_written_the_last_answer_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "PATIENCE_S", 0.02)
    asked, question = DatabaseFile("bench", empty(tmp_path)), Question()
    first = asked.ask("runs", question)
    with writing(asked.path) as connection:
        connection.execute("CREATE TABLE grown AS SELECT range AS number FROM range(100000)")
        connection.execute("CHECKPOINT")
        again = asked.ask("runs", question)
        with pytest.raises(StoreError, match="has been writing it"):
            asked.ask("another", question)
    assert (first.value, first.stale_ns, again.value, question.asked) == (0, None, 0, 1)
    assert again.stale_ns is not None


def test_few_answers_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "KEPT", 2)
    asked, question = DatabaseFile("bench", empty(tmp_path)), Question()
    for key in range(source.KEPT + 1):
        asked.ask(key, question)
    asked.ask(source.KEPT, question)
    asked.ask(0, question)
    assert question.asked == source.KEPT + 2


def test_an_answer_that_is_asked_for_again_and_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "KEPT", 2)
    asked, question = DatabaseFile("bench", empty(tmp_path)), Question()
    for key in ("overview", "a", "overview", "b", "overview", "c", "overview"):
        asked.ask(key, question)
    assert question.asked == 4


def test_databases_of_one_name_are_told_apart() -> None:
    found = sources(
        (
            Path("/a/bench.duckdb"),
            Path("/b/bench.duckdb"),
            Path("/a/watch.duckdb"),
            Path("/a/bench.duckdb"),
        )
    )
    assert {name: str(each.path) for name, each in found.items()} == {
        "bench": "/a/bench.duckdb",
        "bench-2": "/b/bench.duckdb",
        "watch": "/a/watch.duckdb",
    }
