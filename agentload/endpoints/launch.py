"""Start the servers of an arms file, wait until they answer, and end them with their engines.

A serving engine runs in processes of its own, which outlive an API server that was killed
and then hold the GPU's memory. So each server leads a process group, and its processes
carry a mark in their environment: every process that is of the group, carries the mark or
descends from such a process is ended by its id. Neither sign alone is enough: vLLM's engines write
their title over their environment, and an engine may lead a session of its own.

Servers that would each take the whole memory of one GPU are not started at the
same time. `restartable_server` starts a server again that died.
"""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from http import HTTPStatus
from itertools import combinations
from pathlib import Path
from typing import BinaryIO, Final

import aiohttp

from agentload.endpoints.endpoint import Endpoint, Launch, mask
from agentload.endpoints.reach import keyless
from agentload.errors import EndpointError, LaunchError
from agentload.model.record import Record
from agentload.telemetry.reach import page

DEVICES: Final = tuple(map(Path, ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")))
"""Devices, one of which a machine with GPUs has: of NVIDIA's driver, AMD's, or WSL's."""
VISIBLE: Final = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
_BOUNDED: Final = frozenset({"--gpu-memory-utilization", "--kv-cache-memory-bytes"})
_ELSEWHERE: Final = frozenset({"ssh", "srun", "docker", "podman", "kubectl"})
"""Programs that start a server on other GPUs, or select GPUs by options of their own."""
START_S: Final = 1800.0  # a large checkpoint takes its time
STOP_S: Final = 20.0
GONE_S: Final = 10.0  # for the kernel to take back what was killed
LOOK_S: Final = 0.5
HEALTH_S: Final = 5.0
LOG_TAIL: Final = 2000
MARK: Final = "AGENTLOAD_LAUNCHED"
UMASK: Final = "AGENTLOAD_UMASK"
"""The umask that the user had before the command line made files private, in octal."""
PROCESSES: Final = Path("/proc")
TELLING: Final = ("out of memory", "outofmemory", "error", "fatal", "killed")
"""Words in a log's line that says why a server died, the surest first."""
END_BYTES: Final = 64 * 1024
DYING_S: Final = 10.0  # an API server outlives its engine by some seconds


def check_apart(arms: Sequence[Endpoint]) -> None:
    """Raise LaunchError if two vLLM servers have the same GPU and neither bounds its memory.

    The second of them would die after a minute.
    """
    if not any(device.exists() for device in DEVICES):
        return
    takers = [
        (arm.name, gpus(arm.launch))
        for arm in arms
        if arm.launch is not None and _takes_all(arm.launch)
    ]
    for (one, first), (other, second) in combinations(takers, 2):
        if first & second or not first | second:
            which = (
                f"GPU {', '.join(sorted(first & second))}" if first & second else "the first GPU"
            )
            raise LaunchError(
                f"'{one}' and '{other}' would each take the memory of {which}",
                hint="in turn: agentload replay TRACE --endpoints FILE --launch; side by side: "
                "launch: {command: …, "
                "env: {CUDA_VISIBLE_DEVICES: …}}, or --gpu-memory-utilization",
            )


def gpus(launch: Launch) -> frozenset[str]:
    """Return the GPUs that are visible to a server; empty: it takes the first."""
    said = dict(
        word.split("=", 1) for word in launch.command if word.startswith(VISIBLE) and "=" in word
    ) | dict(launch.env)
    given = next((said[name] for name in VISIBLE if name in said), "")
    return frozenset(filter(None, (each.strip() for each in given.split(","))))


def _takes_all(launch: Launch) -> bool:
    flags = {word.partition("=")[0].replace("_", "-") for word in launch.command}
    is_vllm = any(
        Path(word).name == "vllm" or word.startswith("vllm.entrypoints") for word in launch.command
    )
    return is_vllm and Path(launch.command[0]).name not in _ELSEWHERE and not flags & _BOUNDED


class EndedError(LaunchError):
    """Report a server that ended while it was starting, with its exit code."""

    def __init__(self, code: int, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code


class _Process(Record, kw_only=False):
    parent: int
    group: int
    session: int


class LaunchedServer(Record):
    """One server that was started."""

    arm: str
    process: subprocess.Popen[bytes]
    mark: str
    log: Path

    @property
    def pid(self) -> int:
        """Id of its first process, which is the id of its group."""
        return self.process.pid

    def survivors(self) -> tuple[int, ...]:
        """Return the processes of this server that still run."""
        table = dict(_processes())
        found = {
            pid
            for pid, each in table.items()
            if (each.group, each.session) == (self.pid, os.getsid(0)) or _is_marked(pid, self.mark)
        }
        while more := {pid for pid, each in table.items() if each.parent in found} - found:
            found |= more
        return tuple(sorted(found))

    def stop(self, *, patience_s: float = STOP_S) -> tuple[int, ...]:
        """End the server; return the processes that had to be killed.

        Raises LaunchError when one cannot be ended.
        """
        try:
            if self.process.poll() is None:
                # the API server first: it takes its engines along when it can
                self.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(patience_s)
        finally:  # also where a second Ctrl-C ends the wait
            killed = self._killed()
        until = time.monotonic() + GONE_S
        while left := self.survivors():
            if time.monotonic() > until:
                raise LaunchError(
                    f"{self.arm}: processes {', '.join(map(str, left))} cannot be ended",
                    hint=f"see {self.log}",
                )
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


def start(
    endpoint: Endpoint,
    *,
    logs: Path,
    start_s: float = START_S,
    is_stopping: Callable[[], bool] = lambda: False,
) -> LaunchedServer:
    """Start the server of one arm and return when it is healthy.

    Raises LaunchError, with the end of its log, when it is not.
    """
    running = _begun(endpoint, logs)
    try:
        _wait(running, endpoint, until=time.monotonic() + start_s, is_stopping=is_stopping)
    except BaseException:
        running.stop()
        raise
    return running


def _begun(endpoint: Endpoint, logs: Path) -> LaunchedServer:
    if endpoint.launch is None:
        raise LaunchError(
            f"{endpoint.name}: the arms file has no 'launch'",
            hint="launch: vllm serve MODEL --port 8000",
        )
    if _health(endpoint, strange=True):  # true as well for a server that speaks no HTTP
        raise LaunchError(
            f"{endpoint.name}: something answers at {endpoint.root} already",
            hint="stop it, or choose another port",
        )
    return _spawned(endpoint.name, endpoint.launch, logs)


@contextmanager
def run_servers(
    endpoints: Sequence[Endpoint],
    *,
    logs: Path,
    start_s: float = START_S,
    notice: Callable[[str], None] = lambda _: None,
    together: bool = False,
) -> Iterator[Mapping[str, LaunchedServer]]:
    """Run the servers of all arms at the same time while the `with` block lasts.

    They start one after the other, since two that measure free memory at once take each
    other's for their own. Servers that are told how much to take may start *together*.
    """
    check_apart(endpoints)
    with ExitStack() as stack:
        servers: dict[str, LaunchedServer] = {}
        starting: list[tuple[Endpoint, float]] = []
        for endpoint in endpoints:
            notice(f"{endpoint.name}: starting, log in {logs / f'{endpoint.name}.log'}")
            starting.append((endpoint, time.monotonic()))
            servers[endpoint.name] = _begun(endpoint, logs)
            stack.callback(_ended, servers[endpoint.name], notice)
            if together and endpoint is not endpoints[-1]:
                continue
            for waited, began in starting:
                running = servers[waited.name]
                _wait(running, waited, until=began + start_s, is_stopping=lambda: False)
                notice(
                    f"{waited.name}: ready after {time.monotonic() - began:.0f} s at "
                    f"{waited.shown_url} (process {running.pid})"
                )
            starting.clear()
        yield servers


def _ended(running: LaunchedServer, notice: Callable[[str], None]) -> None:
    killed = running.stop()
    notice(
        f"{running.arm}: stopped"
        + (f", {len(killed)} processes had to be killed" if killed else "")
    )


def _spawned(arm: str, launch: Launch, logs: Path) -> LaunchedServer:
    log = logs / f"{arm}.log"
    mark = secrets.token_hex(8)
    with _opened(log, arm) as text:
        try:
            # A group of its own, so that Ctrl-C in the
            # terminal reaches us alone and we end it in order.
            process = subprocess.Popen(
                launch.command,
                stdin=subprocess.DEVNULL,
                stdout=text,
                stderr=subprocess.STDOUT,
                env={**os.environ, **launch.env, MARK: mark},
                umask=users_umask(),
                process_group=0,
            )
        except OSError as error:
            raise LaunchError(
                f"{arm}: cannot start '{launch.command[0]}': {error.strerror}",
                hint="is it installed and in PATH?",
            ) from error
    return LaunchedServer(arm=arm, process=process, mark=mark, log=log)


def users_umask() -> int:
    """Return the umask for what runs on the user's behalf; -1: it stays as it is."""
    return int(os.environ.get(UMASK, "-1"), 8)


def _opened(log: Path, arm: str) -> BinaryIO:
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        return log.open("wb")
    except OSError as error:
        raise LaunchError(
            f"{arm}: cannot write its log {log}: {error.strerror}",
            hint="--logs FOLDER names another place",
        ) from error


def _wait(
    running: LaunchedServer, endpoint: Endpoint, *, until: float, is_stopping: Callable[[], bool]
) -> None:
    while not is_healthy(endpoint):
        code = running.process.poll()
        if code is not None:
            raise EndedError(
                code,
                f"{running.arm}: the server ended with code "
                f"{code}:\n{_tail(running.log, endpoint)}",
                hint=f"all of it: {running.log}",
            )
        if is_stopping():
            raise LaunchError(f"{running.arm}: stopped while it was starting")
        if time.monotonic() > until:
            raise LaunchError(
                f"{running.arm}: not healthy in time:\n{_tail(running.log, endpoint)}",
                hint=f"all of it: {running.log}",
            )
        time.sleep(LOOK_S)


def is_healthy(endpoint: Endpoint) -> bool:
    """Return whether the server reports that it is healthy; without /health, if it answers."""
    return _health(endpoint, strange=False)


def _health(endpoint: Endpoint, *, strange: bool) -> bool:
    """Return whether the server is healthy, or *strange* if it does not speak HTTP."""
    try:
        answer = page(f"{endpoint.root}/health", keyless(endpoint), within_s=HEALTH_S)
    except (OSError, ValueError):
        return False
    except aiohttp.ClientError:
        return strange
    return answer.is_good or answer.status == HTTPStatus.NOT_FOUND


def _processes() -> Iterator[tuple[int, _Process]]:
    """Yield every process that runs, with its id."""
    for folder in PROCESSES.glob("[0-9]*"):
        with suppress(OSError, IndexError, ValueError):  # it ended meanwhile
            # Behind the name, which may hold anything: state, parent, group, session (proc(5)).
            state, parent, group, session = (
                (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            )
            if state != "Z":
                yield int(folder.name), _Process(int(parent), int(group), int(session))


def _is_marked(pid: int, mark: str) -> bool:
    with suppress(OSError):  # it ended meanwhile, or is somebody else's
        return f"{MARK}={mark}".encode() in (PROCESSES / str(pid) / "environ").read_bytes().split(
            b"\0"
        )
    return False


def _tail(log: Path, endpoint: Endpoint) -> str:
    return endpoint.masked(log.read_bytes()[-LOG_TAIL:].decode(errors="replace").strip())


class RestartableServer:
    """One server that can be started again after it died."""

    def __init__(self, endpoint: Endpoint, *, logs: Path, start_s: float) -> None:
        self._endpoint = endpoint
        self._logs = logs
        self._start_s = start_s
        self._running: LaunchedServer | None = None
        self._starts = 0

    def up(self) -> None:
        """Start the server if it does not run or is not healthy."""
        if self._running is not None and self._lives(self._running):
            return
        self.stop()  # an API server may outlive its engines, or they may outlive it
        self._starts += 1
        self._running = start(
            self._endpoint, logs=self._logs / f"start-{self._starts:03}", start_s=self._start_s
        )

    def last_words(self) -> str | None:
        """Return how the server died and what its log says about it; None while it lives."""
        if self._running is None or self._lives(self._running):
            return None
        code = None
        with suppress(subprocess.TimeoutExpired):
            code = self._running.process.wait(DYING_S)
        ended = "not healthy any more" if code is None else f"ended with code {code}"
        with self._running.log.open("rb") as log:
            log.seek(max(0, self._running.log.stat().st_size - END_BYTES))
            text = log.read().decode(errors="replace")
        with suppress(EndpointError):  # a key that cannot be read is an error reported elsewhere
            text = mask(text, self._endpoint.secrets())
        said = telling(text)
        return f"{ended}: {said}" if said else ended

    def stop(self) -> None:
        """End the server, if there is one."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()

    def _lives(self, running: LaunchedServer) -> bool:
        return running.process.poll() is None and is_healthy(self._endpoint)


@contextmanager
def restartable_server(
    endpoint: Endpoint, *, logs: Path, start_s: float
) -> Iterator[RestartableServer]:
    """Yield a server that can be started again, and end it when the `with` block is left."""
    server = RestartableServer(endpoint, logs=logs, start_s=start_s)
    try:
        yield server
    finally:
        server.stop()


def telling(log: str) -> str:
    """Return the line of a log that says best why a server died; empty if none does.

    A later line is preferred; 200 characters at most.
    """
    lines = [line.strip() for line in reversed(log.splitlines())]
    return next((line for word in TELLING for line in lines if word in line.lower()), "")[:200]
