from collections.abc import Iterable
from pathlib import Path

import pytest

from agentload.errors import StoreError
from agentload.model.rows import ArmRow, LegRow, Row
from agentload.model.stamps import stamps
from agentload.store import runs
from agentload.store.database import reading, writing
from agentload.store.journal import Writer
from agentload.store.loader import load
from tests.store.rows import ONE_OF_EACH, S, block_row, call, run_row

LEGS: tuple[Row, ...] = (
    LegRow(run_id="r1", leg=0, host="h", boot_id=None, monotonic_ns=0, wall_ns=1, status="failed"),
    LegRow(
        run_id="r1",
        leg=1,
        host="h",
        boot_id=None,
        monotonic_ns=5 * S,
        wall_ns=2,
        ended_ns=9 * S,
        status="done",
        health='{"cpu_share":0.5}',
    ),
)
ARMS: tuple[Row, ...] = tuple(
    ArmRow(run_id="r1", arm=arm, position=position, url=None, model="m", profile=f"p/{arm}")
    for position, arm in ((1, "bf16"), (0, "fp8"))
)


def database(folder: Path, rows: Iterable[Row]) -> Path:
    with Writer(folder / "a.journal") as journal:
        for row in rows:
            journal.append(row)
    load([folder / "a.journal"], folder / "x.duckdb")
    return folder / "x.duckdb"


def test_runs_are_listed_as_they_were_stored(tmp_path: Path) -> None:
    rows = [
        run_row("r2"),
        run_row(),
        *LEGS,
        *ARMS,
        block_row(),
        block_row(arm="fp8", void="drop"),
        call(1),
        call(2, status="busy"),
    ]
    with reading(database(tmp_path, rows)) as connection:
        second, first = runs.lines(connection)
    assert first == runs.RunLine(
        run_id="r1",
        kind="simulated",
        name="rag",
        created_ns=1_700_000_000 * S,
        model="m",
        arms=("fp8", "bf16"),
        status="done",
        blocks=2,
        void_blocks=1,
        calls=2,
        ok=1,
    )
    assert (second.run_id, second.arms, second.status, second.blocks, second.calls) == (
        "r2",
        (),
        "unknown",
        0,
        0,
    )


def test_a_run_is_found_by_its_name_or_how_it_begins(tmp_path: Path) -> None:
    with reading(
        database(tmp_path, [run_row("20261120-aa"), run_row("20261120-ab"), run_row("20261120-a")])
    ) as connection:
        assert runs.find_run(connection, "20261120-a").run_id == "20261120-a"
        assert runs.find_run(connection, "20261120-ab").run_id == "20261120-ab"
        with pytest.raises(StoreError, match="3 runs start with"):
            runs.find_run(connection, "2026")
        with pytest.raises(StoreError, match="no run 'x'"):
            runs.find_run(connection, "x")


def test_a_summary_counts_statuses_and_leaves_the_drain_tail_out_of_rates(tmp_path: Path) -> None:
    def streamed(number: int, first_s: float, last_s: float) -> Row:
        first, last = round(first_s * S), round(last_s * S)
        return call(
            number,
            first_ns=first,
            last_ns=last,
            done_ns=last,
            output_tokens=100,
            due_ns=10 * S,
            released_ns=10 * S,
            chunks=stamps([first], [1]),
        )

    rows = [
        run_row(),
        *LEGS,
        *ARMS,
        # Ten seconds, of which the last six are drain: 100 tokens
        # before it, half of 100 across it, none of 100 after it.
        block_row(drain_ns=14 * S),
        streamed(1, 11, 13),
        streamed(2, 13, 15),
        streamed(3, 14, 16),
        call(4, status="reset"),
        block_row(arm="fp8", void="clock drop"),
    ]
    with reading(database(tmp_path, rows)) as connection:
        found = runs.summary(connection, "r1")
    assert [(each.arm, dict(each.statuses)) for each in found.arms] == [
        ("fp8", {}),
        ("bf16", {"ok": 3, "reset": 1}),
    ]
    assert [(each.leg, each.status, each.seconds, each.health) for each in found.legs] == [
        (0, "failed", None, None),
        (1, "done", 4.0, {"cpu_share": 0.5}),
    ]
    assert found.blocks == (
        runs.BlockLine(
            leg=0,
            round=0,
            pair=0,
            block=0,
            arm="bf16",
            seconds=10.0,
            drain_share=0.6,
            calls=4,
            ok=3,
            output_tokens_per_s=37.5,
            requests_per_s=0.25,
            warmup=False,
            void=None,
        ),
        runs.BlockLine(
            leg=0,
            round=0,
            pair=0,
            block=0,
            arm="fp8",
            seconds=10.0,
            drain_share=None,
            calls=0,
            ok=0,
            output_tokens_per_s=None,
            requests_per_s=None,
            warmup=False,
            void="clock drop",
        ),
    )


def test_deleting_a_run_leaves_nothing_of_it_and_all_of_the_others(tmp_path: Path) -> None:
    others: list[Row] = [run_row("r2"), call(1, run="r2"), call(2, run="r2")]
    path = database(tmp_path, [*ONE_OF_EACH, *others])
    with writing(path) as connection:
        runs.delete(connection, "r1")
        left = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in (
                "runs",
                "legs",
                "arms",
                "fingerprints",
                "blocks",
                "calls_row",
                "chunks_row",
                "samples",
                "answers",
                "verdicts",
            )
        }
    assert left == dict.fromkeys(left, 0) | {"runs": 1, "calls_row": 2, "chunks_row": 2}
    # Its journal can bring it back, without doubling what is there.
    assert load([tmp_path / "a.journal"], path).calls == 2
    with reading(path) as connection:
        assert [(each.run_id, each.calls) for each in runs.lines(connection)] == [
            ("r1", 2),
            ("r2", 2),
        ]
