from __future__ import annotations

import asyncio
import gc
import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from agentload.errors import AgentloadError, LaunchError
from agentload.live.caller import RequestStyle
from agentload.live.hub import ReadPath
from agentload.live.station import Job
from agentload.live.target import Target
from agentload.live.workers import node as node_module
from agentload.live.workers.pool import calling
from agentload.model.commands import Call, Cancel, Forget, Limits, Prepare, Send, Watch
from agentload.model.rows import CallRow, Row
from agentload.model.trace import Segment
from agentload.prompts.tokenizer import WORD_TOKENS
from agentload.store import journal
from agentload.store.places import worker_journals
from tests.live.scripted import END, STREAM, Peer, good, serving, token

pytestmark = [pytest.mark.loopback, pytest.mark.usefixtures("read_path")]
MS = 1_000_000


def job(url: str) -> Job:
    return Job(
        run_id="r",
        leg=1,
        seed=0,
        targets=partial(tuple, [Target(arm="a", url=url)]),
        styles={"a": RequestStyle(model="m")},
        trace_seed=0,
        block=64,
        tokenizer=WORD_TOKENS,
    )


def called(session: str, turn: int) -> Call:
    context = tuple(
        Segment(role="user", tokens=4, key=f"{session}.{number}") for number in range(turn + 1)
    )
    return Call(
        session=session,
        turn=turn,
        workload="chat",
        context=context,
        context_tokens=4 * (turn + 1),
        output=3,
        wants_reply=True,
    )


def send(session: str = "s", turn: int = 0, *, in_ms: int = 0, watch: Watch | None = None) -> Send:
    at_ns = time.monotonic_ns() + in_ms * MS
    return Send(
        request_id=f"{session}{turn}",
        call=called(session, turn),
        attempt=0,
        retry_of=None,
        arm="a",
        block=0,
        pair=0,
        due_ns=at_ns,
        released_ns=at_ns,
        salt="salt",
        limits=Limits(),
        watch=watch,
    )


def no_row(_: Row) -> None:
    raise AssertionError("workers write their rows themselves")


def workers() -> list[int]:
    """Return the processes of workers that this one has started, in their order."""
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    commands = {int(child): Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return sorted(pid for pid, words in commands.items() if b"agentload.live.workers" in words)


def rows(paths: Sequence[Path]) -> list[list[CallRow]]:
    return [[row for row in journal.read(path) if isinstance(row, CallRow)] for path in paths]


async def test_workers_send_at_the_instant_keep_sessions_to_themselves_and_write_what_they_report(
    tmp_path: Path, read_path: ReadPath
) -> None:
    async def answer(peer: Peer) -> None:
        await peer.send(
            STREAM.replace(b"\r\n\r\n", b"\r\nset-cookie: route=r%d\r\n\r\n" % peer.number)
        )
        await peer.events(*good(3))
        await peer.send(END)

    paths = worker_journals(tmp_path / "leg001.journal", 2)
    async with serving(answer) as server, calling(job(server.url), no_row, journals=paths) as pool:
        pool.prepare(Prepare(request_id="x0", call=called("x", 0), arm="a", salt="salt"))
        sends = [send(session, turn, in_ms=20 - 10 * turn) for turn in (0, 1) for session in "xyz"]
        first = await asyncio.gather(*(pool.call(each, lambda _: None) for each in sends[:3]))
        second = [await pool.call(each, lambda _: None) for each in sends[3:]]
        pool.forget(Forget(arm="a", session="x"))
        afresh = await pool.call(send("x", 2), lambda _: None)
        await pool.sync()
        written = rows(paths)
        healths = pool.workers()
    outcomes = [each.outcome for each in (*first, *second, afresh)]
    assert {(each.status, each.chunks, each.reply and each.reply.text) for each in outcomes} == {
        ("ok", None, "w0 w1 w2 ")
    }
    assert all(
        each.sent_ns is not None and each.sent_ns >= order.released_ns
        for each, order in zip(outcomes, sends, strict=False)
    )
    # A session's second call finds the connection and the
    # cookie of its first; when it is forgotten, neither.
    by_connection = {asked.connection: [] for asked in server.requests}  # type: dict[int, list[str | None]]
    for asked in server.requests:
        by_connection[asked.connection].append(asked.headers.get("cookie"))
    assert sorted(len(cookies) for cookies in by_connection.values()) == [1, 2, 2, 2]
    assert all(cookies[0] is None and None not in cookies[1:] for cookies in by_connection.values())
    assert sorted({row.session for row in each} for each in written) in (
        [{"x", "z"}, {"y", "x"}],
        [{"x", "z"}, {"y"}],
        [{"y"}, {"x", "z"}],
    )
    assert sorted(
        (row.request_id, row.chunks is not None and len(row.chunks))
        for each in written
        for row in each
    ) == [(name, 3) for name in ("x0", "x1", "x2", "y0", "y1", "z0", "z1")]
    assert [each.calls for each in healths] == [len(each) for each in written]
    assert {each.read_path for each in healths} == {read_path}


async def test_a_watched_call_streams_its_tokens_and_is_cancelled_where_it_is(
    tmp_path: Path,
) -> None:
    async def drips(peer: Peer) -> None:
        await peer.send(STREAM)
        while True:
            await peer.events(token("a"))
            await asyncio.sleep(0.01)

    seen: list[int] = []
    paths = worker_journals(tmp_path / "leg001.journal", 1)
    async with serving(drips) as server, calling(job(server.url), no_row, journals=paths) as pool:

        def streamed(tokens: int) -> None:
            seen.append(tokens)
            if tokens >= 2:  # on a busy machine two tokens may come at once
                pool.cancel(Cancel(request_id="s0"))

        ended = await pool.call(send(watch=Watch(cancel_after_tokens=2)), streamed)
        # One that is given up before its worker has heard of it.
        stopping = asyncio.create_task(pool.call(send("t"), lambda _: None))
        pool.cancel(Cancel(request_id="t0", why="stopped"))
        stopped = await asyncio.wait_for(stopping, 60)
    assert ended.outcome.status == "cancelled"
    assert seen == sorted(set(seen))
    assert ended.chunks >= 2
    assert stopped.outcome.status == "stopped"


@pytest.mark.parametrize(
    ("sent", "how"),
    [(signal.SIGKILL, "was killed by signal 9"), (signal.SIGSTOP, "has said nothing for 0.8 s")],
)
async def test_a_worker_that_is_killed_or_frozen_ends_the_run_with_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: signal.Signals, how: str
) -> None:
    if sent == signal.SIGSTOP:
        monkeypatch.setattr(node_module, "LOOK_S", 0.05)
        monkeypatch.setattr(node_module, "SILENT_LOOKS", 16)  # more than a worker's own half second
    asked = asyncio.Event()

    async def answer(peer: Peer) -> None:
        asked.set()
        await peer.hang()

    async def play(url: str) -> None:
        async with (
            calling(
                job(url), no_row, journals=worker_journals(tmp_path / "leg001.journal", 1)
            ) as pool,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(pool.call(send(), lambda _: None))
            await asked.wait()
            os.kill(workers()[0], sent)
            tasks.create_task(pool.call(send("t"), lambda _: None))
            tasks.create_task(pool.sync())

    async with serving(answer) as server, asyncio.timeout(60):
        with pytest.RaisesGroup(LaunchError, flatten_subgroups=True) as caught:
            await play(server.url)
    (error,) = caught.value.exceptions
    assert isinstance(error, LaunchError)
    assert (
        error.message
        == f"worker 1 {how}: the block pair being played is lost, what was finished is kept"
    )
    assert error.hint == "agentload replay … --resume r"


@pytest.mark.slow
async def test_a_loss_that_nobody_waits_for_any_more_is_told_once(tmp_path: Path) -> None:
    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))

    async def play() -> None:
        async with calling(
            job("http://127.0.0.1:9/v1"),
            no_row,
            journals=worker_journals(tmp_path / "leg001.journal", 2),
        ) as pool:
            frozen = workers()
            for pid in frozen:
                os.kill(pid, signal.SIGSTOP)  # neither answers
            syncing = asyncio.create_task(pool.sync())
            await asyncio.sleep(0)
            os.kill(frozen[1], signal.SIGKILL)
            try:
                await asyncio.Event().wait()
            finally:
                syncing.cancel()
                await asyncio.wait([syncing])
                os.kill(frozen[0], signal.SIGCONT)

    with pytest.RaisesGroup(LaunchError):
        await play()
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_a_worker_that_cannot_write_its_journal_says_why(tmp_path: Path) -> None:
    paths = worker_journals(tmp_path / "leg001.journal", 1)
    with journal.Writer(paths[0]), pytest.RaisesGroup(AgentloadError) as caught:
        async with calling(job("http://127.0.0.1:9/v1"), no_row, journals=paths):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, AgentloadError)
    assert error.message == f"{paths[0]}: another process is writing this journal"
