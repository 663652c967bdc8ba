"""The thread ends with its wire, is not shared with a forked process, and may be missing."""

import asyncio
import contextlib
import ctypes
import os
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from agentload.compiled import PURE
from agentload.live import reader
from agentload.live.hub import Hub, ReadPath
from agentload.live.reader import SocketReader, watcher, who_reads
from agentload.live.target import Target
from agentload.live.wire import Wire
from tests.live.by_thread import BY_THREAD, ON_LINUX, Watched, answer_well
from tests.live.calls import MS, request
from tests.live.scripted import Peer, serving

pytestmark = ON_LINUX


async def _called_from_a_child(url: str) -> bool:
    async with Wire([Target(arm="a", url=url)]) as wire:
        return (await wire.call(request(1))).status == "ok"


def listed(folder: str) -> set[str]:
    return {each.name for each in Path("/proc/self", folder).iterdir()}


def blocked(thread: str) -> int:
    """Return the set of signals that a thread blocks, as bits."""
    lines = Path("/proc/self/task", thread, "status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("SigBlk")).split()[1], 16)


@BY_THREAD
async def test_the_thread_takes_no_signal_and_is_gone_after_the_wire(read_path: ReadPath) -> None:
    threads, files = listed("task"), len(listed("fd"))
    async with Wire([]):
        (thread,) = listed("task") - threads
        for number in (signal.SIGINT, signal.SIGTERM):
            assert blocked(thread) & 1 << number - 1
    assert listed("task") == threads
    assert len(listed("fd")) == files


@pytest.mark.usefixtures("read_path")
async def test_a_wire_that_closes_in_mid_call_ends_it() -> None:
    async def answer(peer: Peer) -> None:
        await asyncio.sleep(0.2)

    async with serving(answer) as server:
        async with Wire([Target(arm="a", url=server.url)]) as wire:
            called = asyncio.create_task(wire.call(request()))
        async with asyncio.timeout(60):
            assert (await called).status != "ok"


@BY_THREAD
async def test_a_closed_reader_watches_nothing(watched: Watched) -> None:
    watched.reader.close()
    watched.reader._woken()  # as one that was pending
    watched.stream.expect(0, is_eager=True)
    assert watched.stream.take() == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        watched.reader.watch(watched.ours.fileno(), lambda: None)


@BY_THREAD
async def test_a_forked_process_leaves_the_thread_of_its_parent_alone(read_path: ReadPath) -> None:
    async with serving(answer_well) as server, Wire([Target(arm="a", url=server.url)]) as wire:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                wire._hub.close()
                asyncio.events._set_running_loop(None)
                code = 0 if asyncio.run(_called_from_a_child(server.url)) else 2
            finally:
                os._exit(code)
        _, ended = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(ended) == 0
        async with asyncio.timeout(60):
            assert (await wire.call(request())).status == "ok"


@BY_THREAD
async def test_a_forked_process_leaves_a_call_of_its_parent_alone(watched: Watched) -> None:
    reader, stream, file = watched.reader, watched.stream, watched.ours.fileno()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            stream.expect(0, is_eager=True)
            left = stream.take()
            reader.leave(file)
            with pytest.raises(OSError, match="Bad file descriptor"):
                reader.watch(file, watched.woken.set)
            reader.close()
            code = 2 if left else 0
        finally:
            os._exit(code)
    _, ended = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    watched.theirs.send(b"no head of a stream")
    async with asyncio.timeout(60):
        await watched.woken.wait()
    assert [data for _, _, data in stream.take()] == [b"no head of a stream"]


@BY_THREAD
async def test_a_forked_process_leaves_what_its_parent_sends_alone(
    socket_reader: SocketReader, both_ends: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = both_ends
    at_ns = time.monotonic_ns() + 200 * MS
    stream = socket_reader.send(ours.fileno(), lambda: None, [b"wh", b"ole"], at_ns)
    child = os.fork()
    if child == 0:
        stream.take()
        socket_reader.leave(ours.fileno())
        socket_reader.close()
        os._exit(0)
    _, ended = await asyncio.to_thread(os.waitpid, child, 0)
    assert os.waitstatus_to_exitcode(ended) == 0
    async with asyncio.timeout(60):
        assert await asyncio.get_running_loop().sock_recv(theirs, 64) == b"whole"
    assert stream.take() == []
    begun_ns, left_ns, count = stream.written
    assert at_ns <= begun_ns <= left_ns
    assert count == 5
    assert stream.take() == []
    assert stream.written == (0, 0, 0)
    socket_reader.leave(ours.fileno())
    socket_reader.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        socket_reader.send(ours.fileno(), lambda: None, [b"x"], at_ns)


async def test_without_the_library_the_interpreter_reads(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = watcher()
    assert watching.path == read_path
    watching.close()
    assert who_reads() == (read_path, "" if read_path == "thread" else f"{PURE}=1")
    monkeypatch.setenv(PURE, "0")
    monkeypatch.setattr(reader, "NAME", "agentload_reader_that_is_nowhere")
    reader.load_native.cache_clear()
    assert who_reads() == ("interpreter", "agentload-speedups is not installed")


@BY_THREAD
@pytest.mark.parametrize("name", ["VERSION", "BYTES", "READS", "HEADER", "PER_READ"])
def test_a_library_of_another_version_is_left_alone(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(reader, name, getattr(reader, name) + 1)
    assert who_reads() == ("interpreter", reader.OTHER_VERSION)


@BY_THREAD
async def test_where_the_system_starts_no_thread_the_interpreter_reads(
    read_path: ReadPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        @staticmethod
        def reader_start() -> None:
            ctypes.set_errno(24)

    monkeypatch.setattr(reader, "load_native", Broken)
    assert isinstance(watcher(), Hub)
    assert who_reads() == ("interpreter", "Too many open files")


@BY_THREAD
def test_the_reason_is_the_first_that_failed(read_path: ReadPath) -> None:
    reader.load_native()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in listed("fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 8, hard))
    taken: list[int] = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        found = []
        for _ in range(7):
            found.append(who_reads())
            os.close(taken.pop())
        whole = who_reads()
    finally:
        for file in taken:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found == [("interpreter", "Too many open files")] * 7
    assert whole == ("thread", "")


@BY_THREAD
def test_the_library_is_what_the_makefile_builds_and_names_no_symbol_of_python(
    read_path: ReadPath, library_folder: Path
) -> None:
    listed = subprocess.run(
        ["nm", "--dynamic", library_folder / "agentload_reader.so"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert "reader_watch" in listed
    assert " U Py" not in listed
