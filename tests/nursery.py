"""Fork servers from a process that has their modules loaded.

A server that is started as users start it imports for a second before it serves, and tests
start hundreds. Here a process of the tests imports once, and each server is a fork of it with
streams, a folder, an environment and a process group of its own: what follows the imports is the
product's. Servers of a process that a test starts, such as a verb, are started as users start them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from select import select
from typing import BinaryIO, Final

from agentload.compiled import PURE
from agentload.serve.child import Order, main

HOUSE: Final = Path(__file__).parents[1]
OF_IMPORTS: Final = ("PYTHONPATH", PURE)
"""What decides which modules are imported: with another value a server is started as usual."""
LONGEST: Final = 1 << 20
"""Bytes of a folder and an environment."""


class Forked:
    """A server as `subprocess.Popen` shows one, as far as servers are looked after."""

    def __init__(self, nursery: socket.socket, order: bytes, log: BinaryIO) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        status, theirs_status = os.pipe()
        theirs = [theirs_in, theirs_out, log.fileno(), theirs_status]
        world = json.dumps({"folder": str(Path.cwd()), "environ": dict(os.environ)}).encode()
        socket.send_fds(nursery, [world], theirs)
        for each in (theirs_in, theirs_out, theirs_status):
            os.close(each)
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self._status.read(8))
        self.returncode: int | None = None
        with suppress(BrokenPipeError):
            self.stdin.write(order)
            self.stdin.flush()

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code, when the process has ended."""
        if self.returncode is None:
            if not select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("a server", timeout or 0.0)
            self.returncode = int(self._status.read(8))
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit code of a process that has ended."""
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def kill(self) -> None:
        """End the process at once."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


class Nursery:
    """Launch servers like `agentload.serve.processes`, but for their imports.

    Forks of the process that has started it use it with that process.
    """

    def __init__(self, usual: Callable[[Order, BinaryIO], object]) -> None:
        self._usual, self._imports = usual, imports(os.environ)
        self._wire: socket.socket | None = None

    def launch(self, order: Order, log: BinaryIO) -> object:
        """Fork a server; start one as usual where its imports are others than ours."""
        if imports(os.environ) != self._imports:
            return self._usual(order, log)
        return Forked(self.started(), order.line(), log)

    def started(self) -> socket.socket:
        """Return the way to the process that forks, and start it once."""
        if self._wire is None:
            # A message comes whole, whoever else writes.
            self._wire, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.nursery", str(theirs.fileno())],
                    cwd=HOUSE,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
        return self._wire

    def close(self) -> None:
        """End the process that forks; its servers have ended."""
        if self._wire is not None:
            self._wire.close()
            self._process.wait()


def imports(environ: Mapping[str, str]) -> tuple[str | None, ...]:
    """Return what decides which modules a process imports."""
    return tuple(environ.get(name) for name in OF_IMPORTS)


def serve(wire: socket.socket) -> int:
    """Fork whenever the tests ask for a server; return in each fork how its server ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that keep a server
    while True:
        world, files, _, _ = socket.recv_fds(wire, LONGEST, 4)
        if not world:
            return 0
        if not os.fork():
            wire.close()
            return keep(json.loads(world), files)
        for each in files:
            os.close(each)


def keep(world: Mapping[str, Mapping[str, str]], files: list[int]) -> int:
    """Fork a server, and tell its number and how it ended; in the server serve."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *streams, status = files
    server = os.fork()
    if server:
        for each in streams:
            os.close(each)
        os.write(status, b"%8d" % server)
        _, ended = os.waitpid(server, 0)
        with suppress(BrokenPipeError):  # the tests are over
            os.write(status, b"%8d" % os.waitstatus_to_exitcode(ended))
        os._exit(0)
    os.setpgid(0, 0)
    os.close(status)
    for number, each in enumerate(streams):
        os.dup2(each, number)
        os.close(each)
    os.chdir(str(world["folder"]))
    os.environ.clear()
    os.environ.update(world["environ"])
    return main()


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=int(sys.argv[1]))))
