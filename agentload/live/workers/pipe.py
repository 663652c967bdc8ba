"""Send messages between two processes: pickles with their length, over a socket pair."""

import asyncio
import pickle
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

_LENGTH: Final = struct.Struct("<I")


class Pipe(asyncio.Protocol):
    """One end of a pipe: passes on each whole message, and never waits for the reader."""

    def __init__(self, on_message: Callable[[Any], None], on_close: Callable[[], None]) -> None:
        self.on_message = on_message
        self._on_close = on_close
        self._got = bytearray()
        self._transport: asyncio.Transport | None = None

    def say(self, message: object) -> None:
        """Send a message; if the other end is gone it is lost, and `on_close` follows."""
        assert self._transport is not None
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        self._transport.write(_LENGTH.pack(len(content)) + content)

    def close(self) -> None:
        """Send nothing more; the other end notices after it has read everything."""
        assert self._transport is not None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Pass on every message that is whole."""
        self._got += data
        at = 0
        while (end := _end(self._got, at)) is not None:
            # Pickle is safe here: the other end is this program.
            message = pickle.loads(self._got[at + _LENGTH.size : end])  # noqa: S301
            at = end
            self.on_message(message)
        del self._got[:at]

    # `exc` is part of asyncio's signature.
    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Pass on that the other end is gone."""
        self._on_close()


async def connect(
    sock: socket.socket, on_message: Callable[[Any], None], on_close: Callable[[], None]
) -> Pipe:
    """Return a pipe over one end of a socket pair."""
    _, pipe = await asyncio.get_running_loop().create_unix_connection(
        lambda: Pipe(on_message, on_close), sock=sock
    )
    return pipe


def receive(sock: socket.socket) -> Any:  # noqa: ANN401  # whatever the other end says
    """Wait for one message, before a loop runs; raise EOFError if the other end is gone."""
    (length,) = _LENGTH.unpack(_exactly(sock, _LENGTH.size))
    return pickle.loads(_exactly(sock, length))  # noqa: S301  # the other end is this program


def _end(got: bytearray, at: int) -> int | None:
    """Return where the message at *at* ends; None when it is not whole."""
    if len(got) - at < _LENGTH.size:
        return None
    end: int = at + _LENGTH.size + _LENGTH.unpack_from(got, at)[0]
    return end if end <= len(got) else None


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = bytearray()
    while len(got) < size:
        piece = sock.recv(size - len(got))
        if not piece:
            raise EOFError
        got += piece
    return bytes(got)
