"""A loop that is held while something comes."""

import asyncio
import json
import socket
import threading
import time

from tests.live.scripted import END, STREAM, await_all_read, good


class Hold:
    """Hold an event loop until it may go on, at most a minute."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_held, self._is_over = threading.Event(), threading.Event()
        loop.call_soon_threadsafe(self._hold)
        self._is_held.wait(60)

    def _hold(self) -> None:
        self._is_held.set()
        self._is_over.wait(60)

    def over(self) -> None:
        """Let the loop go on."""
        self._is_over.set()


def written_to_a_late_reader(
    peer: socket.socket, loop: asyncio.AbstractEventLoop
) -> list[tuple[int, int]]:
    """Answer with two tokens, the second while the reader's loop is held.

    Returns the instants before each was written, and long after that.
    """
    written_ns: list[tuple[int, int]] = []
    peer.recv(65536)
    peer.sendall(STREAM)
    for payload in good(2)[:2]:
        await_all_read(peer.getsockname()[1])
        hold = Hold(loop) if written_ns else None
        event = f"data: {json.dumps(payload)}\n\n".encode()
        before_ns = time.monotonic_ns()
        peer.sendall(b"%x\r\n%b\r\n" % (len(event), event))
        time.sleep(0.05)
        written_ns.append((before_ns, time.monotonic_ns()))
        if hold is not None:
            time.sleep(0.05)
            hold.over()
            await_all_read(peer.getsockname()[1])  # or the end is read with the token
    peer.sendall(END)
    return written_ns
