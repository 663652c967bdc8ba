"""What the tests of the thread that reads sockets share."""

import asyncio
import socket
import sys
from dataclasses import dataclass

import pytest

from agentload.live.reader import SocketReader, SocketStream
from tests.live.scripted import Peer

ON_LINUX = [
    pytest.mark.loopback,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has epoll"),
]
BY_THREAD = pytest.mark.parametrize("read_path", ["thread"], indirect=True)


@dataclass
class Watched:
    """A socket that the thread reads, and the other end of its pair."""

    reader: SocketReader
    ours: socket.socket
    theirs: socket.socket
    stream: SocketStream
    woken: asyncio.Event
    """Set when the reader calls back."""


async def answer_well(peer: Peer) -> None:
    await peer.answer(3)
