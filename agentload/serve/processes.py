"""Start one server process per arm, and stop the processes.

Used by `emulated:PROFILE`, by `demo`, and by `emulate` without an arm.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from select import select
from typing import BinaryIO, Final, Self
from urllib.parse import urlsplit

import msgspec

from agentload.errors import LaunchError
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.serve.child import ChildReport, Order
from agentload.serve.server import ServerOptions

_START_S: Final = 30.0
_STOP_S: Final = 5.0
# This many bytes of a dead server's log are quoted in the error.
_LOG_TAIL: Final = 2000


class ServerProcess(Record):
    """Say where one arm is served."""

    arm: str
    profile: str
    url: str
    """Base URL of the API, with its /v1."""
    model: str
    pid: int


class Servers:
    """Hold running servers.

    They end with the context, with `stop`, and with the death of this process.
    """

    def __init__(
        self, servers: tuple[ServerProcess, ...], processes: Sequence[subprocess.Popen[bytes]]
    ) -> None:
        self.servers = servers
        self._processes = tuple(processes)

    @property
    def urls(self) -> dict[str, str]:
        """Base URL of each arm."""
        return {server.arm: server.url for server in self.servers}

    def stop(self) -> None:
        """Tell the servers to end; kill those that do not."""
        _stop(self._processes)

    def dead(self) -> tuple[ServerProcess, ...]:
        """Return the servers that have ended."""
        return tuple(
            server
            for server, process in zip(self.servers, self._processes, strict=True)
            if process.poll() is not None
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    arms: Sequence[ArmProfile],
    options: ServerOptions = ServerOptions(),
    *,
    logs: Path | None = None,
) -> Servers:
    """Start a server for each arm; return when all take requests.

    With several arms, their ports follow each other from the one in *options*, and each arm
    writes a truth file of its own, with the arm's name before the suffix. *logs* is a folder
    for the servers' logs. Raises LaunchError, with the server's last output, when one does
    not start.
    """
    options = replace(options, stand_ins=tuple(arms))
    processes: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files:
        texts = [files.enter_context(_log(logs, arm)) for arm in arms]
        try:
            for position, (arm, text) in enumerate(zip(arms, texts, strict=True)):
                processes.append(
                    _launch(
                        Order(arm=arm, options=_options_of(arm, options, position, len(arms))), text
                    )
                )
            servers = tuple(_ready(*each) for each in zip(arms, processes, texts, strict=True))
        except BaseException:
            _stop(processes)
            raise
    return Servers(servers, processes)


def _options_of(
    arm: ArmProfile, options: ServerOptions, position: int, total: int
) -> ServerOptions:
    truth = options.truth
    if truth is not None and total > 1:
        truth = truth.with_name(f"{truth.stem}-{arm.name}{truth.suffix}")
    return replace(options, port=options.port + position if options.port else 0, truth=truth)


def _launch(order: Order, log: BinaryIO) -> subprocess.Popen[bytes]:
    # A process group of its own: Ctrl-C in the terminal reaches the
    # parent alone, which stops its servers when it is done with them.
    process = subprocess.Popen(
        [sys.executable, "-m", "agentload.serve.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        process_group=0,
    )
    assert process.stdin
    with suppress(BrokenPipeError):  # the process died at once, and its log says why
        process.stdin.write(order.line())
        process.stdin.flush()
    return process


def _ready(arm: ArmProfile, process: subprocess.Popen[bytes], log: BinaryIO) -> ServerProcess:
    assert process.stdout
    name = f"{arm.profile}/{arm.name}"
    if not select([process.stdout], [], [], _START_S)[0]:
        raise LaunchError(f"the server of {name} is not ready after {_START_S:g} s: {_tail(log)}")
    line = process.stdout.readline()
    if not line:
        process.wait()
        raise LaunchError(
            f"the server of {name} ended with code {process.returncode}: {_tail(log)}"
        )
    report = msgspec.json.decode(line, type=ChildReport)
    if report.url is None or report.model is None:
        raise LaunchError(f"{name}: {report.error}", hint=report.hint)
    if not _is_healthy(report.url):
        raise LaunchError(f"the server of {name} does not answer at {report.url}: {_tail(log)}")
    return ServerProcess(
        arm=arm.name, profile=arm.profile, url=report.url, model=report.model, pid=process.pid
    )


def _is_healthy(url: str) -> bool:
    parts = urlsplit(url)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=_START_S)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _log(folder: Path | None, arm: ArmProfile) -> BinaryIO:
    if folder is None:
        return tempfile.TemporaryFile()
    folder.mkdir(parents=True, exist_ok=True)
    return (folder / f"{arm.name}.log").open("w+b")


def _tail(log: BinaryIO) -> str:
    log.seek(0, 2)
    log.seek(max(0, log.tell() - _LOG_TAIL))
    return log.read().decode(errors="replace").strip()


def _stop(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        if process.stdin:
            with suppress(BrokenPipeError):
                process.stdin.close()
    for process in processes:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout:
            process.stdout.close()
