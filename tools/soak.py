"""Play for a long time on a server that fails in every way, and on one that does not.

`python -m tools.soak --minutes 30`. Both are played at once, as fast as the machine
allows. Every answer that a server wrote whole must be stored once, every call must have
an end, and memory, descriptors and threads of neither client may grow; the rates are printed.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.serve.server import ServerOptions
from agentload.tracefile.files import write
from tools.kills import AGENTLOAD, answered

FAULTS: Final = """
faults:
- {kind: busy, status: 429, share: 0.05}
- {kind: cut, share: 0.05}
- {kind: in_band, share: 0.05}
- {kind: crash, share: 0.00003, down_s: 2}
- {kind: trickle, share: 0.002}
"""
"""A crash invalidates its pair, and three such pairs in a row end a run."""
SESSIONS: Final = 64
A_MINUTE: Final = 2_000
"""Sessions of ten calls in the trace for each minute; no two cores play as many."""
A_BLOCK: Final = 100
GROWTH: Final = 1.15
SLACK: Final = 32 << 10
"""KiB that memory may grow beyond `GROWTH`."""
MORE: Final = 8
"""Descriptors, and threads, that a client may hold beyond those of before."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a client holds of the machine."""

    kib: float
    descriptors: float
    threads: float


@dataclass(slots=True)
class Played:
    """Results of one side."""

    calls: int = 0
    answers: int = 0
    lost: int = 0
    twice: int = 0
    seconds: float = 0.0
    statuses: dict[str, int] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    """What the client held, second by second."""
    said: str = ""
    code: int | None = None
    """Exit code after the stop; a run that ended before the stop had given up."""
    ending_s: float = 0.0
    """Seconds from the stop to the exit."""

    @property
    def growth(self) -> tuple[Held, Held]:
        """Medians in the second quarter of the time, and in the last."""
        quarter = max(1, len(self.held) // 4)
        return _median(self.held[quarter : 2 * quarter]), _median(self.held[-quarter:])

    @property
    def is_clean(self) -> bool:
        """Whether it played until the stop, and nothing was lost, stored twice or grew."""
        before, after = self.growth
        return (
            self.calls > 0
            and self.code == 130
            and not self.lost
            and not self.twice
            and after.kib <= GROWTH * before.kib + SLACK
            and after.descriptors <= before.descriptors + MORE
            and after.threads <= before.threads + MORE
        )


def soaked(minutes: float, folder: Path) -> dict[str, Played]:
    """Play both sides for this long."""
    trace = _trace(folder, round(A_MINUTE * max(1.0, minutes)))
    found = {"with faults": Played(), "without": Played()}
    sides = []
    for (name, played), script in zip(found.items(), (FAULTS, None), strict=True):
        place = folder / name
        place.mkdir()
        servers = start(
            arms_of("llama-3.1-8b-h100", ["fp8"]),
            ServerOptions(
                noise=False, speed=1000.0, truth=place / "truth-fp8.jsonl", faults=script
            ),
        )
        said = (place / "said").open("w+")
        command = [
            *AGENTLOAD,
            "replay",
            str(trace),
            "--endpoints",
            f"fp8={servers.urls['fp8']}",
            "--db",
            str(place / "x.duckdb"),
        ]
        command += [
            "--pairs",
            str(round(A_MINUTE * max(1.0, minutes)) // A_BLOCK),
            "--sessions",
            str(SESSIONS),
            "--first-timeout",
            "20",
            "--idle-timeout",
            "20",
            "--total-timeout",  # answers that trickle hold up the end of their block
            "10",
        ]
        sides.append(
            (played, place, servers, subprocess.Popen(command, stdout=said, stderr=said), said)
        )
    began_s = time.monotonic()
    while time.monotonic() - began_s < 60 * minutes and all(
        running.poll() is None for *_, running, _ in sides
    ):
        time.sleep(1)
        for played, _, _, running, _ in sides:
            played.held += _held(running.pid)
    for played, place, servers, running, said in sides:
        played.seconds, stopped_s = time.monotonic() - began_s, time.monotonic()
        running.send_signal(signal.SIGINT)
        played.code = running.wait(timeout=300)
        played.ending_s = time.monotonic() - stopped_s
        with servers:
            pass
        said.seek(0)
        played.said = said.read()
        said.close()
        _count(played, place)
    return found


def _count(played: Played, place: Path) -> None:
    if not (place / "x.duckdb").exists():
        return
    with duckdb.connect(str(place / "x.duckdb"), read_only=True) as connection:
        names = [
            name for (name,) in connection.execute("SELECT request_id FROM calls_row").fetchall()
        ]
        played.statuses = dict(
            connection.execute(
                "SELECT status, count(*) FROM calls_row GROUP BY ALL ORDER BY 2 DESC"
            ).fetchall()
        )
    known = set(names)
    whole = [name for name, _ in answered(place / "truth-fp8.jsonl")]
    played.calls, played.answers = len(names), len(whole)
    played.lost, played.twice = sum(name not in known for name in whole), len(names) - len(known)


def _held(pid: int) -> list[Held]:
    """Return what a process holds now; nothing of one that ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return []
    values = dict(line.split(":", 1) for line in lines)
    if "VmRSS" not in values:
        return []
    kib, threads = int(values["VmRSS"].split()[0]), int(values["Threads"])
    return [Held(kib=kib, descriptors=descriptors, threads=threads)]


def _median(held: Sequence[Held]) -> Held:
    names = ("kib", "descriptors", "threads")
    return Held(**{name: median([getattr(each, name) for each in held] or [0]) for name in names})


def _trace(folder: Path, sessions: int) -> Path:
    path = folder / "t.jsonl"
    write(
        path, Trace(header=Header(name="t", seed=1), sessions=tuple(map(_session, range(sessions))))
    )
    return path


def _session(number: int) -> Session:
    turns = tuple(
        Turn(add=(Segment(role="user", tokens=60, key=f"s{number}.{turn}"),), output=6)
        for turn in range(10)
    )
    return Session(session=f"s{number}", workload="chat", start_s=0.001 * number, turns=turns)


def main() -> int:
    """Soak and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    asked = parser.parse_args()
    # Whether this machine can measure is no matter of what is lost.
    os.environ["AGENTLOAD_CLIENT_CHECK"] = "0"
    with TemporaryDirectory(prefix="agentload-") as folder:
        found = soaked(asked.minutes, Path(folder))
    for name, played in found.items():
        before, after = played.growth
        print(
            f"{name}: {played.calls:,} calls in {played.seconds:.0f} s "
            f"({played.calls / played.seconds:.0f}/s),"
            f" ended by {played.code} {played.ending_s:.0f} s after the stop,",
            f"{played.answers:,} whole answers, {played.lost} lost, {played.twice} twice,",
            f"{before.kib / 1024:.0f} MiB, {before.descriptors:.0f} descriptors, "
            f"{before.threads:.0f} threads; later {after.kib / 1024:.0f} MiB, "
            f"{after.descriptors:.0f} and {after.threads:.0f}",
            played.statuses,
            *([] if played.is_clean else [played.said[-2000:]]),
            sep="\n  ",
        )
    return not all(played.is_clean for played in found.values())


if __name__ == "__main__":
    sys.exit(main())
