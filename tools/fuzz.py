"""Feed every reader malformed input, and keep what breaks one: `make fuzz MINUTES=10`.

Where atheris is installed (`pip install atheris`) it looks for inputs that take new
branches; else texts are damaged, spliced and filled with what has broken parsers before.
Either way a finding is an error not meant for users, or more than `SECONDS` or `MEMORY`;
its input is kept in `tests/tools/corpus/TARGET/`, where `test_fuzz.py` runs it for ever.

Readers take turns, each in a process forked off one that has imported them all. A turn of the
first round ends after so many inputs, however long they take, so that no slow reader is left
out; the last round shares what time is left. The table at the end counts what each reader got.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import math
import multiprocessing
import os
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from functools import partial
from multiprocessing.connection import wait
from multiprocessing.context import ForkProcess
from multiprocessing.sharedctypes import RawArray
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tools.fuzz_targets import Target

CORPUS: Final = Path(__file__).parents[1] / "tests/tools/corpus"
MEMORY_FILES: Final = Path("/dev/shm")
SECONDS: Final = 20
MEMORY: Final = 4 << 30
LARGE: Final = 1 << 17
LONGEST: Final = 1 << 18
LARGE_EVERY: Final = 100
"""One of so many texts is made longer than `LARGE`."""
LEAST: Final = 2_000
"""Inputs that each reader gets before any gets more."""
ROUNDS: Final = 8
"""Turns in which it gets them."""
TOKENS: Final = (
    *(
        b"[" * 3000,
        b'{"a":' * 2000,
        b"9" * 5000,
        b"0x" + b"f" * 5000,
        b"1e999",
        b"-1",
        b"0",
        b"1e15",
        b"NaN",
        b"inf",
        b"-0.0",
    ),
    *(
        b"18446744073709551616",
        b"\x00",
        b"\xff",
        b"\xed\xa0\x80",
        b"\xe2\x80\xa8",
        b"\r",
        b"\n",
        b"\n\n",
        b'"',
        b"\\",
        b"\\ud800",
    ),
    *(
        b"{}",
        b"[]",
        b"null",
        b"true",
        b"''",
        b",",
        b": ",
        b"- ",
        b"&a ",
        b"*a",
        b"<<: *a",
        b"!!int ",
        b"2026-02-30",
        b"%s",
    ),
    *(b"data: ", b"event: error\n", b"data: [DONE]\n\n", b"\x28\xb5\x2f\xfd"),
)
_NUMBER: Final = re.compile(rb"-?\d+(\.\d+)?")
_VALUE: Final = re.compile(
    rb'"[^"\n]{0,80}"|-?\d[\d.e+-]*|null|true|false|\[[^\[\]\n]{0,80}\]|\{[^{}\n]{0,80}\}'
)


def mutated(rng: Random, seeds: list[bytes]) -> bytes:
    """Return a text with one to six kinds of damage."""
    text = rng.choice(seeds)
    for _ in range(rng.randint(1, 6)):
        at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        end = min(end, at + rng.choice((1, 8, 64, 4096)))
        match rng.randrange(9):
            case 0:
                text = text[:at] + bytes((rng.randrange(256),)) + text[at + 1 :]
            case 1:
                text = text[:at] + text[end:]
            case 2:
                text = text[:end] + text[at:end] * rng.choice((1, 1, 2, 50)) + text[end:]
            case 3:
                text = text[:at] + rng.choice(TOKENS) + text[at:]
            case 4:
                other = rng.choice(seeds)
                text = text[:at] + other[rng.randint(0, len(other)) :]
            case 5:
                text = text[:at]
            case 6 | 7 if found := list(_VALUE.finditer(text)):
                value, other = (
                    rng.choice(found),
                    rng.choice((rng.choice(TOKENS), rng.choice(found).group())),
                )
                text = text[: value.start()] + other + text[value.end() :]
            case _ if found := list(_NUMBER.finditer(text)):
                number = rng.choice(found)
                text = (
                    text[: number.start()]
                    + rng.choice((b"-1", b"0", b"1e15", b"1" * 30, b"1e-300", b"nan"))
                    + text[number.end() :]
                )
            case _:
                pass
    return (grown(rng, text) if rng.randrange(LARGE_EVERY) == 0 else text)[:LONGEST]


def grown(rng: Random, text: bytes) -> bytes:
    """Return a text in which one part is repeated until the text is large."""
    at, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    part = text[at:end] or b"a"
    return text[:end] + part * (rng.randint(LARGE, LONGEST) // len(part) + 1) + text[end:]


class Tally:
    """Count what a reader got; the process that feeds it shares the numbers."""

    def __init__(self) -> None:
        self._counts = RawArray("q", 3)
        self._cpu_s = RawArray("d", 2)  # of turns that have ended, and of this one
        self.has_finding = False

    @property
    def inputs(self) -> int:
        """How many inputs the reader got."""
        return int(self._counts[0])

    @property
    def large(self) -> int:
        """How many of them were larger than `LARGE`."""
        return int(self._counts[1])

    @property
    def size_bytes(self) -> int:
        """How many bytes they had together."""
        return int(self._counts[2])

    @property
    def cpu_s(self) -> float:
        """Processor time until the last of them was to be read."""
        return float(sum(self._cpu_s))

    def begin(self) -> None:
        """Begin a turn, in a process of its own."""
        self._cpu_s[0] += self._cpu_s[1]

    def count(self, text: bytes) -> None:
        """Count an input."""
        self._cpu_s[1] = time.process_time()
        for place, more in enumerate((1, len(text) > LARGE, len(text))):
            self._counts[place] += more


def kept(target: str, text: bytes) -> Path:
    """Write what broke a reader to the corpus."""
    path = CORPUS / target / hashlib.sha256(text).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def guarded(target: Target, tally: Tally) -> Callable[[bytes], None]:
    """Return a function that gives a reader one input, within bounds of time and memory."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    tally.begin()
    signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))

    def one(text: bytes) -> None:
        tally.count(text)
        signal.alarm(SECONDS)
        try:
            target.one(text)
        finally:
            signal.alarm(0)

    return one


def searched(
    name: str, target: Target, tally: Tally, *, seconds: float, inputs: int, seed: int
) -> None:
    """Search one reader without atheris, until its time or its inputs are over."""
    one, rng = guarded(target, tally), Random(f"{seed} {name}")
    seeds = [*target.seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
    until_s, most = time.monotonic() + seconds, tally.inputs + inputs
    seen = set[str]()
    while time.monotonic() < until_s and (not inputs or tally.inputs < most):
        text = mutated(rng, seeds)
        try:
            one(text)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            kind = f"{type(error).__name__} at {traceback.extract_tb(error.__traceback__)[-1].line}"
            if kind not in seen:
                seen.add(kind)
                said = traceback.format_exception(error)[-8:]
                print(f"{name}: {kept(name, text)}", *said, flush=True)
    sys.exit(bool(seen))


def guided(
    name: str, target: Target, tally: Tally, *, seconds: float, inputs: int, seed: int
) -> None:
    """Search one reader with atheris, which ends the process at its first finding."""
    atheris = importlib.import_module("atheris")
    feed, rng = guarded(target, tally), Random(seed)
    work = Path(os.environ.get("FUZZ_CORPUS", "/tmp")) / f"agentload-fuzz-{name}"  # grows large
    work.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(target.seeds()):
        (work / f"seed{number}").write_bytes(text[:LONGEST])
    words = work.with_suffix(".dict")
    words.write_text(
        "".join(
            '"' + "".join(f"\\x{byte:02x}" for byte in token) + '"\n'
            for token in TOKENS
            if len(token) < 100
        )
    )

    def one(text: bytes) -> None:
        try:
            feed(text)
        except Exception:
            kept(name, text)
            raise

    def other(text: bytes, most: int, number: int) -> bytes:
        rng.seed(number)
        return bytes(
            atheris.Mutate(text, most)
            if rng.random() < 0.5
            else mutated(rng, [text or b"a"])[:most]
        )

    options = [
        f"-max_total_time={max(1, round(seconds))}",
        f"-runs={inputs or -1}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        f"-dict={words}",
        "-verbosity=0",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([name, *options, f"-timeout={2 * SECONDS}", str(work)], one, custom_mutator=other)
    atheris.Fuzz()


def turns(
    tallies: Mapping[str, Tally],
    search: Callable[..., None],
    *,
    at_once: int,
    until_s: float,
    most_s: float,
    **limits: int,
) -> None:
    """Give each reader a turn of at most so many seconds, so many readers at once."""
    from tools.fuzz_targets import TARGETS

    running: dict[int, tuple[Tally, ForkProcess]] = {}

    def end(sentinels: Iterable[Any]) -> None:
        for each in sentinels:
            tally, process = running.pop(each)
            process.join()
            tally.has_finding |= process.exitcode != 0

    for name, tally in tallies.items():
        seconds = min(most_s, until_s - time.monotonic())
        if seconds <= 0:
            break
        process = multiprocessing.get_context("fork").Process(
            target=search, args=(name, TARGETS[name], tally), kwargs={"seconds": seconds, **limits}
        )
        process.start()
        running[process.sentinel] = tally, process
        if len(running) == at_once:
            end(wait(list(running)))
    while running:
        end(wait(list(running)))


def table(tallies: Mapping[str, Tally]) -> str:
    """Say what each reader got, and which of them broke."""
    lines = [f"{'reader':28}{'inputs':>10}{'> 128 kB':>10}{'kB each':>9}{'CPU s':>7}"]
    for name, tally in tallies.items():
        mean_kb = tally.size_bytes / 1024 / max(1, tally.inputs)
        lines.append(
            f"{name:28}{tally.inputs:>10,}{tally.large:>10,}{mean_kb:>9.1f}{tally.cpu_s:>7.0f}"
        )
    short = [name for name, tally in tallies.items() if tally.inputs < LEAST]
    broken = [name for name, tally in tallies.items() if tally.has_finding]
    lines.append(f"fewer than {LEAST:,} inputs: {', '.join(short) or 'none'}")
    lines.append(f"findings in: {', '.join(broken) or 'none'}")
    return "\n".join(lines)


def main() -> int:
    """Give each reader as many inputs first, then as much time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--at-once", type=int, default=2, help="readers that are fed at a time")
    engines = {"atheris": guided, "own": searched}
    found = importlib.util.find_spec("atheris")
    parser.add_argument("--engine", choices=engines, default="atheris" if found else "own")
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args()
    until_s = time.monotonic() + 60 * asked.minutes
    search = engines[asked.engine]
    with (
        importlib.import_module("atheris").instrument_imports(include=["agentload"])
        if search is guided
        else nullcontext()
    ):
        from tools.fuzz_targets import TARGETS

    if MEMORY_FILES.is_dir():  # each input has a folder of its own, which is slow on a disk
        tempfile.tempdir = str(MEMORY_FILES)
    tallies = {name: Tally() for name in asked.targets or TARGETS}
    play = partial(turns, tallies, search, at_once=asked.at_once, until_s=until_s)
    for number in range(ROUNDS):
        play(most_s=math.inf, inputs=LEAST // ROUNDS, seed=asked.seed + number)
    share_s = (until_s - time.monotonic()) * asked.at_once / len(tallies)
    play(most_s=share_s, inputs=0, seed=asked.seed + ROUNDS)
    print(f"{table(tallies)} (seed {asked.seed})", flush=True)
    return any(tally.has_finding for tally in tallies.values())


if __name__ == "__main__":
    sys.exit(main())
