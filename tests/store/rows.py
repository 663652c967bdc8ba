"""Rows for tests: one of each kind, and calls with any number of chunks."""

from agentload.model.rows import (
    AlarmRow,
    AnswerRow,
    ArmRow,
    BlockRow,
    CallRow,
    ExecutionRow,
    FingerprintRow,
    JobRow,
    LegRow,
    ProbeRow,
    Row,
    RunRow,
    SampleRow,
    VerdictRow,
)
from agentload.model.stamps import stamps

MS = 1_000_000
S = 1_000 * MS


def call(
    number: int = 0,
    *,
    run: str = "r1",
    leg: int = 0,
    arm: str = "bf16",
    pair: int = 0,
    **changed: object,
) -> CallRow:
    at = 10 * S + number * MS
    row: dict[str, object] = {
        "run_id": run,
        "leg": leg,
        "arm": arm,
        "block": 0,
        "pair": pair,
        "workload": "rag",
        "session": f"s{number}",
        "turn": 0,
        "attempt": 0,
        "retry_of": None,
        "request_id": f"{run}-{arm}-{pair}-{number}",
        "due_ns": at,
        "released_ns": at + 10,
        "context_tokens": 1000,
        "asked_tokens": 5,
        "status": "ok",
        "chunks": stamps([at + 50 * MS + k * 20 * MS for k in range(5)], [1] * 5),
    }
    return CallRow(**{**row, **changed})  # type: ignore[arg-type]  # a table of test values


def run_row(run: str = "r1") -> RunRow:
    return RunRow(
        run_id=run,
        kind="simulated",
        name="rag",
        created_ns=1_700_000_000 * S,
        trace_name="rag",
        trace_hash="abc",
        model="m",
        design="interleaved",
        seed=7,
        version="0.1.0",
        command="agentload replay",
        options="{}",
    )


def block_row(
    run: str = "r1",
    *,
    arm: str = "bf16",
    pair: int = 0,
    round_: int = 0,
    drain_ns: int | None = None,
    void: str | None = None,
) -> BlockRow:
    return BlockRow(
        run_id=run,
        leg=0,
        pair=pair,
        block=0,
        arm=arm,
        round=round_,
        started_ns=10 * S,
        drain_ns=drain_ns,
        ended_ns=20 * S,
        salt=f"{pair}",
        void=void,
    )


ONE_OF_EACH: tuple[Row, ...] = (
    run_row(),
    LegRow(run_id="r1", leg=0, host="h", boot_id=None, monotonic_ns=5, wall_ns=1_700_000_000 * S),
    ArmRow(run_id="r1", arm="bf16", position=0, url="http://127.0.0.1:1/v1", model="m"),
    FingerprintRow(
        run_id="r1",
        leg=0,
        arm="bf16",
        at_ns=6,
        moment="before",
        round=0,
        facts='{"version":"0.33.0"}',
    ),
    block_row(),
    call(1),
    call(2, chunks=None, status="refused", error="nobody listens"),
    SampleRow(run_id="r1", leg=0, arm="bf16", at_ns=7, name="vllm:num_requests_running", value=2.5),
    AnswerRow(
        run_id="r1",
        arm="bf16",
        task="needle",
        item="i1",
        context_tokens=4000,
        depth=0.5,
        repetition=0,
        score=1.0,
        right=True,
        answer="ü",
    ),
    VerdictRow(run_id="r1", at_ns=8, policy="default", decision="{}"),
    ProbeRow(
        run_id="r1", arm="a", probe="capacity", at_ns=9, settings='{"agents":8}', outcome="ok"
    ),
    JobRow(job="nightly", added_ns=10, schedule="0 2 * * * (UTC)", spec="{}"),
    ExecutionRow(
        job="nightly",
        started_ns=11,
        ended_ns=12,
        due_ns=None,
        outcome="done",
        run_id="r1",
        detail="{}",
    ),
    AlarmRow(
        job="nightly",
        kind="regression",
        metric=None,
        raised_ns=12,
        closed_ns=None,
        run_id="r1",
        detail="{}",
    ),
)
