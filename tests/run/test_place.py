from pathlib import Path

import pytest

from agentload.errors import StoreError
from agentload.run.place import place_of
from agentload.store.journal import Writer
from agentload.store.places import journal_folder
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from tests.store.rows import call, run_row

ASK = Ask(servers=Live(endpoints="a=http://h:1/v1"))


def test_a_run_that_only_journals_hold_is_joined(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(run_row())
        writer.append(call(0))
    assert place_of(ASK, db=database, into="r").into == "r1"


def test_a_run_that_neither_has_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        place_of(ASK, db=tmp_path / "x.duckdb", into="r1")
