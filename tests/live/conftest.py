"""Live tests play over both paths: sockets read by the interpreter, and by the thread."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agentload.compiled import PURE
from agentload.live import reader
from agentload.live.hub import ReadPath
from agentload.live.reader import SocketReader
from tests.live.by_thread import Watched
from tests.live.certificates import Certificates, made

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def library_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library of the thread, built of the source that is here."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("no C compiler, or no Linux")
    folder = tmp_path_factory.mktemp("reader")
    subprocess.run(
        ["make", "--silent", "--file", ROOT / "speedups" / "reader.mk", f"INTO={folder}"],
        check=True,
        cwd=ROOT,
    )
    return folder


@pytest.fixture(params=["interpreter", "thread"])
def read_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ReadPath:
    """Have sockets read this way, in processes that a test starts too."""
    path: ReadPath = request.param
    if path == "thread":
        folder = str(request.getfixturevalue("library_folder"))
        monkeypatch.syspath_prepend(folder)
        # With the modules that the tests themselves were found by: a child starts elsewhere.
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join((folder, str(ROOT))))
    monkeypatch.setenv(PURE, "1" if path == "interpreter" else "0")
    reader.load_native.cache_clear()
    return path


@pytest.fixture
async def socket_reader(read_path: ReadPath) -> AsyncIterator[SocketReader]:
    """A thread that reads sockets; it ends with the test."""
    found = SocketReader()
    yield found
    found.close()


@pytest.fixture
def both_ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A pair of sockets; the first is ours."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        yield ours, theirs


@pytest.fixture
async def watched(
    socket_reader: SocketReader, both_ends: tuple[socket.socket, socket.socket]
) -> Watched:
    """Our end of a pair, watched by the thread."""
    ours, theirs = both_ends
    woken = asyncio.Event()
    stream = socket_reader.watch(ours.fileno(), woken.set)
    return Watched(socket_reader, ours, theirs, stream, woken)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificates")
    return made(tmp_path_factory.mktemp("tls"))
