"""A small run, and what a strange day makes of its rows:
what a server, a clock, a machine or a user can bring about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import agentload
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.rows import (
    AnswerRow,
    ArmRow,
    BlockRow,
    CallRow,
    FingerprintRow,
    LegRow,
    ProbeRow,
    Row,
    RunRow,
    SampleRow,
)
from agentload.model.stamps import stamps
from agentload.store.journal import Writer, read
from agentload.store.loader import load
from agentload.store.places import journal_folder

MS: Final = 1_000_000
S: Final = 1_000 * MS
FIRST, SECOND = ARMS = ("bf16", "fp8")
PROFILE: Final = "llama-3.1-8b-h100"
EVIL: Final = "a|b <i>\"quoted\"</i> 'é 漢' $x `y` {z} %s"
NO_ANSWER: Final[Mapping[str, Any]] = {
    "first_ns": None, "first_answer_ns": None, "last_ns": None, "output_tokens": None, "thinking_tokens": None, "prompt_tokens": None,
    "cached_tokens": None, "chunks": None, "coalesced_reads": None, "token_rule": None, "finish_reason": None,
}  # fmt: skip

Rows: TypeAlias = Sequence[Row]
Odd: TypeAlias = Callable[[Rows], Iterable[Row]]
R = TypeVar("R", bound=Row)


def played(database: Path) -> tuple[Row, ...]:
    """Play a small run: two arms, two workloads, three pairs,
    graded answers, and steps of a search for capacity.
    """
    servers = agentload.Virtual(profile=PROFILE, arms=ARMS)
    traces = tuple(agentload.TraceRef(path=path) for path in ("demo-chat", "demo-rag"))
    run = agentload.simulate(
        agentload.Replay(traces=traces, servers=servers, pairs=3), db=database
    ).run_id
    agentload.eval(
        agentload.Ask(servers=servers, items=12, contexts=(1024, 4096)), db=database, into=run
    )
    limit = agentload.Slo(ttft_ms=300, tpot_ms=12)
    agentload.search(
        agentload.Search(traces=traces[:1], servers=servers, trial_s=5, slo=limit),
        db=database,
        into=run,
    )
    return rows_of(database, run)


def rows_of(database: Path, run: str) -> tuple[Row, ...]:
    """Read a run's rows from its journals."""
    return tuple(
        row
        for path in sorted(journal_folder(database, run).glob("*.journal"))
        for row in read(path)
    )


def stored(rows: Iterable[Row], database: Path) -> None:
    """Add rows to a database as a run adds them."""
    journal = database.with_suffix(".rows")
    journal.unlink(missing_ok=True)
    with Writer(journal) as writer:
        for row in rows:
            writer.append(row)
    load([journal], database)


def named(rows: Iterable[Row], run: str) -> tuple[Row, ...]:
    """Give a run's rows to a run of another name."""
    out = []
    for row in rows:
        known = {field.name for field in fields(row)}
        changed: dict[str, Any] = {"run_id": run} if "run_id" in known else {}
        if isinstance(row, CallRow):
            changed |= {
                "request_id": f"{run} {row.request_id}",
                "retry_of": row.retry_of and f"{run} {row.retry_of}",
            }
        out.append(replace(row, **changed))
    return tuple(out)


def of(kind: type[R], change: Callable[[R], Row | None]) -> Odd:
    """Change the rows of a kind, or leave them out."""
    return lambda rows: [
        after
        for row in rows
        if (after := change(row) if isinstance(row, kind) else row) is not None
    ]


def no(kind: type[R], gone: Callable[[R], bool] = lambda _: True) -> Odd:
    """Leave out rows of a kind."""
    return of(kind, lambda row: None if gone(row) else row)


def setting(kind: type[R], where: Callable[[R], bool] = lambda _: True, /, **values: Any) -> Odd:
    """Give rows of a kind these values."""
    return of(kind, lambda row: replace(row, **values) if where(row) else row)


def both(*each: Odd) -> Odd:
    """Do one after the other."""

    def done(rows: Rows) -> Rows:
        for odd in each:
            rows = tuple(odd(rows))
        return rows

    return done


def on(arm: str) -> Callable[[Any], bool]:
    """Say whether a row is of an arm."""
    return lambda row: row.arm == arm


def failed(status: str, where: Callable[[CallRow], bool] = lambda _: True, **more: Any) -> Odd:
    """Let calls end in a failure."""
    return setting(CallRow, where, **{**NO_ANSWER, "status": status, **more})


def in_one_read(row: CallRow) -> CallRow:
    """Let all chunks of an answer come in one read: on a machine too busy to look before."""
    if row.chunks is None or row.done_ns is None:
        return row
    at, count = row.done_ns, len(row.chunks)
    chunks = stamps([at] * count, [1] * count)
    return replace(
        row, first_ns=at, first_answer_ns=at, last_ns=at, chunks=chunks, coalesced_reads=count - 1
    )


def of_tokens(count: int) -> Callable[[CallRow], CallRow]:
    """Let every answer have this many tokens, in one chunk."""

    def cut(row: CallRow) -> CallRow:
        if row.first_ns is None:
            return row
        if not count:
            return replace(
                row, **{**NO_ANSWER, "output_tokens": 0, "prompt_tokens": row.prompt_tokens}
            )
        chunks = stamps([row.first_ns], [count])
        return replace(
            row, output_tokens=count, asked_tokens=count, last_ns=row.first_ns, chunks=chunks
        )

    return cut


def at_once(row: CallRow) -> CallRow:
    """Let a call take no time at all, as on a clock of coarse ticks."""
    at = row.released_ns
    chunks = (
        None if row.chunks is None else stamps([at] * len(row.chunks), row.chunks.token_counts())
    )
    instants = (
        "dialled_ns",
        "opened_ns",
        "sent_ns",
        "first_ns",
        "first_answer_ns",
        "last_ns",
        "done_ns",
    )
    known: dict[str, Any] = {name: at for name in instants if getattr(row, name) is not None}
    return replace(row, due_ns=at, chunks=chunks, **known)


def stretched(by: int) -> Callable[[CallRow], CallRow]:
    """Let a call take this many times as long."""

    def longer(row: CallRow) -> CallRow:
        def at(ns: int) -> int:
            return row.released_ns + (ns - row.released_ns) * by

        known: dict[str, Any] = {
            name: at(ns)
            for name in ("sent_ns", "first_ns", "first_answer_ns", "last_ns", "done_ns")
            if (ns := getattr(row, name)) is not None
        }
        chunks = (
            None
            if row.chunks is None
            else stamps([at(ns) for ns in row.chunks.ns()], row.chunks.token_counts())
        )
        return replace(row, chunks=chunks, **known)

    return longer


def stepped_back(row: CallRow) -> CallRow:
    """Let the clock step back by a second while calls are in flight."""
    return (
        replace(row, done_ns=row.done_ns - S, last_ns=row.last_ns - S)
        if row.done_ns and row.last_ns
        else row
    )


def silent(kind: type[Any]) -> Odd:
    """Say nothing of what need not be said: None in every
    column that may be NULL, but for the instants of a call.
    """
    kept = {"retry_of", "sent_ns", "first_ns", "last_ns", "done_ns", "ended_ns", "study", "chunks"}
    gone = {
        field.name: None
        for field in fields(kind)
        if "None" in str(field.type) and field.name not in kept
    }
    return setting(kind, **gone)


def twins(rows: Rows) -> Iterable[Row]:
    """Let the second arm do to the bit what the first one does, at the same instants."""
    calls = {
        (row.pair, row.session, row.turn, row.attempt): row
        for row in rows
        if isinstance(row, CallRow) and row.arm == FIRST
    }
    blocks = {row.pair: row for row in rows if isinstance(row, BlockRow) and row.arm == FIRST}
    for row in rows:
        match row:
            case CallRow() if row.arm == SECOND:
                own = calls[row.pair, row.session, row.turn, row.attempt]
                yield replace(own, arm=SECOND, request_id=row.request_id, retry_of=row.retry_of)
            case BlockRow() if row.arm == SECOND:
                own_block = blocks[row.pair]
                yield replace(
                    row,
                    started_ns=own_block.started_ns,
                    drain_ns=own_block.drain_ns,
                    ended_ns=own_block.ended_ns,
                )
            case AnswerRow() | ProbeRow():
                continue
            case _:
                yield row


def metrics(*series: tuple[str, Sequence[float]]) -> Odd:
    """Let every server's metrics be these, read once in each of its blocks."""

    def sampled(rows: Rows) -> Iterable[Row]:
        yield from (row for row in rows if not isinstance(row, SampleRow))
        for number, block in enumerate(row for row in rows if isinstance(row, BlockRow)):
            for name, values in series:
                for place, at in enumerate(
                    (
                        block.started_ns + 1,
                        ((block.ended_ns or block.started_ns) + block.started_ns) // 2,
                    )
                ):
                    value = values[(2 * number + place) % len(values)]
                    yield SampleRow(
                        run_id=block.run_id,
                        leg=block.leg,
                        arm=block.arm,
                        at_ns=at,
                        name=name,
                        value=value,
                    )

    return sampled


def swept(rows: Rows) -> Iterable[Row]:
    """Let the last pair be that of a sweep whose prompts all are of one length."""
    last = max(row.pair for row in rows if isinstance(row, BlockRow))
    for row in rows:
        yield (
            replace(row, workload=CONTEXT_SWEEP, prompt_tokens=1000)
            if isinstance(row, CallRow) and row.pair == last
            else row
        )


def probed(**values: Any) -> Odd:
    """Let every step of the search for capacity say this."""
    return of(
        ProbeRow,
        lambda row: replace(row, detail=json.dumps({**json.loads(row.detail or "{}"), **values})),
    )


def as_called(arm: str) -> Odd:
    """Call the second arm so, wherever it is named."""

    def called(rows: Rows) -> Iterable[Row]:
        for row in rows:
            # those that have one
            yield replace(row, arm=arm) if getattr(row, "arm", None) == SECOND else row  # type: ignore[arg-type]

    return called


ODD: Final[Mapping[str, Odd]] = {
    "as it was": lambda rows: rows,
    "measured": setting(RunRow, kind="measured"),
    "every answer in one read": of(CallRow, in_one_read),
    "no time at all": both(
        of(CallRow, at_once),
        of(BlockRow, lambda row: replace(row, ended_ns=row.started_ns, drain_ns=row.started_ns)),
    ),
    "no time on one arm": of(CallRow, lambda row: at_once(row) if row.arm == SECOND else row),
    "no token": of(CallRow, of_tokens(0)),
    "one token": of(CallRow, of_tokens(1)),
    "one chunk of all tokens": of(CallRow, of_tokens(40)),
    "no token on one arm": of(CallRow, lambda row: of_tokens(0)(row) if row.arm == SECOND else row),
    "all failed": failed("http_error", http_status=500, error="a|b <c>"),
    "one arm failed": failed("http_error", on(SECOND), http_status=500, error="out of memory"),
    "the reference failed": failed("reset", on(FIRST)),
    "one arm timed out": failed("total_timeout", on(SECOND)),
    "one arm cancelled": setting(CallRow, on(SECOND), status="cancelled"),
    "one arm never sent": failed(
        "not_sent", on(SECOND), sent_ns=None, done_ns=None, http_status=None
    ),
    "one workload failed": failed(
        "busy", lambda row: row.workload == "rag", http_status=429, error="429 slow down"
    ),
    "every second failed": failed("truncated", lambda row: row.turn % 2 == 1),
    "one call is left": of(
        CallRow,
        lambda row: row if row.pair == 0 and row.turn == 0 and row.session.endswith("0") else None,
    ),
    "a class with one call": both(
        no(CallRow, lambda row: row.workload == "rag" and (row.pair, row.turn) != (0, 0))
    ),
    "one arm's blocks invalid": setting(BlockRow, on(SECOND), void="another client's requests"),
    "all blocks invalid": setting(BlockRow, void="another client's requests"),
    "one arm never played": both(no(BlockRow, on(SECOND)), no(CallRow, on(SECOND))),
    "no block ended": setting(BlockRow, ended_ns=None, drain_ns=None),
    "one pair": both(no(BlockRow, lambda row: row.pair > 0), no(CallRow, lambda row: row.pair > 0)),
    "two pairs": both(
        no(BlockRow, lambda row: row.pair > 1), no(CallRow, lambda row: row.pair > 1)
    ),
    "one session": of(
        CallRow,
        lambda row: replace(row, session="s", turn=row.turn + 100 * (hash(row.session) % 97)),
    ),
    "one turn each": no(CallRow, lambda row: row.turn > 0),
    "no calls": no(CallRow),
    "no blocks": no(BlockRow),
    "no part": no(LegRow),
    "no arms": no(ArmRow),
    "no fingerprints": no(FingerprintRow),
    "one arm alone": both(
        *(
            no(kind, on(SECOND))
            for kind in (ArmRow, BlockRow, CallRow, SampleRow, AnswerRow, ProbeRow, FingerprintRow)
        )
    ),
    "prompts of one token": setting(CallRow, prompt_tokens=1, context_tokens=1, cached_tokens=0),
    "prompts of no token": setting(CallRow, prompt_tokens=0, context_tokens=0, cached_tokens=0),
    "all cached": of(CallRow, lambda row: replace(row, cached_tokens=row.prompt_tokens)),
    "more cached than asked": of(
        CallRow, lambda row: replace(row, cached_tokens=(row.prompt_tokens or 0) + 500)
    ),
    "huge counts": setting(
        CallRow,
        prompt_tokens=2**31 - 1,
        context_tokens=2**31 - 1,
        output_tokens=2**31 - 1,
        asked_tokens=2**31 - 1,
    ),
    "huge times": of(CallRow, stretched(100_000)),
    "a thousand times slower": of(
        CallRow, lambda row: stretched(1_000)(row) if row.arm == SECOND else row
    ),
    "a clock that steps back": of(CallRow, stepped_back),
    "the machine's clock was set": of(
        LegRow, lambda row: replace(row, wall_ns=-5 * S, monotonic_ns=3 * S)
    ),
    "nothing said of runs": silent(RunRow),
    "nothing said of parts": silent(LegRow),
    "nothing said of arms": silent(ArmRow),
    "nothing said of blocks": silent(BlockRow),
    "nothing said of calls": silent(CallRow),
    "nothing said of answers": silent(AnswerRow),
    "no instants": setting(
        CallRow,
        opened_ns=None,
        sent_ns=None,
        first_ns=None,
        first_answer_ns=None,
        last_ns=None,
        done_ns=None,
        chunks=None,
    ),
    "no study": setting(RunRow, study=None, options="{}"),
    "no metrics": no(SampleRow),
    "constant metrics": metrics(
        ("kv_usage", (1.0,)), ("preemptions", (3.0,)), ("running", (0.0,)), ("gpu_power_w", (0.0,))
    ),
    "counters that go back": metrics(
        ("preemptions", (9.0, 4.0, 0.0)),
        ("generation_tokens", (5.0, 1.0)),
        ("kv_usage", (0.0, 0.99)),
    ),
    "phases without a request": metrics(
        *(
            (f"{name}_{part}", (0.0,))
            for name in ("queue_s", "prefill_s", "ttft_s", "itl_s")
            for part in ("sum", "count")
        )
    ),
    "huge metrics": metrics(
        ("kv_usage", (7.0,)),
        ("preemptions", (0.0, 1e18)),
        ("gpu_power_w", (1e12,)),
        ("gpu_clock_mhz", (0.0,)),
    ),
    "identical": twins,
    "identical, measured": both(twins, setting(RunRow, kind="measured")),
    "a name of all kinds": as_called(EVIL),
    "a name of one letter": as_called("x"),
    "a long name": as_called("fp8-" * 60),
    "a workload of all kinds": setting(CallRow, workload=EVIL),
    "all answers right": setting(AnswerRow, score=1.0, right=True),
    "all answers wrong": setting(AnswerRow, score=0.0, right=False),
    "one arm's answers wrong": setting(AnswerRow, on(SECOND), score=0.0, right=False),
    "no answer graded": setting(AnswerRow, score=None, right=None, answer=None, signals=None),
    "one arm's answers missing": no(AnswerRow, on(SECOND)),
    "one answer each": of(
        AnswerRow,
        lambda row: replace(
            row, task="needle", item="1", repetition=0, context_tokens=1024, depth=0.5
        ),
    ),
    "answers of no length": setting(AnswerRow, context_tokens=0, depth=0.0),
    "no answers": no(AnswerRow),
    "no search": no(ProbeRow),
    "no turn held": probed(within=0),
    "every turn held": of(
        ProbeRow,
        lambda row: replace(
            row,
            detail=json.dumps(
                {**(said := json.loads(row.detail or "{}")), "within": said.get("turns", 0)}
            ),
        ),
    ),
    "trials without turns": probed(
        turns=0,
        within=0,
        minutes=0,
        output_tokens_per_s=0,
        hit_rate=None,
        peak_kv_usage=None,
        preemptions=None,
    ),
    "trials in trouble": probed(trouble="preempted"),
    "a sweep of one length": swept,
    "all primed": setting(CallRow, prime=True),
    "all of the tail": setting(CallRow, tail=True),
    "an old date": setting(RunRow, created_ns=0),
}
