"""Start the servers of an arms file, wait until they answer, and end them for certain, their engines included.

A serving engine runs in processes of its own, which outlive an API server that was killed and then hold the GPU's memory. So each server
leads a process group, and its processes carry a mark in their environment: whoever is of the group, carries the mark or descends from
such a process is ended by its id. Neither sign alone is enough: vLLM's engines write their title over their environment, and an engine may
lead a session of its own.
"""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import time
import urllib.error
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPException
from pathlib import Path
from typing import BinaryIO, Final

from agentload.endpoints.endpoint import Endpoint, Launch
from agentload.endpoints.reach import opener
from agentload.endpoints.sharing import check_apart
from agentload.errors import LaunchError
from agentload.telemetry.reach import plain

START_S: Final = 1800.0  # a large checkpoint takes its time
STOP_S: Final = 20.0
GONE_S: Final = 10.0  # for the kernel to take back what was killed
LOOK_S: Final = 0.5
LOG_TAIL: Final = 2000
MARK: Final = "AGENTLOAD_LAUNCHED"
PROCESSES: Final = Path("/proc")


class EndedError(LaunchError):
    """Report a server that ended while it was starting, with its exit code."""

    def __init__(self, code: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


@dataclass(frozen=True, slots=True)
class _Process:
    parent: int
    group: int
    session: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server that was started."""

    arm: str
    process: subprocess.Popen[bytes]
    mark: str
    log: Path

    @property
    def pid(self) -> int:
        """Return the id of its first process, which is the id of its group."""
        return self.process.pid

    def survivors(self) -> tuple[int, ...]:
        """Return the processes of this server that still run."""
        table = dict(_processes())
        found = {pid for pid, each in table.items() if (each.group, each.session) == (self.pid, os.getsid(0)) or _is_marked(pid, self.mark)}
        while more := {pid for pid, each in table.items() if each.parent in found} - found:
            found |= more
        return tuple(sorted(found))

    def stop(self, *, patience_s: float = STOP_S) -> tuple[int, ...]:
        """End the server; return the processes that had to be killed. Raises LaunchError when one cannot be ended."""
        try:
            if self.process.poll() is None:
                self.process.terminate()  # the API server first: it takes its engines along when it can
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)
        finally:  # also where a second Ctrl-C ends the wait
            killed = self._killed()
        until = time.monotonic() + GONE_S
        while left := self.survivors():
            if time.monotonic() > until:
                raise LaunchError(f"{self.arm}: processes {', '.join(map(str, left))} cannot be ended", hint=f"see {self.log}")
            time.sleep(LOOK_S / 5)
        return killed

    def _killed(self) -> tuple[int, ...]:
        left = self.survivors()
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


def start(endpoint: Endpoint, *, logs: Path, start_s: float = START_S, is_stopping: Callable[[], bool] = lambda: False) -> Running:
    """Start the server of one arm and return when it is healthy. Raises LaunchError, with the end of its log, when it is not."""
    if endpoint.launch is None:
        raise LaunchError(f"{endpoint.name}: the arms file has no 'launch'", hint="launch: vllm serve MODEL --port 8000")
    if _is_taken(endpoint):
        raise LaunchError(f"{endpoint.name}: something answers at {endpoint.root} already", hint="stop it, or choose another port")
    running = _spawned(endpoint.name, endpoint.launch, logs)
    try:
        _wait(running, endpoint, until=time.monotonic() + start_s, is_stopping=is_stopping)
    except BaseException:
        running.stop()
        raise
    return running


@contextmanager
def launched(
    endpoints: Sequence[Endpoint], *, logs: Path, start_s: float = START_S, notice: Callable[[str], None] = lambda _: None
) -> Iterator[Mapping[str, Running]]:
    """Run the servers of all arms side by side for as long as the block lasts."""
    check_apart(endpoints)
    with ExitStack() as stack:
        servers: dict[str, Running] = {}
        # One after the other: two that measure free memory at once take each other's for their own.
        for endpoint in endpoints:
            notice(f"{endpoint.name}: starting, log in {logs / f'{endpoint.name}.log'}")
            began = time.monotonic()
            running = start(endpoint, logs=logs, start_s=start_s)
            stack.callback(_ended, running, notice)
            servers[endpoint.name] = running
            notice(f"{endpoint.name}: ready after {time.monotonic() - began:.0f} s at {endpoint.shown_url} (process {running.pid})")
        yield servers


def _ended(running: Running, notice: Callable[[str], None]) -> None:
    killed = running.stop()
    notice(f"{running.arm}: stopped" + (f", {len(killed)} processes had to be killed" if killed else ""))


def _spawned(arm: str, launch: Launch, logs: Path) -> Running:
    log = logs / f"{arm}.log"
    mark = secrets.token_hex(8)
    with _opened(log, arm) as text:
        try:
            # A group of its own, so that Ctrl-C in the terminal reaches us alone and we end it in order.
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                env={**os.environ, **launch.env, MARK: mark},
                process_group=0,
            )
        except OSError as error:
            raise LaunchError(
                f"{arm}: cannot start '{launch.command[0]}': {error.strerror}", hint="is it installed and in PATH?"
            ) from error
    return Running(arm=arm, process=process, mark=mark, log=log)


def _opened(log: Path, arm: str) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")
    except OSError as error:
        raise LaunchError(f"{arm}: cannot write its log {log}: {error.strerror}", hint="--logs FOLDER names another place") from error


def _wait(running: Running, endpoint: Endpoint, *, until: float, is_stopping: Callable[[], bool]) -> None:
    while not is_healthy(endpoint):
        code = running.process.poll()
        if code is not None:
            raise EndedError(
                code,
                f"{running.arm}: the server ended with code {code}:\n{_tail(running.log, endpoint)}",
                hint=f"all of it: {running.log}",
            )
        if is_stopping():
            raise LaunchError(f"{running.arm}: stopped while it was starting")
        if time.monotonic() > until:
            raise LaunchError(f"{running.arm}: not healthy in time:\n{_tail(running.log, endpoint)}", hint=f"all of it: {running.log}")
        time.sleep(LOOK_S)


def is_healthy(endpoint: Endpoint) -> bool:
    """Tell whether the server says that it is healthy; one without /health is when it answers at all."""
    with suppress(HTTPException):
        return _health(endpoint)
    return False


def _is_taken(endpoint: Endpoint) -> bool:
    """Tell whether a server of some kind has the port, one that speaks no HTTP included."""
    with suppress(HTTPException):
        return _health(endpoint)
    return True


def _health(endpoint: Endpoint) -> bool:
    """Ask the server for its health. Raises HTTPException when what answers speaks something else."""
    try:
        with opener(endpoint).open(plain(f"{endpoint.root}/health"), timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == HTTPStatus.NOT_FOUND
    except HTTPException:  # one of them is an OSError too
        raise
    except (OSError, ValueError):
        return False


def _processes() -> Iterator[tuple[int, _Process]]:
    """Yield every process that runs, by its id."""
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):  # it ended meanwhile
            # Behind the name, which may hold anything: state, parent, group, session (proc(5)).
            state, parent, group, session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if state != "Z":
                yield int(folder.name), _Process(int(parent), int(group), int(session))


def _is_marked(pid: int, mark: str) -> bool:
    with suppress(OSError):  # it ended meanwhile, or is somebody else's
        return f"{MARK}={mark}".encode() in (PROCESSES / str(pid) / "environ").read_bytes().split(b"\0")
    return False


def _tail(log: Path, endpoint: Endpoint) -> str:
    return endpoint.masked(log.read_bytes()[-LOG_TAIL:].decode(errors="replace").strip())
