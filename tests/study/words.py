"""Read the words of a command line back into the typed values of its study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from agentload.errors import UsageError
from agentload.study.argv import Typed, options
from agentload.study.fields import Flag
from agentload.study.forms import FORMS

SWITCHES: Final = ("--concurrency",)
"""Options that choose between the studies of a verb and have no value."""
PLAIN: Final = ("--dry-run", "--json", "--gate", "--print-study")
"""Options without a value that say nothing of a study."""


def split(words: Sequence[str]) -> tuple[str, Typed]:
    """Return the verb of a command line and the typed values of its study.

    Options that say where results go are skipped. Raises UsageError for a verb that
    runs no study.
    """
    verb, *rest = words or ("",)
    if verb not in FORMS:
        raise UsageError(f"'{verb}' runs no study", hint=f"one of: {', '.join(FORMS)}")
    known = {name: flag for flag in options(verb) for name in (flag.option, *flag.said.also)}
    typed: dict[str, Any] = {}
    for name, value in _words(rest, known):
        if name is None:
            typed.setdefault("traces", []).append(value)
            continue
        flag = known.get(name) or known.get(name.replace("--no-", "--", 1))
        if flag is None:
            if name in SWITCHES:
                typed[name.removeprefix("--")] = True
            continue
        if flag.is_switch:
            typed[flag.name] = not name.startswith("--no-")
        elif flag.said.repeated:
            typed.setdefault(flag.name, []).append(value)
        else:
            typed[flag.name] = value
    return verb, typed


def _words(rest: Sequence[str], known: Mapping[str, Flag]) -> Iterator[tuple[str | None, str]]:
    words = iter(rest)
    for word in words:
        name, mark, value = word.partition("=")
        if not word.startswith("-") or word == "-":
            yield None, word
            continue
        flag = known.get(name) or known.get(name.replace("--no-", "--", 1))
        is_switch = flag.is_switch if flag is not None else name in (*SWITCHES, *PLAIN)
        if mark:
            yield name, value
        else:
            yield name, "" if is_switch else next(words, "")
