"""Feed every reader malformed input, and keep what breaks one: `make fuzz MINUTES=10`.

Where atheris is installed (`pip install atheris`) it looks for inputs that take new
branches; else texts are damaged, spliced and filled with what has broken parsers before.
Either way a finding is an error not meant for users, or more than `SECONDS` or `MEMORY`;
its input is kept in `tests/tools/corpus/TARGET/`, where `test_fuzz.py` runs it for ever.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Final

CORPUS: Final = Path(__file__).parents[1] / "tests/tools/corpus"
SECONDS: Final = 20
MEMORY: Final = 4 << 30
LONGEST: Final = 1 << 18
LEAST: Final = 2_000
"""Inputs that each reader gets first, however slow it is; then all share what time is left."""
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
    return text[:LONGEST]


def kept(target: str, text: bytes) -> Path:
    """Write what broke a reader to the corpus."""
    path = CORPUS / target / hashlib.sha256(text).hexdigest()[:12]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)
    return path


def bound() -> None:
    """Make a reader that takes too much time or memory end in an error."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


def searched(name: str, seconds: float, seed: int, inputs: int) -> int:
    """Search one reader without atheris; return how many kinds of findings there were.

    The search ends with the time or with the *inputs*; 0 are as many as the time has.
    """
    from tools.fuzz_targets import TARGETS

    bound()
    target, rng, until_s = TARGETS[name], Random(f"{seed} {name}"), time.monotonic() + seconds
    seeds = [*target.seeds(), *(path.read_bytes() for path in sorted((CORPUS / name).glob("*")))]
    tried, found = 0, set[str]()
    while time.monotonic() < until_s and (not inputs or tried < inputs):
        text = mutated(rng, seeds)
        tried += 1
        signal.alarm(SECONDS)
        try:
            target.one(text)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is a finding
            signal.alarm(0)
            kind = f"{type(error).__name__} at {traceback.extract_tb(error.__traceback__)[-1].line}"
            if kind not in found:
                found.add(kind)
                print(
                    f"{name}: {kept(name, text)}",
                    *traceback.format_exception(error)[-8:],
                    flush=True,
                )
        finally:
            signal.alarm(0)
    print(f"{name}: {tried:,} inputs, {len(found)} kinds of findings (seed {seed})", flush=True)
    return len(found)


def guided(name: str, seconds: float, seed: int, inputs: int) -> int:
    """Search one reader with atheris, which ends the process at its first finding."""
    atheris = importlib.import_module("atheris")
    with atheris.instrument_imports(include=["agentload"]):
        from tools.fuzz_targets import TARGETS
    bound()
    target, work = (
        TARGETS[name],
        Path(os.environ.get("FUZZ_CORPUS", "/tmp")) / f"agentload-fuzz-{name}",
    )  # grows large
    work.mkdir(parents=True, exist_ok=True)
    (CORPUS / name).mkdir(parents=True, exist_ok=True)
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
    rng = Random(seed)

    def one(text: bytes) -> None:
        signal.alarm(SECONDS)
        try:
            target.one(text)
        except Exception:
            kept(name, text)
            raise
        finally:
            signal.alarm(0)

    def other(text: bytes, most: int, number: int) -> bytes:
        rng.seed(number)
        return bytes(
            atheris.Mutate(text, most)
            if rng.random() < 0.5
            else mutated(rng, [text or b"a"])[:most]
        )

    options = [
        f"-max_total_time={round(seconds)}",
        f"-runs={inputs or -1}",
        f"-seed={seed}",
        f"-max_len={LONGEST}",
        f"-dict={words}",
        "-verbosity=0",
        "-rss_limit_mb=4096",
    ]
    atheris.Setup([name, *options, f"-timeout={2 * SECONDS}", str(work)], one, custom_mutator=other)
    atheris.Fuzz()
    return 0


def main() -> int:
    """Give each reader its share of the time, in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="in all")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument(
        "--engine",
        choices=("atheris", "own"),
        default="atheris" if importlib.util.find_spec("atheris") else "own",
    )
    parser.add_argument("--inputs", type=int, default=0, help="of one reader at most; 0: no limit")
    parser.add_argument("targets", nargs="*")
    asked = parser.parse_args()
    seconds = 60 * asked.minutes
    if len(asked.targets) == 1:
        return (guided if asked.engine == "atheris" else searched)(
            asked.targets[0], seconds, asked.seed, asked.inputs
        ) > 0
    from tools.fuzz_targets import TARGETS

    names = asked.targets or list(TARGETS)
    until_s = time.monotonic() + seconds

    def has_finding(name: str, *, seed: int, minutes: float, inputs: int = 0) -> bool:
        limits = ["--seed", str(seed), "--minutes", str(minutes), "--inputs", str(inputs)]
        command = [sys.executable, "-m", "tools.fuzz", name, *limits, "--engine", asked.engine]
        return subprocess.run(command, check=False).returncode != 0

    broken = [
        name
        for name in names
        if has_finding(name, seed=asked.seed, minutes=asked.minutes, inputs=LEAST)
    ]
    left = (until_s - time.monotonic()) / 60 / len(names)
    if left > 0:
        broken += [name for name in names if has_finding(name, seed=asked.seed + 1, minutes=left)]
    print(
        f"findings in: {', '.join(dict.fromkeys(broken))}"
        if broken
        else f"{len(names)} readers, no finding",
        flush=True,
    )
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
