"""Measure what answers that mean ill cost: memory while so many
of them are in flight, and how long one of them stops the loop.

    python -m benchmarks.hostile [--sessions 64] [--tokens 256] [--modes line_without_end,…]
    python -m benchmarks.hostile --sockets 10000    # calls at once, to a server that answers
                                                    # when all are there (ulimit -n 20000)
    python -m benchmarks.hostile --decide --every 4    # decisions, see hostile_decisions.py
    python -m benchmarks.hostile --eval --every 4      # decisions whose questions are so answered

The server of `tests/live/hostile.py` runs in a process of its own. Memory is the peak of
what is resident beyond what was before the calls. A stop is processor time of the loop's
thread between two of its turns, so that a busy machine is not taken for slow code.
"""

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentload.dispatch.answer import CallTerms
from agentload.live.target import Target
from agentload.live.wire import Wire, WireRequest
from agentload.model.commands import Limits, Status
from benchmarks.hostile_decisions import QUESTIONS, Kind, decisions, resident_mb
from tests.live.hostile import MODES

ROOT = Path(__file__).parent.parent
MOST_MB = 128
MOST_MS = 20
SECOND = 1_000_000_000


@contextmanager
def hostile_server() -> Iterator[int]:
    """Run the server; give its port."""
    command = [sys.executable, "-m", "tests.live.hostile"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["port"]
        finally:
            process.kill()


class Turns:
    """Note the longest stretch of work between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._at_s = time.thread_time()
        self._turn()

    def _turn(self) -> None:
        now_s = time.thread_time()
        self.longest_s = max(self.longest_s, now_s - self._at_s)
        self._at_s = now_s
        self._handle = self._loop.call_soon(self._turn)

    def stop(self) -> float:
        """Return the longest in ms."""
        self._handle.cancel()
        return self.longest_s * 1e3


async def calls(
    port: int, mode: str, *, sessions: int, tokens: int, seconds: float
) -> tuple[Counter[Status], float]:
    """Make so many calls at once; return how they ended, and the longest stop of the loop."""
    limits = Limits(
        connect_ns=round(seconds * SECOND),
        first_ns=round(seconds * SECOND),
        idle_ns=round(seconds * SECOND),
        total_ns=round(seconds * SECOND),
    )
    async with Wire(
        [Target(arm="a", url=f"http://127.0.0.1:{port}/{mode}/v1", ends_with_mark=True)]
    ) as wire:
        turns = Turns()
        requests = [
            WireRequest(
                request_id=f"r{number}",
                arm="a",
                session=f"s{number}",
                body=(b"{}",),
                released_ns=time.monotonic_ns(),
                limits=limits,
                asked=CallTerms(tokens=tokens, wants_reply=True),
            )
            for number in range(sessions)
        ]
        ended = Counter(
            outcome.status for outcome in await asyncio.gather(*map(wire.call, requests))
        )
        return ended, turns.stop()


def open_files() -> int:
    """Count the descriptors of this process."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def sockets(count: int) -> int:
    """Make so many calls at once, each on a connection of its
    own; tell whether all ended well and nothing was left open.
    """
    with hostile_server() as port:
        began_s, before_mb, before = time.monotonic(), resident_mb("VmRSS"), open_files()
        ended, stop_ms = asyncio.run(
            calls(port, "answers_when_nobody_else_comes", sessions=count, tokens=3, seconds=300)
        )
        left = open_files() - before
        took_s, grown_mb = time.monotonic() - began_s, resident_mb("VmHWM") - before_mb
    print(
        f"{dict(ended)} in {took_s:.0f} s, {grown_mb:,.0f} MB at the peak, {left} "
        f"descriptors left open, longest stop {stop_ms:.0f} ms"
    )
    return int(ended["ok"] != count or left != 0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=256, help="asked of each call")
    parser.add_argument("--seconds", type=float, default=20, help="that a call may take")
    parser.add_argument("--modes", default="", help="of the server, by commas; all by default")
    parser.add_argument(
        "--decide", action="store_true", help="between such a server and a healthy one"
    )
    parser.add_argument(
        "--eval", action="store_true", help="decide where questions alone are so answered"
    )
    parser.add_argument("--together", type=int, default=1, help="decisions at the same time")
    parser.add_argument("--every", type=int, default=1, help="of so many modes one is tried")
    parser.add_argument(
        "--sockets", type=int, help="call a server that means well, so often at once"
    )
    options = parser.parse_args()
    if options.sockets is not None:
        sys.exit(sockets(options.sockets))
    known = QUESTIONS if options.eval else MODES
    modes = options.modes.split(",") if options.modes else list(known)[:: options.every]
    if options.decide or options.eval:
        kind: Kind = "questions" if options.eval else "streams"
        sys.exit(decisions(kind, modes, together=options.together))
    failed = []
    with hostile_server() as port:
        print(
            f"| mode | ended | MB at {options.sessions} sessions | ms of one |\n| --- | --- "
            "| --- | --- |",
            flush=True,
        )
        for mode in modes:
            _, stop_ms = asyncio.run(
                calls(port, mode, sessions=1, tokens=options.tokens, seconds=3)
            )
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")  # the peak is that of now
            before_mb = resident_mb("VmRSS")
            ended, _ = asyncio.run(
                calls(
                    port,
                    mode,
                    sessions=options.sessions,
                    tokens=options.tokens,
                    seconds=options.seconds,
                )
            )
            grown_mb = resident_mb("VmHWM") - before_mb
            told = ", ".join(f"{count} {status}" for status, count in sorted(ended.items()))
            print(f"| {mode} | {told} | {grown_mb:,.0f} | {stop_ms:.0f} |", flush=True)
            if grown_mb > MOST_MB or stop_ms > MOST_MS:
                failed.append(mode)
    print(f"more than {MOST_MB} MB or {MOST_MS} ms: {', '.join(failed) or 'none'}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    os.nice(5)
    main()
