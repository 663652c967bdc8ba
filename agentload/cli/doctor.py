"""Check this machine: one function a check, each returns what it saw and what to do about it."""

import importlib.metadata
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from agentload import COMPILED, __version__, builtin
from agentload.cli import _defaults
from agentload.cli._lazy import LazyGroup, names_of
from agentload.cli._print import Style, paint, print_json
from agentload.compiled import NOT_INSTALLED, OTHER_PYTHON, OTHER_SOURCES
from agentload.errors import AgentloadError
from agentload.live.look import SWITCH, cores, look
from agentload.live.reader import OTHER_VERSION, who_reads
from agentload.live.stamps import ANCILLARY_BYTES, received_ns, sent_ns, stamp_received, stamp_sent
from agentload.model.client import readiness
from agentload.model.record import Record

# Switching stamps on took 3 ms where it was measured (Linux
# 6.18); half a second of patience is enough to say no.
ATTEMPTS: Final = 25
ATTEMPT_S: Final = 0.02

LIBRARIES: Final = (
    "aiohttp",
    "duckdb",
    "httptools",
    "msgspec",
    "numpy",
    "openai",
    "polars",
    "pyarrow",
    "scipy",
    "typer",
)
REINSTALL: Final = "reinstall: pip install --force-reinstall agentload"
SPEEDUPS: Final = "pip install ./speedups, in the folder of agentload's sources"
REBUILD: Final = f"build what belongs to this version: {SPEEDUPS}"

# A stream is one socket: two thousand of them, and
# the other ends if the server is on this machine too.
FILES_WANTED: Final = 4_096
# One dispatcher and one worker; the emulator, if it runs here too, wants its own core.
CORES_WANTED: Final = 2
# A day of 50,000 chunks/s at 2 bytes a stamp is about 9 GB;
# below 2 GB even a short run with --keep-raw may not fit.
DISK_WANTED_BYTES: Final = 2 * 1024**3
# Reading these takes no system call; any other costs microseconds a stamp.
FAST_CLOCKS: Final = frozenset(
    {"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"}
)


STYLES: Final[dict[str, Style]] = {"ok": "good", "warn": "doubtful", "fail": "bad"}


class MachineCheck(Record):
    """State what one check saw, and what to do unless all is well."""

    name: str
    state: Literal["ok", "warn", "fail"]
    seen: str
    advice: str | None = None


def _check(
    name: str, seen: str, *, warn: str | None = None, fail: str | None = None
) -> MachineCheck:
    if fail:
        return MachineCheck(name=name, state="fail", seen=seen, advice=fail)
    if warn:
        return MachineCheck(name=name, state="warn", seen=seen, advice=warn)
    return MachineCheck(name=name, state="ok", seen=seen)


def _python() -> MachineCheck:
    """Name the versions of Python and of agentload."""
    return _check(
        "python",
        f"{platform.python_implementation()} {platform.python_version()}, agentload {__version__}",
    )


def _system() -> MachineCheck:
    """Check the operating system: only Linux stamps packets for us."""
    seen = f"{platform.system()} {platform.release()} {platform.machine()}"
    elsewhere = "measure from Linux: elsewhere stamps are taken in user space"
    return _check("system", seen, warn=None if platform.system() == "Linux" else elsewhere)


def _cores() -> MachineCheck:
    """Check the number of cores that this process may use."""
    count = len(cores())
    few = "few streams only: the load generator would wait for itself, and such runs are invalid"
    return _check("cores", str(count), warn=few if count < CORES_WANTED else None)


def _client() -> MachineCheck:
    """Look for a second whether timers fire in time and cores are
    free, as `decide`, `replay` and `watch` do before they send.
    """
    looked = look()
    if looked is None:
        return _check("load", f"not looked at ({SWITCH}=0)")
    found = readiness(looked)
    match found.verdict:
        case "cannot":
            return _check("load", found.seen, fail=found.cure)
        case "doubtful":
            return _check("load", found.seen, warn=found.cure)
        case "ok":
            return _check("load", found.seen)


def _open_files() -> MachineCheck:
    """Check how many sockets may be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return _check("open files", "unlimited")
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    few = f"more than {soft // 2:,} streams need `ulimit -n {wanted}`"
    return _check("open files", f"{soft:,}", warn=few if soft < FILES_WANTED else None)


def _clock() -> MachineCheck:
    """Check that reading the clock is cheap and fine-grained."""
    resolution_ns = time.get_clock_info("monotonic").resolution * 1e9
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text().strip() if source.is_file() else None
    dear = "stamps cost a system call each: prefer a machine whose clock source is tsc"
    seen = f"{'unknown source' if name is None else name}, {resolution_ns:.0f} ns"
    return _check("clock", seen, warn=None if name is None or name in FAST_CLOCKS else dear)


def _kernel_timestamps() -> MachineCheck:
    """Check that the kernel stamps what is sent and
    received, by sending a few bytes over 127.0.0.1.
    """
    sent, received = _stamps()
    seen = f"send {'yes' if sent else 'no'}, receive {'yes' if received else 'no'}"
    coarse = (
        "stamps are taken in user space (stamp_source = 'user'): keep streams few and the "
        "machine quiet"
    )
    return _check("kernel timestamps", seen, warn=None if sent and received else coarse)


def _stamps() -> tuple[bool, bool]:
    """Return whether a byte over a loopback connection
    came back with a send stamp, and with a receive stamp.
    """
    sent = received = False
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname(), timeout=1) as near,
    ):
        far, _ = server.accept()
        with far:
            far.settimeout(1)
            near.setblocking(False)  # so that an empty error queue is no reason to wait
            if not (stamp_sent(near) and stamp_received(far)):
                return False, False
            # The first socket of a machine that asks for stamps switches
            # them on, in the background: the first bytes may miss theirs.
            for _attempt in range(ATTEMPTS):
                near.sendall(b"x")
                received = received_ns(far.recvmsg(1, ANCILLARY_BYTES)[1]) is not None or received
                sent = bool(sent_ns(near)) or sent
                if sent and received:
                    break
                time.sleep(ATTEMPT_S)
    return sent, received


def _working_directory() -> MachineCheck:
    """Check that journals and databases can be written here."""
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        return _check(
            "working directory",
            f"{here}: {error.strerror}",
            fail="change to a directory that you can write to",
        )
    scarce = "free some disk space: a full disk ends a run"
    return _check(
        "working directory",
        f"{here}, {free / 1024**3:.1f} GiB free",
        warn=scarce if free < DISK_WANTED_BYTES else None,
    )


def _libraries() -> MachineCheck:
    """Check that the main libraries are installed, and name their versions."""
    missing = []
    present = []
    for name in LIBRARIES:
        try:
            present.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return _check("libraries", f"missing: {', '.join(missing)}", fail=REINSTALL)
    try:
        present.append(f"ray {importlib.metadata.version('ray')}")
    except importlib.metadata.PackageNotFoundError:
        present.append("no ray (--on ray: pip install 'agentload[ray]')")
    return _check("libraries", ", ".join(present))


def _compiled() -> MachineCheck:
    """Say whether the busiest modules are compiled:
    without that, all works and takes more of a core.
    """
    seen = COMPILED
    if seen == NOT_INSTALLED:
        seen += f"; to use less of a core: {SPEEDUPS}"
    return _check(
        "compiled", seen, warn=REBUILD if COMPILED in {OTHER_PYTHON, OTHER_SOURCES} else None
    )


def _reader() -> MachineCheck:
    """Say who reads the sockets: a thread that needs
    no interpreter, or the interpreter, and why.
    """
    path, why = who_reads()
    seen = f"by a {path}" if path == "thread" else f"by the {path}: {why}"
    return _check("sockets read", seen, warn=REBUILD if why == OTHER_VERSION else None)


def _shipped(kind: builtin.Kind) -> MachineCheck:
    """Check that the data that travels with the package is found."""
    found = builtin.names(kind)
    return _check(kind, ", ".join(found) or "none found", fail=None if found else REINSTALL)


def _defaults_in_files() -> MachineCheck:
    """Name the files that hold defaults of options, and what is in them that no verb has."""
    found = [
        (path, verb, key)
        for path in _defaults.files()
        for verb, key in _defaults.keys(_defaults.read(path))
    ]
    named = [(path, f"[{verb}] {key}".removeprefix("[] ")) for path, verb, key in found]
    seen = "; ".join(
        f"{path}: {', '.join(name for of, name in named if of == path)}"
        for path in _defaults.files()
    )
    options = dict(_options_of(LazyGroup(package="agentload.cli", rich_markup_mode=None), ""))
    known = {option for each in options.values() for option in each}
    odd = [
        f"{path}: {key}"
        for path, verb, key in found
        if key not in (options.get(verb, frozenset()) if verb else known)
    ]
    return _check(
        "defaults",
        seen or f"no {_defaults.NAME}",
        warn=f"no verb has: {', '.join(odd)}" if odd else None,
    )


def _options_of(group: LazyGroup, path: str) -> Iterator[tuple[str, frozenset[str]]]:
    context = typer.Context(group)
    for name in group.list_commands(context) if _defaults.files() else ():
        command = group.get_command(context, name)
        if isinstance(command, LazyGroup):
            yield from _options_of(command, name)
        else:
            yield f"{path} {name}".strip(), frozenset(names_of(command))


CHECKS: Final[tuple[Callable[[], MachineCheck], ...]] = (
    _python,
    _system,
    _cores,
    _client,
    _open_files,
    _clock,
    _kernel_timestamps,
    _working_directory,
    _libraries,
    _compiled,
    _reader,
    _defaults_in_files,
    lambda: _shipped("profiles"),
    lambda: _shipped("traces"),
    lambda: _shipped("presets"),
)


def doctor(*, json: Annotated[bool, "Print the checks as JSON."] = False) -> None:
    """Check whether this machine can measure, and say what to fix.

    Exits with 1 if a check failed; a warning names what a run here would lose.
    """
    checks = tuple(check() for check in CHECKS)
    if json:
        print_json(checks)
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(
                f"{paint(f'{check.state:<4}', STYLES[check.state], sys.stdout)}  "
                f"{check.name:<{width}}  {check.seen}"
            )
            if check.advice:
                print(f"{'':<4}  {'':<{width}}  → {check.advice}")
    failed = [check.name for check in checks if check.state == "fail"]
    if failed:
        raise AgentloadError(f"this machine cannot measure: {', '.join(failed)}")
