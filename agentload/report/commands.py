"""Complete a command that a decision suggests with what was typed for the run: the same servers, the same load, the same database."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

from agentload.report.facts import Made

_SERVERS: Final = ("--endpoints", "--model", "--api-key-env")
_STAND_INS: Final = ("--force", "--no-noise")
# How a trace is played: other pairs of a run are compared with its own only when they are played alike.
_LOAD: Final = (
    *("--pairs", "--design", "--swap", "--cache", "--warmup", "--aa", "--capacity", "--slo", "--seed"),
    *("--sessions", "--rate", "--cv", "--ramp", "--ramp-from", "--burst", "--speed", "--max-in-flight", "--wait-scale", "--wait-cap"),
    *("--max-calls", "--max-tokens", "--duration", "--cancel-share", "--history", "--retries"),
)
_MEANS: Final = ("--launch", "--restarts", "--logs", "--start-timeout", "--workers", "--keep-raw", "--lenient")
_PATIENCE: Final = ("--first-timeout", "--idle-timeout", "--total-timeout", "--on-dead")
CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "replay": (*_SERVERS, "--tokenizer", *_STAND_INS, *_LOAD, *_MEANS, *_PATIENCE, "--db"),
    "sweep": (*_SERVERS, *_STAND_INS, *_MEANS[:4], "--wait-cap", "--slo", "--db"),
    "eval": (*_SERVERS, "--tokenizer", "--launch", "--logs", "--start-timeout", "--db"),
    "probe": (*_SERVERS, "--logs", "--start-timeout", "--db"),
    "calibrate": ("--model",),
}
"""By verb, the options of a run's own command that a suggested one takes over."""
_ONLY_WITH: Final = {("sweep", "--wait-cap"): "--concurrency", ("sweep", "--slo"): "--concurrency"}
"""Options that mean nothing, and are refused, where another is not given."""
FLAGS: Final = frozenset(
    f"--{name}"
    for name in (
        *("force", "noise", "no-noise", "warmup", "swap", "launch", "lenient", "dry-run", "json"),
        *("concurrency", "gate", "matrix", "graphs", "thinking"),
    )
)
"""Options without a value."""

_URLS: Final = re.compile(r"://|^'?emulated:")
"""Servers that no file describes."""
_ANEW: Final = frozenset({"--swap", "--launch"})
"""What makes another plan of a run that began without it: a run of its own."""

Typed = list[tuple[str, str | None]]


def completed(command: str, made: Made, *, played: int = 0) -> str | None:
    """Fill the blanks of a command with what the run had, where that is known, and keep the run's options that it does not set.

    *played* is how many pairs of the run count. None for a command that would be refused: no run tells how to start servers by URLs.
    """
    typed = _options(made.command)
    if ("--matrix", None) in _options(command) and _URLS.search(_value(typed, "--endpoints") or ""):
        return None
    if _adds_pairs(command, made):
        wanted = int(_value(_options(command), "--pairs") or 0)
        if played < _planned(made) and wanted <= _planned(made):
            # The run was stopped before its own plan was played.
            return made.command if _value(typed, "--resume") else f"{made.command} --resume {made.run}"
        # A class that few of the pairs hold: those that it wants come on top.
        more = played + wanted if wanted <= played else wanted
        if ("--swap", None) in typed and (began := _planned(made)):
            more = ceil(more / began) * began  # as many on each machine
        command = command.replace(f"--pairs {wanted}", f"--pairs {more}")
    words = {"TRACE": shlex.join(made.traces) or "TRACE", "ENDPOINTS": _value(typed, "--endpoints") or "ENDPOINTS"}
    words["TRACES"] = shlex.quote(",".join(made.traces)) if made.traces else "TRACES"
    words["MODEL"] = _value(typed, "--model") or "MODEL"
    filled = " ".join(words.get(word, word) for word in command.split(" "))
    return " ".join((filled, *_missing(filled, typed, made, played=played)))


def _missing(command: str, typed: Typed, made: Made, *, played: int) -> Iterator[str]:
    verb = _verb(command)
    says, had = ({option for option, _ in options} for options in (_options(command), typed))
    for option, value in typed:
        needed = _ONLY_WITH.get((verb, option))
        if option in CARRIED.get(verb, ()) and option not in says and (needed is None or needed in says):
            # A run that has grown since has more pairs than were typed.
            carried = str(max(int(value or 0), played)) if option == "--pairs" else value
            yield option if carried is None else f"{option} {carried}"
    joins = {"--into", "--resume"} & says
    if _adds_pairs(command, made):
        joins = {"--resume"}
        yield f"--resume {made.run}"
    # What joins a run must find it.
    if joins and "--db" not in says | had and made.database is not None:
        yield f"--db {shlex.quote(made.database)}"


def _adds_pairs(command: str, made: Made) -> bool:
    says, had = ({option for option, _ in _options(each)} for each in (command, made.command))
    return _verb(command) == _verb(made.command) == "replay" and "--pairs" in says and not (says - had) & _ANEW


def _planned(made: Made) -> int:
    """Return how many pairs the run was to have; 0 where it does not say."""
    pairs = json.loads(made.options).get("pairs") if made.options else None
    return pairs if isinstance(pairs, int) else 0


def _verb(command: str) -> str:
    return command.removeprefix("agentload ").partition(" ")[0]


def _options(command: str) -> Typed:
    """List the options of a command line in order, their values quoted as they must be typed."""
    try:
        words = iter(shlex.split(command))
    except ValueError:  # a command that was cut short where it was written down
        return []
    out: Typed = []
    for word in words:
        option, joined, value = word.partition("=")
        if not option.startswith("--"):
            continue
        if joined:
            out.append((option, shlex.quote(value)))
        else:
            out.append((option, None if option in FLAGS else shlex.quote(next(words, ""))))
    return out


def _value(typed: Typed, name: str) -> str | None:
    return next((value for option, value in reversed(typed) if option == name), None)
