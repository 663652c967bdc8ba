import tempfile
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.model.stamps import stamps
from agentload.store import codec, tables
from agentload.store.columns import is_late
from agentload.store.database import reading, writing
from agentload.store.journal import Writer
from agentload.store.loader import load
from tests.store.rows import call

# Columns of a call derived from its chunks; journals do not hold them.
DERIVED = {"chunk_count", "first_chunk_tokens", "streamed_tokens", "gap_p99_us"}
# The names that users and their queries rely on.
TABLES = {
    "runs", "legs", "arms", "fingerprints", "blocks", "calls_row", "chunks", "turns",
    "samples", "answers", "probes", "verdicts", "jobs", "executions", "alarms",
    "attempts", "streams", "readings", "graded", "played", "listed", "decided", "changes", "raised", "traced",
}  # fmt: skip
CALLS = {
    "run_id", "leg", "arm", "block", "workload", "session", "turn", "attempt", "retry_of", "request_id", "replica", "due_ns", "released_ns",
    "sent_ns", "first_ns", "first_answer_ns", "last_ns", "done_ns", "stamp_source", "prompt_tokens", "context_tokens", "cached_tokens",
    "output_tokens", "status", "http_status", "finish_reason", "error", "chunk_ns", "chunk_tokens",
}  # fmt: skip


def test_the_tables_are_those_that_are_promised(tmp_path: Path) -> None:
    with writing(tmp_path / "x.duckdb") as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'"
        ).fetchall()
        calls = dict(
            connection.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = 'calls'"
            ).fetchall()
        )
    assert {name for (name,) in tables} - {
        "schema_version",
        "journals",
        "calls",
        "chunks_row",
    } == TABLES
    assert set(calls) >= CALLS
    assert (calls["chunk_ns"], calls["chunk_tokens"]) == ("BIGINT[]", "USMALLINT[]")


@pytest.mark.parametrize("kind", tables.TABLES)
def test_every_field_of_a_row_has_a_column_and_every_kind_a_table(
    kind: int, tmp_path: Path
) -> None:
    with writing(tmp_path / "x.duckdb") as connection:
        names = connection.execute(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = ?",
            [tables.TABLES[kind].name],
        ).fetchall()
    assert {name for (name,) in names} - {"call_id"} - DERIVED == {
        field.name for field in fields(codec.KINDS[kind])
    } - {"chunks"}


@settings(max_examples=10, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(0, 10**12), st.sampled_from([1, 1, 1, 2, 17, 65535])),
            min_size=0,
            max_size=40,
        ),
        min_size=1,
        max_size=8,
    )
)
def test_the_view_gives_back_every_stamp_and_token_of_every_call(
    streams: list[list[tuple[int, int]]],
) -> None:
    calls = []
    expected: dict[str, tuple[list[int] | None, list[int] | None]] = {}
    for number, stream in enumerate(streams):
        packed = stamps(sorted(at for at, _ in stream), [tokens for _, tokens in stream])
        calls.append(call(number, chunks=packed))
        expected[calls[-1].request_id] = (
            (list(packed.ns()), list(packed.token_counts())) if packed else (None, None)
        )
    with tempfile.TemporaryDirectory() as folder:
        with Writer(Path(folder, "a.journal")) as journal:
            for each in calls:
                journal.append(each)
        load([Path(folder, "a.journal")], Path(folder, "x.duckdb"))
        with reading(Path(folder, "x.duckdb")) as connection:
            rows = connection.execute(
                "SELECT request_id, chunk_ns, chunk_tokens FROM calls"
            ).fetchall()
    assert {request_id: (ns, tokens) for request_id, ns, tokens in rows} == expected


@pytest.mark.parametrize("length", [1, 2, 3, 99, 100, 101, 2500])
def test_stamps_are_the_running_sum_of_gaps_for_any_length(length: int, tmp_path: Path) -> None:
    gaps = [None, *((7919 * k) % 40_000 for k in range(1, length))]
    with writing(tmp_path / "x.duckdb") as connection:
        ((found,),) = connection.execute("SELECT chunk_stamps(5, ?::INTEGER[])", [gaps]).fetchall()
    expected = [5]
    for gap in gaps[1:]:
        assert gap is not None
        expected.append(expected[-1] + 1000 * gap)
    assert found == expected


def test_a_few_long_gaps_cost_the_others_no_bits_and_are_read_in_their_places(
    tmp_path: Path,
) -> None:
    rng = np.random.default_rng(6)
    calls, chunks = 60, 200
    gaps = rng.integers(19_000, 21_000, (calls, chunks))
    gaps[rng.random(gaps.shape) < 0.01] = 400_000
    gaps[:, 0] = 0
    with Writer(tmp_path / "a.journal") as journal:
        for number, row in enumerate(gaps):
            journal.append(
                call(number, chunks=stamps((np.cumsum(row) * 1000).tolist(), [1] * chunks))
            )
    load([tmp_path / "a.journal"], tmp_path / "x.duckdb")
    with reading(tmp_path / "x.duckdb") as connection:
        packed = connection.execute(
            "SELECT max(list_max(gap_us)), sum(len(late_us)), min(list_min(late_us)) FROM "
            "chunks_row"
        ).fetchall()
        whole = connection.execute("SELECT gap_us FROM chunks ORDER BY call_id").fetchall()
    late = int((gaps == 400_000).sum())
    assert packed == [(20_999, late, 400_000)]
    assert [row for (row,) in whole] == [[None, *row[1:]] for row in gaps.tolist()]


@pytest.mark.parametrize(
    ("gaps", "late"),
    [
        ([], []),
        ([5], []),
        ([0, 20_000], []),
        ([20_000] * 3000, []),
        ([20_000] * 3000 + [900_000] + [20_000] * 2000, [3000]),
        # Two kinds of gap, half and half: nothing is unusual.
        ([8_000, 60_000] * 1500, []),
    ],
)
def test_a_gap_is_late_when_it_would_widen_its_group_by_more_than_it_costs(
    gaps: list[int], late: list[int]
) -> None:
    found = is_late(np.array(gaps, dtype=np.int32), np.zeros(len(gaps), dtype=np.bool_))
    assert np.flatnonzero(found).tolist() == late


@pytest.mark.parametrize("length", [1, 2, 50, 99, 100, 101, 102, 250])
def test_the_p99_of_a_calls_gaps_is_the_smallest_that_99_percent_do_not_exceed(
    length: int, tmp_path: Path
) -> None:
    gaps = np.random.default_rng(length).permutation(np.arange(1, length) * 1000)
    with Writer(tmp_path / "a.journal") as journal:
        journal.append(
            call(1, chunks=stamps([0, *(np.cumsum(gaps) * 1000).tolist()], [1] * length))
        )
    load([tmp_path / "a.journal"], tmp_path / "x.duckdb")
    with reading(tmp_path / "x.duckdb") as connection:
        ((found,),) = connection.execute("SELECT gap_p99_us FROM calls_row").fetchall()
    assert found == (int(np.quantile(gaps, 0.99, method="inverted_cdf")) if length > 1 else None)
