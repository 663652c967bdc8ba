"""Complete a command that a decision suggests with what was typed for the run: the same servers, the same load, the same database."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from agentload.report.facts import Made

_SERVERS: Final = ("--endpoints", "--model", "--api-key-env", "--force", "--no-noise")
# How a trace is played: other pairs of a run are compared with its own only when they are played alike.
_LOAD: Final = (
    "--design",
    "--cache",
    "--sessions",
    "--rate",
    "--cv",
    "--speed",
    "--max-in-flight",
    "--wait-scale",
    "--wait-cap",
    "--max-calls",
    "--max-tokens",
    "--duration",
    "--cancel-share",
    "--history",
    "--retries",
    "--seed",
)
_PATIENCE: Final = ("--first-timeout", "--idle-timeout", "--total-timeout", "--on-dead", "--lenient")
_STARTING: Final = ("--launch", "--restarts", "--logs", "--start-timeout")
CARRIED: Final[Mapping[str, tuple[str, ...]]] = {
    "replay": (*_SERVERS, *_LOAD, "--pairs", "--warmup", "--aa", *_STARTING, *_PATIENCE, "--db"),
    "sweep": (*_SERVERS, "--wait-cap", "--db"),
    "eval": (*_SERVERS[:3], "--db"),
    "probe": _SERVERS[:3],
}
"""By verb, the options of a run's own command that a suggested one takes over."""
FLAGS: Final = frozenset(
    {
        "--force",
        "--noise",
        "--no-noise",
        "--warmup",
        "--launch",
        "--lenient",
        "--thinking",
        "--concurrency",
        "--gate",
        "--dry-run",
        "--json",
    }
)
"""Options without a value."""

_ANEW: Final = frozenset({"--swap", "--launch", "--aa"})
"""What changes the plan itself: such a replay is a run of its own, others add pairs to the run."""

Typed = list[tuple[str, str | None]]


def completed(command: str, made: Made) -> str:
    """Fill the blanks of a command with what the run had, where that is known, and keep the run's options that it does not set."""
    typed = _options(made.command)
    words = {"TRACE": shlex.join(made.traces) or "TRACE", "ENDPOINTS": _value(typed, "--endpoints") or "ENDPOINTS"}
    words["MODEL"] = _value(typed, "--model") or "MODEL"
    filled = " ".join(words.get(word, word) for word in command.split(" "))
    return " ".join((filled, *_missing(filled, typed, made)))


def _missing(command: str, typed: Typed, made: Made) -> Iterator[str]:
    verb = _verb(command)
    says = {option for option, _ in _options(command)}
    for option, value in typed:
        if option in CARRIED.get(verb, ()) and option not in says:
            yield option if value is None else f"{option} {value}"
    joins = {"--into", "--resume"} & says
    if verb == "replay" and "--pairs" in says and not says & _ANEW and _verb(made.command) == verb:
        joins = {"--resume"}
        yield f"--resume {made.run}"
    # What joins a run must find it.
    if joins and "--db" not in says | {option for option, _ in typed} and made.database is not None:
        yield f"--db {shlex.quote(made.database)}"


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
