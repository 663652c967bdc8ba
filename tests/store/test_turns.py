"""The view `turns` and `model.metrics` are one definition: equal for any rows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.model import metrics
from agentload.model.rows import CallRow
from agentload.model.stamps import stamps
from agentload.store.database import reading, writing
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.study.document import json_text
from agentload.study.kinds import Ask, Replay, Study, Sweep
from agentload.study.parts import Live, Load, TraceRef
from agentload.study.stored import clock_start_of, study_of
from tests.store.rows import MS, S, call, run_row

LIVE, RAG = Live(endpoints="e"), (TraceRef(path="rag"),)
STUDIES: tuple[Study, ...] = (
    Replay(traces=RAG, servers=LIVE),
    Replay(traces=RAG, servers=LIVE, load=Load(rate_per_s=1.0)),
    Replay(traces=RAG, servers=LIVE, load=Load(rate_per_s=1.0, max_in_flight=3)),
    Replay(traces=RAG, servers=LIVE, load=Load(sessions=2)),
    Replay(traces=RAG, servers=LIVE, capacity=2),
    Sweep(servers=LIVE, contexts=(1024,)),
    Ask(servers=LIVE),
)
ROWS = tuple(
    replace(run_row(f"r{place}"), study=json_text(made), options="{}")
    for place, made in enumerate(STUDIES)
)
ns = st.integers(0, 100 * S)
counts = st.integers(0, 40)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[CallRow]:
    """Draw the attempts of one turn, of one of the runs."""
    run = draw(st.integers(0, len(ROWS)))  # the last is of no run that the database knows
    attempts: list[CallRow] = []
    for attempt in range(draw(st.integers(1, 3))):
        instants = ("dialled_ns", "opened_ns", "sent_ns", "first_ns", "last_ns", "done_ns")
        changed: dict[str, Any] = {name: draw(st.none() | ns) for name in instants}
        changed |= {
            name: draw(st.none() | counts)
            for name in ("prompt_tokens", "cached_tokens", "output_tokens")
        }
        streamed = draw(st.lists(st.tuples(ns, counts), max_size=5))
        attempts.append(
            call(
                number,
                run=f"r{run}",
                attempt=attempt,
                retry_of=attempts[-1].request_id if attempts else None,
                request_id=f"{number}-{attempt}",
                status="busy",
                due_ns=draw(ns),
                released_ns=draw(ns),
                chunks=stamps([at for at, _ in streamed], [carried for _, carried in streamed]),
                **changed,
            )
        )
    return [*attempts[:-1], replace(attempts[-1], status=draw(st.sampled_from(["ok", "reset"])))]


def _hit_rate(row: CallRow) -> float | None:
    if row.cached_tokens is not None and row.prompt_tokens:
        return row.cached_tokens / row.prompt_tokens
    return None


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_the_view_says_of_every_row_what_the_functions_say(data: st.DataObject) -> None:
    rows = [
        row for number in range(data.draw(st.integers(1, 12))) for row in data.draw(turns(number))
    ]
    clocks = {row.run_id: metrics.Clock(clock_start_of(study_of(row))) for row in ROWS}
    clocks[f"r{len(ROWS)}"] = metrics.Clock()
    expected = {}
    for row in rows:
        since_ns = clocks[row.run_id].since_ns(row)
        latencies = (
            metrics.ttft_ms(row, since_ns),
            metrics.tpot_ms(row),
            metrics.turn_ms(row, since_ns),
        )
        expected[row.request_id] = (since_ns, *latencies, metrics.lag_ms(row), _hit_rate(row))
    with tempfile.TemporaryDirectory() as folder:
        with Writer(Path(folder, "a.journal")) as journal:
            for run in ROWS:
                journal.append(run)
            for row in rows:
                journal.append(row)
        load([Path(folder, "a.journal")], Path(folder, "x.duckdb"))
        with reading(Path(folder, "x.duckdb")) as connection:
            query = (
                "SELECT request_id, since_ns, ttft_ms, tpot_ms, turn_ms, lag_ms, hit_rate FROM "
                "turns"
            )
            found = {
                request_id: tuple(values)
                for request_id, *values in connection.execute(query).fetchall()
            }
    assert found == expected


def test_the_view_has_the_columns_of_calls_and_those_of_the_metrics(tmp_path: Path) -> None:
    with writing(tmp_path / "x.duckdb") as connection:
        calls, found = (
            [name for name, *_ in connection.execute(f"DESCRIBE {view}").fetchall()]
            for view in ("calls", "turns")
        )
    assert found == [
        *calls,
        "began_ns",
        "since_ns",
        "ttft_ms",
        "tpot_ms",
        "turn_ms",
        "lag_ms",
        "hit_rate",
    ]


def test_a_database_that_was_made_without_the_view_is_read_with_it(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    with Writer(tmp_path / "a.journal") as journal:
        journal.append(call(1, first_ns=11 * S, last_ns=12 * S, output_tokens=5))
    load([tmp_path / "a.journal"], database)
    with duckdb.connect(str(database)) as connection:
        connection.execute("DROP VIEW turns")
        connection.execute("UPDATE schema_version SET digest = 'older'")
    with reading(database) as connection:
        assert connection.execute("SELECT ttft_ms, tpot_ms FROM turns").fetchall() == [
            (999.0, 250.0)
        ]
    with writing(database):
        pass
    with duckdb.connect(str(database), read_only=True) as connection:
        assert connection.execute("SELECT ttft_ms FROM turns").fetchall() == [(999.0,)]


def test_a_retry_that_names_itself_does_not_hang(tmp_path: Path) -> None:
    with Writer(tmp_path / "a.journal") as journal:
        journal.append(call(1, request_id="x", retry_of="x", attempt=1, done_ns=10_101 * MS))
    load([tmp_path / "a.journal"], tmp_path / "x.duckdb")
    with reading(tmp_path / "x.duckdb") as connection:
        assert connection.execute("SELECT turn_ms FROM turns").fetchall() == [(100.0,)]
