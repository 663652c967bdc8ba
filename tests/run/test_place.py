import re
import shutil
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from agentload.errors import StoreError, UsageError
from agentload.model.rows import Kind
from agentload.run.place import place_of
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder, journals
from agentload.study.document import json_text
from agentload.study.kinds import Ask, Decide, Replay, Study
from agentload.study.parts import Live, TraceRef, Virtual
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


SERVERS = Live(endpoints="bf16=http://127.0.0.1:1/v1,fp8=http://127.0.0.1:2/v1")
REPLAY = Replay(traces=(TraceRef(path="chat"),), servers=SERVERS)


@pytest.mark.parametrize(
    ("study", "next_step"),
    [
        (REPLAY, "resume it with: agentload replay chat .* --resume r1"),
        (
            Decide(traces=(TraceRef(path="chat"),), servers=SERVERS),
            "resume it with: agentload decide chat .* --resume r1",
        ),
        (ASK, "add to it with: agentload eval .* --into r1"),
    ],
)
@pytest.mark.parametrize("is_imported", [False, True])
def test_a_name_that_a_run_has_is_no_name_of_a_new_one(
    tmp_path: Path, study: Study, next_step: str, *, is_imported: bool
) -> None:
    database = tmp_path / "x.duckdb"
    row = replace(run_row(), study=json_text(REPLAY))
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(row)
        writer.append(call(0))
    if is_imported:
        load(journals(database, "r1"), database)
        shutil.rmtree(journal_folder(database, "r1"))
    with pytest.raises(UsageError, match="--run-id r1: there is a run of this name in") as refused:
        place_of(study, db=database, run_id="r1")
    assert refused.value.hint is not None
    # What only a database holds was measured elsewhere: no journal says where to resume.
    expected = next_step
    if is_imported and study is not ASK:
        expected = "give another name"
    assert re.match(expected, refused.value.hint)
    assert place_of(study, db=database, run_id="r").run == "r"


def test_a_study_in_virtual_time_is_made_again_under_its_name(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(run_row())
    simulated = msgspec.structs.replace(REPLAY, servers=Virtual(profile="llama-3.1-8b-h100"))
    assert place_of(simulated, db=database, run_id="r1").run == "r1"


@pytest.mark.parametrize(
    ("kind", "stored", "is_refused"),
    [
        ("simulated", {}, False),
        ("simulated", {"pairs": 3}, True),
        ("simulated", {"traces": (TraceRef(path="rag"),)}, True),
        ("measured", {}, True),
    ],
)
def test_a_simulation_takes_the_name_of_no_other_study_and_of_no_measurement(
    kind: Kind, stored: dict[str, object], *, is_refused: bool, tmp_path: Path
) -> None:
    database = tmp_path / "x.duckdb"
    typed = msgspec.structs.replace(REPLAY, servers=Virtual(profile="llama-3.1-8b-h100"))
    hashed = tuple(msgspec.structs.replace(each, sha256="ab") for each in typed.traces)
    made = msgspec.structs.replace(typed, **{"traces": hashed, **stored})
    with Writer(journal_folder(database, "r1") / "leg001.journal") as writer:
        writer.append(replace(run_row(), kind=kind, study=json_text(made)))
    if not is_refused:
        assert place_of(typed, db=database, run_id="r1").run == "r1"
        return
    with pytest.raises(UsageError, match="there is a run of this name") as refused:
        place_of(typed, db=database, run_id="r1")
    assert refused.value.hint == "give another name, or leave out --run-id"
    decision = Decide(traces=REPLAY.traces, servers=typed.servers)
    with pytest.raises(UsageError, match="there is a run of this name"):
        place_of(decision, db=database, run_id="r1")
