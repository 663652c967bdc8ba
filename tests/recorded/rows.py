"""What a command left in a database: how many rows, and those of which nothing depends on time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb

from tests.recorded.masks import digest

TABLES: Final = (
    "runs",
    "legs",
    "arms",
    "fingerprints",
    "blocks",
    "calls",
    "chunks",
    "samples",
    "answers",
    "probes",
    "verdicts",
    "jobs",
    "executions",
    "alarms",
)
_TIMED: Final = frozenset({"samples", "fingerprints"})  # as many as there was time for
_JUDGED: Final = frozenset({"alarms"})  # from what was measured
_RUN: Final = "kind, name, trace_name, trace_hash, model, design, seed, command, options"
_CALL: Final = (
    "arm, pair, block, workload, session, turn, attempt, status, prompt_tokens, "
    "context_tokens, asked_tokens, output_tokens"
)
_ID: Final = frozenset(
    {"run_id", "request_id", "retry_of", "prompt_hash"}
)  # they follow from the run's name
_ANSWER: Final = 'arm, task, item, context_tokens, depth, repetition, score, "right", answer'
_LISTED: Final = 30  # more calls than these are a digest


def rows(database: Path, *, is_timed: bool) -> dict[str, list[str]]:
    """Return lines about a database and about each of its runs; where
    *is_timed*, instants and what follows from them are left out.
    """
    with duckdb.connect(str(database), read_only=True) as connection:
        counts = {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
            for table in TABLES
        }
        shown = {
            table: "some" if is_timed and count and table in _TIMED else count
            for table, count in counts.items()
            if count
        }
        shown = {
            table: count for table, count in shown.items() if not (is_timed and table in _JUDGED)
        }
        found = {
            "": [
                (
                    f"{database.name}: "
                    f"{', '.join(f'{table} {count}' for table, count in shown.items())}"
                )
            ]
        }
        for run_id, *run in connection.execute(
            f"SELECT run_id, {_RUN} FROM runs ORDER BY rowid"
        ).fetchall():
            found[run_id] = list(_run(connection, run_id, run, is_timed=is_timed))
    return found


def _run(
    connection: duckdb.DuckDBPyConnection, run_id: str, run: list[object], *, is_timed: bool
) -> Iterator[str]:
    said = dict(zip(_RUN.split(", "), run, strict=True))
    options = json.loads(str(said.pop("options")))
    yield f"run {json.dumps(said)}"
    yield from (f"option {name}: {json.dumps(value)}" for name, value in options.items())
    cells = connection.execute(
        f"SELECT {_CALL} FROM calls WHERE run_id = ? ORDER BY ALL", [run_id]
    ).fetchall()
    if is_timed:  # how far a call came that was cancelled
        cells = [(*cell[:-1], "some") if "cancelled" in cell else cell for cell in cells]
    lines = [" ".join(map(str, cell)) for cell in cells]
    if len(lines) > _LISTED:
        ends = Counter(
            f"{arm} {workload} {status}" for arm, _, _, workload, _, _, _, status, *_ in cells
        )
        lines = [
            *(f"{count} x {end}" for end, count in sorted(ends.items())),
            f"all {len(lines)} {digest(lines)}",
        ]
    yield from (f"call {line}" for line in lines)
    if not is_timed:
        described = connection.execute("SELECT * FROM calls LIMIT 0").description or []
        columns = ", ".join(f'"{name}"' for name, *_ in described if name not in _ID)
        found = connection.execute(
            f"SELECT {columns} FROM calls WHERE run_id = ? ORDER BY ALL", [run_id]
        ).fetchall()
        yield f"calls to the nanosecond {digest(map(str, found))}" if found else "no calls"
    answers = connection.execute(
        f"SELECT {_ANSWER} FROM answers WHERE run_id = ? ORDER BY ALL", [run_id]
    ).fetchall()
    yield from [f"answers {len(answers)}, {digest(map(str, answers))}"] if answers else []
    blocks = connection.execute(
        "SELECT pair, block, arm, round, warmup, machine FROM blocks WHERE run_id = ? ORDER BY ALL",
        [run_id],
    ).fetchall()
    yield from (f"block {' '.join(map(str, block))}" for block in blocks)
