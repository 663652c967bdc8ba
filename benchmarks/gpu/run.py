"""Measure one phase within its time, keep what it
measured, and go on where the phase before stopped.

    python -m benchmarks.gpu.run profile --model llama-8b --gpu H100 --folder build/gpu/kept
    python -m benchmarks.gpu.run chat --model llama-8b --place emulated --minutes 2

A step that came to its end is not run again; one that was stopped is resumed, or
tried under another name. At the phase's limit, less the place's grace, the step
hears Ctrl-C, stores what it has, and all servers end. SIGTERM does the same.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Literal, NoReturn, TypeAlias

from agentload.endpoints.launch import run_servers
from agentload.endpoints.read import read_file
from agentload.errors import AgentloadError
from agentload.run.relay import prime_all
from agentload.store.places import began
from benchmarks.gpu import plan
from benchmarks.gpu.make import make
from benchmarks.gpu.plan import HOUSE, Phase, Site, Step

Ending: TypeAlias = Literal["done", "failed", "stopped", "no time"]

AGENTLOAD: Final = str(Path(sys.executable).with_name("agentload"))
LEAST_S: Final = 2.0
"""A step with less time than this is not begun."""
STOPPING: Final = (
    (signal.SIGINT, 0.5),
    (signal.SIGINT, 0.15),
    (signal.SIGTERM, 0.1),
    (signal.SIGKILL, 0.05),
)
"""How a command that ran out of time is stopped, and which
share of the grace each sign gets; servers end in what is left.
"""
TAIL: Final = 200_000
"""Bytes that are kept of a log."""
MEGABYTE: Final = 1 << 20
SUBREAPER: Final = (
    36  # PR_SET_CHILD_SUBREAPER: whatever a killed command leaves behind becomes our child
)


def main() -> None:
    """Measure a phase."""
    data = plan.kit()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("phase", choices=[*data["phases"], "make"])
    parser.add_argument("--model", choices=data["models"], default="llama-8b")
    parser.add_argument("--place", choices=data["places"], default="gpu")
    parser.add_argument("--gpu", help="name of the card, such as H100")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/gpu/kept"), help="for what is measured"
    )
    parser.add_argument(
        "--work", type=Path, default=Path("build/gpu/made"), help="for what is made"
    )
    parser.add_argument(
        "--vllm", default=os.environ.get("AGENTLOAD_VLLM", "vllm"), help="its executable"
    )
    parser.add_argument("--minutes", type=float, help="limit of the phase in place of its own")
    parser.add_argument("--keep-mb", type=float, default=60, help="most that the folder may hold")
    parser.add_argument("--pack", type=Path, help="folder for the kept folder as archives of 15 MB")
    parser.add_argument("--dry-run", action="store_true", help="print the commands; run nothing")
    given = parser.parse_args()
    began_s = time.monotonic() - age_s()
    site = Site(
        place=given.place,
        model=given.model,
        folder=given.folder.resolve(),
        work=given.work.resolve(),
        vllm=given.vllm,
        gpu=given.gpu,
    )
    if given.phase == "make":
        make(data, site, agentload=AGENTLOAD)
        return
    done = Done(site)
    known = plan.values(data, site, programs={"agentload": AGENTLOAD, "python": sys.executable})
    runs = {
        line.get("run_id", name)
        for phase in data["phases"].values()
        for name, line in phase["steps"].items()
    }
    begun = [run for run in runs if began(plan.database(site), run) is not None]
    phase = plan.phase(
        data, given.phase, known, tries=done.tries(given.phase), begun=begun, minutes=given.minutes
    )
    if given.dry_run:
        print("\n".join(" ".join(step.command) for step in phase.steps))
        return
    make(data, site, agentload=AGENTLOAD)
    place = data["places"][given.place]
    grace_s = data["phases"][given.phase].get("grace_s", place["grace_s"])
    until_s = began_s + phase.limit_s - grace_s
    with ended_by_signals():
        ended = measure(
            phase, site, done, until_s=until_s, start_s=place["start_s"], grace_s=grace_s
        )
    kept_mb = trim(site.folder, given.keep_mb)
    took = f"{time.monotonic() - began_s:.0f} of {phase.limit_s:.0f} s"
    print(f"{given.phase}: {dict(ended)}; {took}; {kept_mb:.1f} MB in {given.folder}", flush=True)
    if given.pack:
        pack(site.folder, given.pack)
    sys.exit(1 if ended["failed"] or kept_mb > given.keep_mb else 0)


class Done:
    """What was tried in a folder, one line a step, written when the step ends."""

    def __init__(self, site: Site) -> None:
        self._site, self._file = site, site.folder / "done.jsonl"

    def lines(self) -> list[dict[str, Any]]:
        """Return what was tried of this model."""
        text = self._file.read_text(encoding="utf-8") if self._file.exists() else ""
        return [
            line for line in map(json.loads, text.splitlines()) if line["model"] == self._site.model
        ]

    def tries(self, phase: str) -> Counter[str]:
        """Count the tries of each step of a phase."""
        return Counter(line["step"] for line in self.lines() if line["phase"] == phase)

    def has(self, phase: str, step: str) -> bool:
        """Tell whether a step came to its end."""
        return any(
            (line["phase"], line["step"], line["ended"]) == (phase, step, "done")
            for line in self.lines()
        )

    def write(
        self, phase: str, step: str, ended: Ending, began_s: float, *, said: str = ""
    ) -> Ending:
        """Write down how a step ended."""
        line: dict[str, object] = {
            "phase": phase,
            "model": self._site.model,
            "place": self._site.place,
            "step": step,
            "ended": ended,
        }
        line |= {
            "seconds": round(time.monotonic() - began_s, 1),
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "said": said,
        }
        self._site.folder.mkdir(parents=True, exist_ok=True)
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        return ended


def measure(
    phase: Phase, site: Site, done: Done, *, until_s: float, start_s: float, grace_s: float
) -> Counter[str]:
    """Run the steps of a phase that are not done, as far as time reaches; count how they ended."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
    steps = [step for step in phase.steps if not done.has(phase.name, step.name)]
    ended: Counter[str] = Counter()
    began_s = time.monotonic()
    try:
        with ExitStack() as stack:
            is_served = phase.serves and steps
            servers = (
                stack.enter_context(_standing(site, start_s=min(start_s, until_s - began_s)))
                if is_served
                else {}
            )
            done.write(phase.name, "start", "done", began_s)
            for step in steps:
                ended[_step(step, phase.name, site, done, until_s=until_s, grace_s=grace_s)] += 1
                end_orphans(but=set(servers.values()))
    except (AgentloadError, KeyboardInterrupt) as error:
        ended[
            done.write(phase.name, "start", "failed", began_s, said=str(error)[-TAIL // 100 :])
        ] += 1
    end_orphans(but=set())
    return ended


@contextmanager
def _standing(site: Site, *, start_s: float) -> Iterator[Mapping[str, int]]:
    """Let all arms of a model stand side by side; yield their processes."""
    endpoints = read_file(plan.arms_path(site))
    logs = site.folder / "logs" / site.model
    with run_servers(endpoints, logs=logs, start_s=start_s, notice=print, together=True) as servers:
        prime_all(endpoints, notice=print)
        yield {name: running.pid for name, running in servers.items()}


def _step(
    step: Step, phase: str, site: Site, done: Done, *, until_s: float, grace_s: float
) -> Ending:
    began_s = time.monotonic()
    left_s = min(until_s - began_s, step.limit_s)
    if left_s < LEAST_S:
        return done.write(phase, step.name, "no time", began_s)
    log = site.folder / "said" / f"{site.model}-{phase}-{step.name}-{len(done.lines())}.txt"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w", encoding="utf-8") as text:
        text.write(f"$ {' '.join(step.command)}\n")
        text.flush()
        try:
            code = patient(step.command, text.fileno(), seconds=left_s, grace_s=grace_s)
        except OSError as error:
            return done.write(phase, step.name, "failed", began_s, said=str(error))
    return done.write(
        phase,
        step.name,
        "stopped" if code is None else "failed" if code else "done",
        began_s,
        said=str(code),
    )


def patient(command: tuple[str, ...], out: int, *, seconds: float, grace_s: float) -> int | None:
    """Run a command; return its code, or None where it had to
    be stopped: by Ctrl-C, a second one, and at last for good.
    """
    env = {**os.environ, "PYTHONPATH": f"{HOUSE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=subprocess.STDOUT,
        env=env,
        process_group=0,
    )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        pass
    finally:
        for number, share in STOPPING:
            if process.poll() is None:
                process.send_signal(number)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(share * grace_s)
    return None


def end_orphans(*, but: set[int]) -> None:
    """End what ended commands left behind, with all that stands below it."""
    while found := [pid for pid in children() if pid not in but]:
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    """Return our own children, those that were left to us included."""
    found = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return [int(pid) for pid in found]


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM end a phase as Ctrl-C does."""

    def end(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt("stopped")

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def trim(folder: Path, most_mb: float) -> float:
    """Cut logs, and leave out journals and reports' pages where the
    folder is too large: databases hold all of it. Return its size.
    """
    for log in folder.rglob("logs/**/*.log"):
        if log.stat().st_size > TAIL:
            log.write_bytes(log.read_bytes()[-TAIL:])
    for journal in sorted(folder.glob("*.journal")):
        if size_mb(folder) > most_mb:
            shutil.rmtree(journal)
    return size_mb(folder)


def age_s() -> float:
    """Return for how long this process has run, its imports included."""
    ticks = int(
        Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    )  # starttime (proc(5))
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def size_mb(folder: Path) -> float:
    """Return what a folder holds."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / MEGABYTE


def pack(folder: Path, out: Path, *, part: int = 15 * MEGABYTE) -> list[Path]:
    """Write a folder as the parts of one archive, which `cat kept.tar.gz.* | tar xz` unpacks."""
    out.mkdir(parents=True, exist_ok=True)
    whole = out / "kept.tar.gz"
    with tarfile.open(whole, "w:gz") as archive:
        archive.add(folder, arcname=folder.name)
    packed = whole.read_bytes()
    whole.unlink()
    parts = []
    for number, start in enumerate(range(0, len(packed), part)):
        parts.append(out / f"kept.tar.gz.{number}")
        parts[-1].write_bytes(packed[start : start + part])
    return parts


if __name__ == "__main__":
    main()
