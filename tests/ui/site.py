"""A site over a small database, with words in it that would do harm if a page believed them."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp.test_utils import TestClient, TestServer

from agentload.model.rows import (
    AlarmRow,
    ArmRow,
    BlockRow,
    CallRow,
    FingerprintRow,
    LegRow,
    Row,
    RunRow,
    VerdictRow,
)
from agentload.store.database import writing
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.ui.app import Site, application
from agentload.ui.guard import LOOPBACK
from agentload.ui.reports import Reports
from agentload.ui.source import sources
from agentload.verdict.policy import Setting
from agentload.watch.alarms import Rule, alarms
from agentload.watch.ledger import alarm_rows, execution_row
from tests.store.rows import MS, S
from tests.watch.histories import DAY_NS, execution, history

EVIL = "<script>alert('x')</script>"
MARKDOWN = "[click](javascript:alert(1)) **bold** <img src=x onerror=alert(1)>"


def run_row(run: str, *, number: int = 0, **changed: object) -> RunRow:
    row: dict[str, object] = {
        "run_id": run,
        "kind": "measured",
        "name": "rag",
        "created_ns": 1_790_000_000 * S + number * DAY_NS,
        "trace_name": "rag",
        "trace_hash": "abc",
        "model": "m",
        "design": "interleaved",
        "seed": 7,
        "version": "0.1.0",
        "command": "agentload replay rag",
        "options": json.dumps({"rounds": 4, "calls": {"bf16": 8, "fp8": 8}}),
    }
    return RunRow(**{**row, **changed})  # type: ignore[arg-type]  # a table of test values


def leg_row(
    run: str, status: str = "done", *, leg: int = 1, wall_ns: int = 1_790_000_000 * S
) -> LegRow:
    ended_ns = None if status == "running" else 60 * S
    return LegRow(
        run_id=run,
        leg=leg,
        host="h",
        boot_id=None,
        monotonic_ns=0,
        wall_ns=wall_ns,
        ended_ns=ended_ns,
        status=status,  # type: ignore[arg-type]  # as above
    )


def call(
    run: str, number: int, *, arm: str = "bf16", leg: int = 1, pair: int = 0, **changed: object
) -> CallRow:
    at = number * S
    row: dict[str, object] = {
        "run_id": run,
        "leg": leg,
        "arm": arm,
        "block": pair,
        "pair": pair,
        "workload": "rag",
        "session": f"s{number}",
        "turn": 0,
        "attempt": 0,
        "retry_of": None,
        "request_id": f"{run}-{arm}-{pair}-{number}",
        "due_ns": at,
        "released_ns": at,
        "sent_ns": at,
        "first_ns": at + 200 * MS,
        "last_ns": at + 1_200 * MS,
        "done_ns": at + 1_200 * MS,
        "context_tokens": 1000,
        "prompt_tokens": 1000,
        "asked_tokens": 101,
        "output_tokens": 101,
        "status": "ok",
        "http_status": 200,
    }
    return CallRow(**{**row, **changed})  # type: ignore[arg-type]  # as above


def block(run: str, *, round_: int, arm: str, void: str | None = None) -> BlockRow:
    return BlockRow(
        run_id=run,
        leg=1,
        pair=round_ // 2,
        block=round_ // 2,
        arm=arm,
        round=round_,
        started_ns=0,
        drain_ns=None,
        ended_ns=50 * S,
        salt=f"x{round_}",
        void=void,
    )


def whole(run: str, *, name: str = "rag") -> list[Row]:
    """Return the rows of a small run that is done."""
    arms = [
        ArmRow(run_id=run, arm=arm, position=place, url=f"http://{arm}:8000/v1", model="m")
        for place, arm in enumerate(("bf16", "fp8"))
    ]
    calls = [call(run, number, arm=arm) for arm in ("bf16", "fp8") for number in range(4)]
    return [
        run_row(run, name=name),
        leg_row(run),
        *arms,
        *calls,
        block(run, round_=0, arm="bf16"),
        block(run, round_=1, arm="fp8"),
    ]


def hostile(run: str = "r-evil") -> list[Row]:
    """Return a run whose trace, server, session and error carry markup."""
    return [
        run_row(run, name=EVIL, trace_name=EVIL, model=EVIL, command=f"agentload replay {EVIL}"),
        leg_row(run),
        ArmRow(run_id=run, arm=EVIL, position=0, url=f"http://h/{EVIL}", model=EVIL, machine=EVIL),
        FingerprintRow(
            run_id=run,
            leg=1,
            arm=EVIL,
            at_ns=0,
            moment="before",
            round=0,
            facts=json.dumps({"version": EVIL, "models": [EVIL]}),
        ),
        call(run, 1, arm=EVIL, workload=EVIL, session=EVIL),
        call(
            run,
            2,
            arm=EVIL,
            workload=EVIL,
            session=EVIL,
            status="http_error",
            http_status=500,
            error=f"{EVIL} {MARKDOWN}",
        ),
        block(run, round_=0, arm=EVIL, void=EVIL),
        VerdictRow(
            run_id=run,
            at_ns=5,
            policy=EVIL,
            decision=json.dumps({"headline": f"{EVIL} {MARKDOWN}"}),
        ),
    ]


def watched() -> list[Row]:
    """Return a job's history with a regression that holds."""
    past = history(*[0.001, -0.002] * 8, 0.12, 0.11, 0.12)
    return [*map(execution_row, past), *alarm_rows("nightly", alarms(past, Rule()), (), at_ns=0)]


def evil_job() -> list[Row]:
    """Return a job whose server lies in its words."""
    gone = execution(1, "dead", reason=f"{EVIL} {MARKDOWN}")
    detail = json.dumps({"message": f"{EVIL} {MARKDOWN}", "suspects": [EVIL]})
    alarm = AlarmRow(
        job="nightly",
        kind="dead endpoint",
        metric=None,
        raised_ns=1,
        closed_ns=None,
        run_id="r-evil",
        detail=detail,
    )
    return [execution_row(gone), alarm]


def stored(folder: Path, rows: Iterable[Row]) -> Path:
    """Make a database of rows."""
    database = folder / "bench.duckdb"
    with Writer(folder / "rows.journal") as journal:
        for row in rows:
            journal.append(row)
    load([folder / "rows.journal"], database)
    return database


def empty(folder: Path) -> Path:
    """Make a database without a row."""
    with writing(folder / "bench.duckdb"):
        return folder / "bench.duckdb"


def begun(database: Path, run: str, *rows: Row) -> Writer:
    """Begin a run's journal as a replay does, and leave it open: the run is on."""
    folder = journal_folder(database, run)
    folder.mkdir(parents=True, exist_ok=True)
    writer = Writer(folder / "leg001.journal")
    for row in (run_row(run), leg_row(run, "running", wall_ns=time.time_ns() - 60 * S), *rows):
        writer.append(row)
    writer.flush()
    return writer


@asynccontextmanager
# of whatever application
async def site(*databases: Path, names: Iterable[str] = ()) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    """Serve databases."""
    made = Site(
        sources=sources(databases), reports=Reports(setting=Setting()), hosts=LOOPBACK | set(names)
    )
    async with TestClient(TestServer(application(made))) as client:
        yield client
