"""Serve one arm for a parent process.

The order comes on standard input, the address goes to standard output, the log to standard error.
The parent keeps its end of standard input open for as long as it wants the server: when
that closes, because the parent closed it or died, the server ends by itself. The
log starts as a real server's does, for tools that read pool size, dtype and backend there.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import msgspec

from agentload.errors import AgentloadError
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.serve.server import ServedArm, ServerOptions, run


def write_log(running: ServedArm, file: TextIO) -> None:
    """Write the lines that vLLM logs about a server that is ready."""
    process = os.getpid()
    now = time.strftime("%m-%d %H:%M:%S")
    lines = running.facts.log_lines(running.url.removesuffix("/v1"))
    file.writelines(
        f"({name} pid={process}) INFO {now} [{place}] {message}\n" for name, place, message in lines
    )
    file.write(
        f"INFO:     Started server process [{process}]\nINFO:     Application startup complete.\n"
    )
    file.flush()


class Order(Record):
    """Say which arm to serve, and with which options."""

    arm: ArmProfile
    options: ServerOptions

    def line(self) -> bytes:
        """Return the order as one line of JSON."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"


class ChildReport(Record):
    """Say where the server listens, or why there is none."""

    url: str | None = None
    model: str | None = None
    error: str | None = None
    hint: str | None = None


def main() -> int:
    """Read the order, serve until the parent closes standard input, return the exit code."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order, dec_hook=_decoded)
    try:
        run(order.arm, order.options, ready=_ready, lifeline=sys.stdin.buffer)
    except AgentloadError as error:
        _report(ChildReport(error=error.message, hint=error.hint))
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        _report(ChildReport(error=f"{error.strerror}: {error.filename}"))
        return 1
    return 0


def _ready(running: ServedArm) -> None:
    write_log(running, sys.stderr)
    _report(ChildReport(url=running.url, model=running.facts.model))


def _report(report: ChildReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    sys.stdout.flush()


def _decoded(kind: type[Any], value: object) -> object:
    assert kind is Path
    return Path(str(value))


if __name__ == "__main__":
    sys.exit(main())
