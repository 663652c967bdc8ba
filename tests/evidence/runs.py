"""Small runs in a real database, to gather evidence from."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from advisor.evidence import Calls, Evidence
from agentload.evidence.gather import gather
from agentload.evidence.view import RunView, run_view
from agentload.model.rows import ArmRow, BlockRow, CallRow, FingerprintRow, LegRow, Row, RunRow
from agentload.model.stamps import stamps
from agentload.store.attachment import attach
from agentload.store.database import _blank
from agentload.store.journal import Writer
from agentload.store.loader import Loaded, _load
from agentload.study.document import json_text
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef

MS = 1_000_000
S = 1_000 * MS
ARMS = ("bf16", "fp8")


STUDY = Replay(traces=(TraceRef(path="rag"),), servers=Live(endpoints="arms.yaml"))


def run(study: Replay = STUDY, **noted: object) -> RunRow:
    """Return how a run was described when it began: its study, and what was noted."""
    return RunRow(
        run_id="r1",
        kind="emulated",
        name="rag",
        created_ns=1_750_000_000 * S,
        trace_name="rag",
        trace_hash="abc",
        model="llama",
        design="interleaved",
        seed=7,
        version="0.1.0",
        command="agentload replay rag",
        options=json.dumps(noted),
        study=json_text(study),
    )


def view(**rows: Any) -> RunView:  # fields of the view
    """Return a run with these rows and no others."""
    none: dict[str, Any] = {each.name: () for each in fields(RunView)}
    return RunView(**{**none, "run": run(), **rows})


def leg(number: int = 1, health: dict[str, object] | None = None) -> LegRow:
    # Each process has its own monotonic axis; the wall clock orders them.
    return LegRow(
        run_id="r1",
        leg=number,
        host="h",
        boot_id="b",
        monotonic_ns=0,
        wall_ns=1_750_000_000 * S + number * 10_000 * S,
        status="done",
        health=json.dumps(health) if health else None,
    )


def arm(name: str, position: int, **changed: object) -> ArmRow:
    return replace(
        ArmRow(
            run_id="r1", arm=name, position=position, url=f"http://{name}:8000/v1", model="llama"
        ),
        **changed,  # type: ignore[arg-type]
    )


def fingerprint(name: str, at_s: float = 0, **facts: object) -> FingerprintRow:
    return FingerprintRow(
        run_id="r1",
        leg=1,
        arm=name,
        at_ns=round(at_s * S),
        moment="before",
        round=0,
        facts=json.dumps(facts),
    )


def block(name: str, pair: int, at_s: float, **changed: object) -> BlockRow:
    started = round(at_s * S)
    row = BlockRow(
        run_id="r1",
        leg=1,
        pair=pair,
        block=0,
        arm=name,
        round=round(at_s),
        started_ns=started,
        drain_ns=started + 50 * S,
        ended_ns=started + 100 * S,
        salt=f"{pair}",
    )
    return replace(row, **changed)  # type: ignore[arg-type]


def call(
    name: str, pair: int, at_s: float, session: str = "s1", turn: int = 0, **changed: object
) -> CallRow:
    """A call that waited 30 ms, began to answer after 80 more
    and gave 5 tokens, 20 ms each, ending 1 ms after the last.
    """
    due = round(at_s * S)
    first = due + 30 * MS + 80 * MS
    row = CallRow(
        run_id="r1",
        leg=1,
        arm=name,
        block=0,
        pair=pair,
        workload="rag",
        session=session,
        turn=turn,
        attempt=0,
        retry_of=None,
        request_id=f"{name}-{pair}-{session}-{turn}-{at_s}",
        due_ns=due,
        released_ns=due + 30 * MS,
        context_tokens=1000,
        asked_tokens=5,
        status="ok",
        sent_ns=due + 31 * MS,
        first_ns=first,
        last_ns=first + 80 * MS,
        done_ns=first + 81 * MS,
        stamp_source="kernel",
        coalesced_reads=0,
        prompt_tokens=1000,
        cached_tokens=0,
        output_tokens=5,
        http_status=200,
        finish_reason="length",
        chunks=stamps([first + k * 20 * MS for k in range(5)], [1] * 5),
    )
    return replace(row, **changed)  # type: ignore[arg-type]


NEVER_SENT: dict[str, Any] = {
    "status": "not_sent", "sent_ns": None, "first_ns": None, "last_ns": None, "done_ns": None, "prompt_tokens": None, "cached_tokens": None,
    "output_tokens": None, "coalesced_reads": None, "chunks": None, "http_status": None, "finish_reason": None,
}  # fmt: skip


def pair_of_blocks(pair: int = 0, at_s: float = 0) -> list[Row]:
    """One block on both arms, one call each."""
    return [
        row
        for place, name in enumerate(ARMS)
        for row in (block(name, pair, at_s + 200 * place), call(name, pair, at_s + 200 * place + 1))
    ]


@contextmanager
def stored(
    folder: Path, rows: Iterable[object], *, described: bool = True
) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a database that holds these rows, with a run, a leg and both arms before them.

    It is a file of the folder that others can open once this has ended.
    """
    before: list[object] = (
        [run(), leg(), *(arm(name, place) for place, name in enumerate(ARMS))] if described else []
    )
    with Writer(folder / "a.journal") as journal:
        for row in (*before, *rows):
            # lists of several row types are lists of object to mypy
            journal.append(row)  # type: ignore[arg-type]
    (folder / "x.duckdb").write_bytes(_blank())
    with attach(folder / "x.duckdb", read_only=False) as connection:
        _load(folder / "a.journal", connection, Loaded())
        yield connection


def evidence(
    folder: Path, rows: Sequence[object], *, described: bool = True, **options: Any
) -> Evidence:
    """Gather the evidence of a run with these rows."""
    with stored(folder, rows, described=described) as connection:
        return gather(connection, run_view(connection, "r1"), **options)


def calls(found: Evidence, name: str = "bf16") -> Calls:
    """Return the calls of an arm, of the class that these rows are of."""
    kept = found.calls("rag", name)
    assert kept is not None
    return kept


def column(values: object) -> list[float | None]:
    """Return figures as numbers to compare, None for each that was not observed."""
    return [
        None if np.isnan(each) else round(float(each), 6)
        for each in np.asarray(values, dtype=np.float64)
    ]


OTHER: list[Row] = [block("fp8", 0, 200), call("fp8", 0, 201)]
