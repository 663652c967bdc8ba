"""Look at this machine: one function a check, each returns what it saw and what to do about it."""

import importlib.metadata
import os
import platform
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from agentload import __version__, builtin
from agentload.cli._stamps import stamps_over_loopback

LIBRARIES: Final = ("aiohttp", "duckdb", "httptools", "msgspec", "numpy", "openai", "polars", "pyarrow", "scipy", "typer")

# A stream is one socket: two thousand of them, and the other ends if the server is on this machine too.
FILES_WANTED: Final = 4_096
# One dispatcher and one worker; the emulator, if it runs here too, wants its own core.
CORES_WANTED: Final = 2
# A day of 50,000 chunks/s at 2 bytes a stamp is about 9 GB; below 2 GB even a short run with --keep-raw may not fit.
DISK_WANTED_BYTES: Final = 2 * 1024**3
# Reading these takes no system call; any other costs microseconds a stamp.
FAST_CLOCKS: Final = frozenset({"tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """State what one check saw, and what to do unless all is well."""

    name: str
    state: Literal["ok", "warn", "fail"]
    seen: str
    advice: str | None = None


def python() -> Check:
    """Name the versions of Python and of agentload."""
    return Check(name="python", state="ok", seen=f"{platform.python_implementation()} {platform.python_version()}, agentload {__version__}")


def system() -> Check:
    """Check the operating system: only Linux stamps packets for us."""
    seen = f"{platform.system()} {platform.release()} {platform.machine()}"
    if platform.system() != "Linux":
        return Check(name="system", state="warn", seen=seen, advice="measure from Linux: elsewhere stamps are taken in user space")
    return Check(name="system", state="ok", seen=seen)


def cores() -> Check:
    """Check the number of cores that this process may use."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if count < CORES_WANTED:
        advice = "few streams only: the load generator would wait for itself, and such runs are void"
        return Check(name="cores", state="warn", seen=str(count), advice=advice)
    return Check(name="cores", state="ok", seen=str(count))


def open_files() -> Check:
    """Check how many sockets may be open at once."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    seen = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    if soft != resource.RLIM_INFINITY and soft < FILES_WANTED:
        wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
        return Check(name="open files", state="warn", seen=seen, advice=f"more than {soft // 2:,} streams need `ulimit -n {wanted}`")
    return Check(name="open files", state="ok", seen=seen)


def clock() -> Check:
    """Check that reading the clock is cheap and fine-grained."""
    resolution_ns = time.get_clock_info("monotonic").resolution * 1e9
    source = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
    name = source.read_text().strip() if source.is_file() else "unknown source"
    seen = f"{name}, {resolution_ns:.0f} ns"
    if source.is_file() and name not in FAST_CLOCKS:
        return Check(
            name="clock", state="warn", seen=seen, advice="stamps cost a system call each: prefer a machine whose clock source is tsc"
        )
    return Check(name="clock", state="ok", seen=seen)


def kernel_timestamps() -> Check:
    """Check that the kernel stamps what is sent and received, by sending a few bytes over 127.0.0.1."""
    sent, received = stamps_over_loopback()
    seen = f"send {'yes' if sent else 'no'}, receive {'yes' if received else 'no'}"
    if not (sent and received):
        advice = "stamps are taken in user space (stamp_source = 'user'): keep streams few and the machine quiet"
        return Check(name="kernel timestamps", state="warn", seen=seen, advice=advice)
    return Check(name="kernel timestamps", state="ok", seen=seen)


def working_directory() -> Check:
    """Check that journals and databases can be written here."""
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    seen = f"{here}, {free / 1024**3:.1f} GiB free"
    try:
        with tempfile.TemporaryFile(dir=here):
            pass
    except OSError as error:
        return Check(
            name="working directory", state="fail", seen=f"{here}: {error.strerror}", advice="change to a directory that you can write to"
        )
    if free < DISK_WANTED_BYTES:
        return Check(name="working directory", state="warn", seen=seen, advice="free some disk space: a full disk ends a run")
    return Check(name="working directory", state="ok", seen=seen)


def libraries() -> Check:
    """Check that the main libraries are installed, and name their versions."""
    missing = []
    present = []
    for name in LIBRARIES:
        try:
            present.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            missing.append(name)
    if missing:
        return Check(
            name="libraries",
            state="fail",
            seen=f"missing: {', '.join(missing)}",
            advice="reinstall: pip install --force-reinstall agentload",
        )
    return Check(name="libraries", state="ok", seen=", ".join(present))


def shipped(kind: builtin.Kind) -> Check:
    """Check that the data that travels with the package is found."""
    found = builtin.names(kind)
    if not found:
        return Check(name=kind, state="fail", seen="none found", advice="reinstall: pip install --force-reinstall agentload")
    return Check(name=kind, state="ok", seen=", ".join(found))


CHECKS: Final[tuple[Callable[[], Check], ...]] = (
    python,
    system,
    cores,
    open_files,
    clock,
    kernel_timestamps,
    working_directory,
    libraries,
    lambda: shipped("profiles"),
    lambda: shipped("traces"),
    lambda: shipped("presets"),
)
