"""A run goes from one database to another as one file."""

import json
import tarfile
from collections.abc import Iterable
from dataclasses import fields, replace
from pathlib import Path

import pytest
import zstandard

from agentload.errors import StoreError
from agentload.model.rows import AnswerRow, ArmRow, BlockRow, CallRow, LegRow, Row, RunRow
from agentload.model.stamps import stamps
from agentload.store import archive
from agentload.store.database import reading
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.tables import TABLES, rows
from tests.store.rows import MS, ONE_OF_EACH, S, block_row, call, run_row

MOVED = [table for table in TABLES.values() if table.name not in archive.OF_SCHEDULES]


def database_of(path: Path, found: Iterable[Row]) -> Path:
    journal = path.with_suffix(".rows")
    with Writer(journal) as writer:
        for row in found:
            writer.append(row)
    load([journal], path)
    return path


def tables(database: Path, run: str) -> dict[str, list[tuple[object, ...]]]:
    """Return what a database has of a run, without the numbers that it gave its calls."""
    with reading(database) as connection:
        found = {
            table.name: connection.execute(
                f"SELECT * EXCLUDE (call_id) FROM {table.name} WHERE run_id = ? ORDER BY ALL"
                if table.row is CallRow
                else f"SELECT * FROM {table.name} WHERE run_id = ? ORDER BY ALL",
                [run],
            ).fetchall()
            for table in MOVED
        }
        found["chunks"] = connection.execute(
            "SELECT request_id, start_ns, gap_us, tokens FROM chunks JOIN calls_row USING (call_id) "
            "WHERE run_id = ? ORDER BY ALL",
            [run],
        ).fetchall()
    return found


def test_every_row_of_a_run_arrives_as_it_was(tmp_path: Path) -> None:
    late = stamps([11 * S, 11 * S + 20 * MS, 19 * S, 19 * S + 1], [3, 1, 1, 65_535])
    other: list[Row] = [run_row("r2"), call(7, run="r2")]
    ours = database_of(tmp_path / "ours.duckdb", [*ONE_OF_EACH, call(3, chunks=late), *other])
    about = archive.export(ours, "r1", tmp_path / "sub" / "run.tar.zst")
    theirs = database_of(tmp_path / "theirs.duckdb", [call(9, run="r9")])
    assert archive.import_(tmp_path / "sub" / "run.tar.zst", theirs) == about
    assert tables(theirs, "r1") == tables(ours, "r1")
    assert all(tables(ours, "r1").values())
    assert (about.rows, tables(theirs, "r2")["runs"], about.redacted) == (12, [], False)
    with reading(theirs) as connection:
        assert connection.execute("SELECT count(*) FROM alarms").fetchall() == [(0,)]


def test_equal_rows_give_equal_bytes_and_an_import_can_be_exported(tmp_path: Path) -> None:
    ours = database_of(tmp_path / "ours.duckdb", ONE_OF_EACH)
    first, second = tmp_path / "1.tar.zst", tmp_path / "2.tar.zst"
    archive.export(ours, "r1", first)
    archive.import_(first, tmp_path / "theirs.duckdb")
    archive.export(tmp_path / "theirs.duckdb", "r1", second)
    assert first.read_bytes() == second.read_bytes()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


def test_the_study_lies_in_the_archive_as_a_file(tmp_path: Path) -> None:
    study = '{"kind": "replay"}'
    ours = database_of(tmp_path / "ours.duckdb", [replace(run_row(), study=study)])
    archive.export(ours, "r1", tmp_path / "run.tar.zst")
    with (
        zstandard.open(tmp_path / "run.tar.zst", "rb") as packed,
        tarfile.open(fileobj=packed, mode="r|") as tar,
    ):
        found = {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert (list(found), found["study.json"]) == (
        ["archive.json", "study.json", "rows.journal"],
        study.encode(),
    )


def test_a_run_that_is_there_already_stays(tmp_path: Path) -> None:
    ours = database_of(tmp_path / "ours.duckdb", ONE_OF_EACH)
    archive.export(ours, "r1", tmp_path / "run.tar.zst")
    with pytest.raises(StoreError, match="has run 'r1' already") as caught:
        archive.import_(tmp_path / "run.tar.zst", ours)
    assert caught.value.hint is not None
    assert "agentload runs delete r1" in caught.value.hint


def test_a_damaged_archive_loads_nothing(tmp_path: Path) -> None:
    ours = database_of(tmp_path / "ours.duckdb", ONE_OF_EACH)
    whole = tmp_path / "run.tar.zst"
    archive.export(ours, "r1", whole)
    content = whole.read_bytes()
    damaged = tmp_path / "damaged.tar.zst"
    cuts = [content[:size] for size in range(0, len(content), 97)]
    flips = [
        content[:at] + bytes([content[at] ^ 0x40]) + content[at + 1 :]
        for at in range(4, len(content), 101)
    ]
    for each in (*cuts, *flips, b"no archive", b""):
        damaged.write_bytes(each)
        with pytest.raises(StoreError):
            archive.import_(damaged, tmp_path / "theirs.duckdb")
    assert not (tmp_path / "theirs.duckdb").exists()
    assert not (tmp_path / "theirs.journal").exists()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"run_id": "../../r1"}, "another version"),
        ({"run_id": ".."}, "another version"),
        ({"format": "agentload-archive/9"}, "another version"),
        ({"run_id": "r3"}, "rows of another run"),
        ({"rows": 4}, "11 rows where there should be 4"),
        ({"rows": "many"}, "damaged"),
    ],
)
def test_an_archive_that_says_what_it_does_not_hold_is_refused(
    tmp_path: Path, changed: dict[str, object], said: str
) -> None:
    ours = database_of(tmp_path / "ours.duckdb", ONE_OF_EACH)
    archive.export(ours, "r1", tmp_path / "run.tar.zst")
    with (
        zstandard.open(tmp_path / "run.tar.zst", "rb") as packed,
        zstandard.open(tmp_path / "lie.tar.zst", "wb") as lie,
        tarfile.open(fileobj=packed, mode="r|") as tar,
        tarfile.open(fileobj=lie, mode="w|") as out,
    ):
        for member in tar:
            source = tar.extractfile(member)
            assert source is not None
            if member.name == "archive.json":
                about = tmp_path / "about"
                about.write_text(json.dumps(json.loads(source.read()) | changed))
                out.add(about, "archive.json")
            else:
                out.addfile(member, source)
    with pytest.raises(StoreError, match=said):
        archive.import_(tmp_path / "lie.tar.zst", tmp_path / "theirs.duckdb")
    assert not (tmp_path / "theirs.duckdb").exists()


PRIVATE = (
    "gpu-box-7",
    "10.1.2.3:8000",
    "rack-12",
    "/home/ann",
    "ann-session",
    "the answer is 42",
    "upstream said no",
    "cache=hit",
    "b00t",
    "f00d",
    "10.1.2.3",
    "GPU-BOX-7",
    "s3cret",
)


def private_run() -> tuple[Row, ...]:
    url = "http://10.1.2.3:8000/v1"
    return (
        replace(
            run_row(),
            command=f"agentload replay /home/ann/logs/rag.jsonl --endpoints bf16={url}",
            options=json.dumps({"trace": "/home/ann/logs/rag.jsonl", "note": "a\n/home/ann/x y"}),
            study=json.dumps(
                {
                    "servers": {"bf16": url},
                    "client": "GPU-BOX-7.local",
                    "metrics": "http://ann:s3cret@10.1.2.3:9100/metrics?key=s3cret",
                    "plain": "10.1.2.3 is where",
                }
            ),
        ),
        LegRow(
            run_id="r1", leg=0, host="gpu-box-7", boot_id="b00t", monotonic_ns=5, wall_ns=1700 * S
        ),
        ArmRow(run_id="r1", arm="bf16", position=0, url=url, model="m", machine="rack-12"),
        replace(block_row(), machine="rack-12"),
        call(1, session="ann-session", replica="10.1.2.3:8000", gateway="cache=hit"),
        call(2, session="ann-session", chunks=None, status="refused", error="upstream said no"),
        call(3, session="other", prompt_hash="f00d"),
        call(4, session="other", prompt_hash="f00d", arm="fp8"),
        AnswerRow(
            run_id="r1",
            arm="bf16",
            task="needle",
            item="ann-session[3]",
            context_tokens=4000,
            depth=0.5,
            repetition=0,
            score=1.0,
            right=True,
            answer="the answer is 42",
        ),
    )


def test_a_redacted_archive_says_nothing_of_whose_it_is(tmp_path: Path) -> None:
    ours = database_of(tmp_path / "ours.duckdb", private_run())
    assert archive.export(ours, "r1", tmp_path / "run.tar.zst", redact=True).redacted
    with zstandard.open(tmp_path / "run.tar.zst", "rb") as packed:
        content = packed.read()
    assert [word for word in PRIVATE if word.encode() in content] == []
    archive.import_(tmp_path / "run.tar.zst", tmp_path / "theirs.duckdb")
    with reading(tmp_path / "theirs.duckdb") as connection:
        (run,) = rows(connection, RunRow, run_id="r1")
        (arm,) = rows(connection, ArmRow, run_id="r1")
        (block,) = rows(connection, BlockRow, run_id="r1")
        sessions = connection.execute(
            "SELECT DISTINCT session, replica FROM calls_row ORDER BY ALL"
        ).fetchall()
        (hashes,) = connection.execute(
            "SELECT count(DISTINCT prompt_hash) FROM calls_row"
        ).fetchall()
    # The same thing has the same name everywhere.
    assert arm.url == "http://server-1/v1"
    assert run.command == "agentload replay rag.jsonl --endpoints bf16=http://server-1/v1"
    assert json.loads(run.study or "") == {
        "servers": {"bf16": "http://server-1/v1"},
        "client": "client-1.local",
        "metrics": "http://server-2/metrics",
        "plain": "server-1 is where",
    }
    assert json.loads(run.options) == {"trace": "rag.jsonl", "note": "a\nx y"}
    assert (arm.machine, block.machine) == ("machine-1", "machine-1")
    assert {replica for _, replica in sessions} == {None, "server-1"}
    assert ({name for name, _ in sessions}, hashes) == ({"session-1", "session-2"}, (1,))


def test_figures_of_a_redacted_run_are_those_of_the_run(tmp_path: Path) -> None:
    ours = database_of(tmp_path / "ours.duckdb", private_run())
    archive.export(ours, "r1", tmp_path / "run.tar.zst", redact=True)
    archive.import_(tmp_path / "run.tar.zst", tmp_path / "theirs.duckdb")
    private = {"session", "replica", "gateway", "error", "prompt_hash"}
    public = ", ".join(
        each.name for each in fields(CallRow) if each.name not in {*private, "chunks"}
    )
    found = []
    for database in (ours, tmp_path / "theirs.duckdb"):
        with reading(database) as connection:
            calls = connection.execute(f"SELECT {public} FROM calls_row ORDER BY ALL").fetchall()
        found.append((calls, tables(database, "r1")["chunks"]))
    assert found[0] == found[1]
    assert len(found[0][0]) == 4


def test_names_that_the_user_chose_and_names_of_fields_stay_whatever_machines_are_called(
    tmp_path: Path,
) -> None:
    # Machines that are called as an arm, a field of a study, the command and the run are.
    rows_of_run = (
        replace(run_row(), command="agentload replay rag", study='{"kind": "replay"}'),
        LegRow(run_id="r1", leg=0, host="kind", boot_id=None, monotonic_ns=5, wall_ns=6),
        LegRow(run_id="r1", leg=1, host="agentload", boot_id=None, monotonic_ns=5, wall_ns=6),
        LegRow(run_id="r1", leg=2, host="r1", boot_id=None, monotonic_ns=5, wall_ns=6),
        ArmRow(run_id="r1", arm="bf16", position=0, url=None, model="m", machine="bf16"),
        call(1),
    )
    ours = database_of(tmp_path / "ours.duckdb", rows_of_run)
    archive.export(ours, "r1", tmp_path / "run.tar.zst", redact=True)
    archive.import_(tmp_path / "run.tar.zst", tmp_path / "theirs.duckdb")
    with reading(tmp_path / "theirs.duckdb") as connection:
        (run,) = rows(connection, RunRow, run_id="r1")
        (arm,) = rows(connection, ArmRow, run_id="r1")
        hosts = [each.host for each in rows(connection, LegRow, run_id="r1")]
    assert (run.command, run.study) == ("agentload replay rag", '{"kind": "replay"}')
    assert (arm.arm, arm.machine) == ("bf16", "machine-1")
    assert hosts == ["client-1", "client-2", "client-3"]
