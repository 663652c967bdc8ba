"""Several tokens a chunk at a true 20 ms a token: every place
that prints, shows or judges a time per output token says 20.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentload.cli._audience import CallProgress
from agentload.evidence.gather import gather
from agentload.evidence.summary import summarise
from agentload.evidence.view import run_view
from agentload.layout import traces
from agentload.layout.cost import Cost
from agentload.live import health
from agentload.model.commands import Call, Send
from agentload.model.commands import Limits as CallLimits
from agentload.model.rows import CallRow
from agentload.model.stamps import stamps
from agentload.run.trial import TrialTally
from agentload.store.database import reading
from agentload.study.parts import Slo
from agentload.tracefile.files import write
from agentload.ui.pages.run import run as run_page
from agentload.ui.progress import Fold
from agentload.ui.source import Query
from tests.cli.verbs import agentload
from tests.evidence import runs
from tests.evidence.runs import ARMS, MS, block, call
from tests.live.scripted import END, STREAM, Peer, serving, token, usage

TRUE_MS = 20
LATE_MS = 1.0
TRUE: Any = pytest.approx(TRUE_MS, rel=0.025)
GROUPS = pytest.mark.parametrize("group", [4, 7])
TOKENS = pytest.mark.parametrize("tokens", [16, 180])


def bunches(group: int, tokens: int) -> list[int]:
    """Return the tokens of each chunk of an answer."""
    return [min(group, tokens - sent) for sent in range(0, tokens, group)]


def bunched(arm: str, pair: int, at_s: float, session: str, *, group: int, tokens: int) -> CallRow:
    """A call whose tokens take 20 ms each, and come *group* at a time."""
    row = call(arm, pair, at_s, session)
    counts = bunches(group, tokens)
    assert row.first_ns is not None
    at = [
        row.first_ns + TRUE_MS * MS * (sum(counts[: place + 1]) - counts[0])
        for place in range(len(counts))
    ]
    return replace(
        row, last_ns=at[-1], done_ns=at[-1] + MS, output_tokens=tokens, chunks=stamps(at, counts)
    )


def rows(group: int, tokens: int) -> list[CallRow]:
    """Calls of two pairs on both arms."""
    return [
        bunched(
            arm, pair, 400 * pair + 200 * place + number, f"s{number}", group=group, tokens=tokens
        )
        for pair in range(2)
        for place, arm in enumerate(ARMS)
        for number in range(4)
    ]


@GROUPS
@TOKENS
def test_the_evidence_the_summary_and_the_page_say_what_a_token_took(
    group: int, tokens: int, tmp_path: Path
) -> None:
    plays = [
        block(arm, pair, 400 * pair + 200 * place)
        for pair in range(2)
        for place, arm in enumerate(ARMS)
    ]
    with runs.stored(tmp_path, [*plays, *rows(group, tokens)]) as connection:
        evidence = gather(connection, run_view(connection, "r1"))
        page = run_page(connection, Query(page="run", name="r1"))
    assert [each.calls.tpot_ms.tolist() for each in evidence.observations if each.calls] == [
        [TRUE] * 8
    ] * 2
    assert [each.token_p50_ms for each in summarise(tmp_path / "x.duckdb", "r1").arms] == [TRUE] * 2
    assert [each.token_ms for each in page.timings] == [(TRUE, TRUE)] * 2


@GROUPS
@TOKENS
def test_the_live_views_say_what_a_token_takes(
    group: int, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")  # a narrow table leaves a column out
    fold = Fold()
    fold.take([runs.run(), runs.leg(), *rows(group, tokens)])
    seen = fold.progress()
    assert seen is not None
    assert [(each.tpot_ms.p50, each.tpot_ms.p95) for each in seen.arms if each.tpot_ms] == [
        (TRUE, TRUE)
    ] * 2

    drawn = CallProgress(
        Cost(
            rounds=1,
            calls_by_arm=dict.fromkeys(ARMS, 8),
            prompt_tokens=0,
            output_tokens=0,
            minutes=1,
        )
    )
    for row in rows(group, tokens):
        drawn.sent(sent := outgoing(row))
        drawn.ended(sent, row)
    shown = re.findall(r"([\d.]+) ms", "\n".join(drawn.lines()))
    assert [float(each) for each in shown] == [110.0, 110.0, TRUE, TRUE, LATE_MS] * 2


@GROUPS
@TOKENS
def test_a_limit_below_what_a_token_takes_is_held_by_no_turn(group: int, tokens: int) -> None:
    for limit_ms, within in ((17.5, 0), (20.5, 16)):
        tally = TrialTally(Slo(tpot_ms=limit_ms), begun_ns=0, seconds=0.1)
        for row in rows(group, tokens):
            tally.add(row)
        assert (tally.trial(1).turns, tally.trial(1).within) == (16, within)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_a_replay_and_both_sweeps_print_what_a_token_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        health, "void_reason", lambda **_: None
    )  # whatever else this machine does meanwhile
    database, short = tmp_path / "x.duckdb", tmp_path / "short.jsonl"
    write(short, traces.sweep((256,), pairs=2, output=16, seed=1))
    with bunching(4) as (url, took_ms), bunching(4) as (other, _):
        agentload(
            "sweep --contexts 256,512 --pairs 1 --output 16 --model truth --json",
            endpoints=f"a={url},b={other}",
            db=database,
        )
        agentload(
            "replay --pairs 1 --model truth --json",
            short,
            endpoints=f"a={url},b={other}",
            db=database,
        )
        printed = capsys.readouterr().out
        said = [
            json.loads(each)
            for each in re.split(r"(?<=^})\n", printed, flags=re.MULTILINE)
            if each.strip()
        ]
        printed_ms = [arm["token_p50_ms"] for summary in said for arm in summary["arms"]]
        with reading(database) as connection:
            ((run,),) = connection.execute(
                "SELECT run_id FROM runs ORDER BY created_ns LIMIT 1"
            ).fetchall()
            sweeps = gather(connection, run_view(connection, run)).sweeps
        printed_ms += [value for each in sweeps for value in each.itl_ms]
        # This machine's other work holds up both ends by some ms.
        assert len(printed_ms) == 8
        assert 0.9 * min(took_ms) < min(printed_ms) <= max(printed_ms) < 1.1 * max(took_ms)
        agentload(
            "sweep --concurrency --start 1 --seconds 1.5 --slo tpot=17.5 --model truth",
            endpoints=f"a={url}",
            trace=short,
        )
    found = capsys.readouterr()
    assert found.out.splitlines()[1].split()[:5] == ["a", "–", "–", "0", "slo"]
    assert "0% of" in found.err


def outgoing(row: CallRow) -> Send:
    made = Call(
        session=row.session, turn=row.turn, workload="rag", context=(), context_tokens=0, output=5
    )
    return Send(
        request_id=row.request_id,
        call=made,
        attempt=0,
        retry_of=None,
        arm=row.arm,
        block=0,
        pair=row.pair,
        due_ns=row.due_ns,
        released_ns=row.released_ns,
        salt="",
        limits=CallLimits(),
    )


@contextmanager
def bunching(group: int) -> Iterator[tuple[str, list[float]]]:
    """Serve answers whose tokens come *group* at a time, 20 ms
    each, from a thread of its own; note what a token took in each.
    """
    took_ms: list[float] = []

    async def answer(peer: Peer) -> None:
        if "completions" not in peer.request.line:
            body = (
                json.dumps({"data": [{"id": "truth", "object": "model"}]}).encode()
                if "/models" in peer.request.line
                else b""
            )
            code = b"200 OK" if body else b"404 Not Found"
            await peer.send(
                b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                % (code, len(body), body)
            )
            return
        asked = json.loads(peer.request.body)
        tokens = asked.get("max_completion_tokens") or asked["max_tokens"]
        counts, at_s = bunches(group, tokens), []
        await peer.send(STREAM)
        for place, count in enumerate(counts):
            await asyncio.sleep(TRUE_MS / 1e3 * count)
            at_s.append(time.monotonic())
            await peer.events(
                token(
                    f"word{place} " * count,
                    ids=count,
                    finish="length" if place == len(counts) - 1 else None,
                )
            )
        await peer.events(usage(tokens), "[DONE]")
        await peer.send(END)
        if len(counts) > 1:  # a priming call is one token long
            took_ms.append(1e3 * (at_s[-1] - at_s[0]) / (tokens - counts[0]))

    ready, stop = threading.Event(), asyncio.Event()
    served: list[tuple[str, asyncio.AbstractEventLoop]] = []

    async def serve() -> None:
        async with serving(answer) as server:
            served.append((server.url, asyncio.get_running_loop()))
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert ready.wait(10)
    url, loop = served[0]
    try:
        yield url, took_ms
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
