"""Say what is wrong with options that typer refuses, and which option was probably meant."""

import re
import shlex
import sys
from difflib import get_close_matches
from itertools import takewhile
from typing import Any, Final

import typer

from agentload.errors import ALIKE, UsageError, not_among

_MISSING: Final = "Missing"
_PREFIX: Final = re.compile(r"Value error, |\.$")
_CHOICES: Final = " is not one of "
_BOUND: Final = re.compile(r"(?:less|greater) than (?:or equal to )?(-?[\d.]+)")
_OTHER_VERBS: Final = {"replay": "simulate", "simulate": "replay"}
"""The verb that has an option which a verb lacks: for servers, and for a profile."""
_OF_OTHERS: Final = {"replay": "--profile", "simulate": "--endpoints"}

_PLACEHOLDERS: Final = {"--profile": "PROFILE", "--endpoints": "URL"}


def explain(error: typer.TyperException) -> tuple[str, str | None]:
    """Return what is wrong, and a hint: the corrected option where it can be guessed."""
    # Only typer's usage errors know the verb they happened in, and typer keeps their
    # classes to itself.
    context = getattr(error, "ctx", None)
    message = error.format_message()
    if context is None:
        return message, None
    help_of_verb = f"{context.command_path} --help"
    if message.startswith(_MISSING):
        return message, _example(context) or help_of_verb
    typed = getattr(error, "option_name", None)
    if typed is not None and hasattr(error, "possibilities"):
        return f"no option {typed}", _option_meant(typed, context) or help_of_verb
    parameter = getattr(error, "param", None)
    if parameter is None or not parameter.opts[0].startswith("-"):
        return message, help_of_verb
    said = _PREFIX.sub("", str(getattr(error, "message", message)))
    name = parameter.opts[0]
    hint = _value_meant(said, parameter) or help_of_verb
    if _CHOICES in said:
        wrong, choices = _wrong_choice(said)
        return not_among(name, choices, wrong), hint
    return f"{name}: {said}", hint


def _example(context: Any) -> str:  # noqa: ANN401  # typer keeps its class to itself
    """Return the first example of a verb's help."""
    example = (context.command.help or "").partition("\b\n    agentload ")[2].partition("\n\n")[0]
    line = " ".join(example.replace("\\\n", "").split())
    return f"agentload {line}" if line else ""


def _option_meant(typed: str, context: Any) -> str | None:  # noqa: ANN401  # as _example
    """Return the option that was probably meant, with the value that was typed."""
    verb = context.command.name
    value = _value_of(typed)
    if _OF_OTHERS.get(verb) == typed:
        words = sys.argv[sys.argv.index(verb) + 1 :]
        named = takewhile(lambda word: not word.startswith("-"), words)
        line = shlex.join(("agentload", _OTHER_VERBS[verb], *named))
        return f"{line} {typed} {shlex.quote(value or _PLACEHOLDERS[typed])}"
    options = (each for parameter in context.command.params for each in parameter.opts)
    known = [each for each in options if each.startswith("--")]
    near = get_close_matches(typed, known, n=1, cutoff=ALIKE)
    if not near:
        return None
    return _read_or_meant(near[0], value, verb) if value else near[0]


def _read_or_meant(option: str, value: str, verb: str) -> str:
    """Return an option with its value, or with the one that is meant by what it cannot read."""
    # late: help needs none of them
    from agentload.study.argv import options
    from agentload.study.forms import FORMS

    flags = options(verb) if verb in FORMS else ()
    for flag in flags:
        if flag.option == option:
            try:
                flag.text.read(value, option)
            except UsageError as error:
                return error.hint or option
    return f"{option} {shlex.quote(value)}"


def _value_of(option: str) -> str:
    """Return what was typed behind an option; empty where nothing was."""
    words = iter(sys.argv)
    for word in words:
        name, mark, value = word.partition("=")
        if name == option:
            following = value if mark else next(words, "")
            return "" if following.startswith("-") else following
    return ""


def _value_meant(said: str, parameter: Any) -> str | None:  # noqa: ANN401  # as _example
    """Return an option with the nearest value that it takes."""
    name = parameter.opts[0]
    if _CHOICES in said:
        wrong, choices = _wrong_choice(said)
        near = get_close_matches(wrong, choices, n=1, cutoff=ALIKE)
        return f"{name} {(near or choices)[0]}"
    bound = _BOUND.search(said)
    if bound is not None:
        return f"{name} {bound[1]}"
    default = parameter.default
    if not isinstance(default, int | float):
        return None
    return f"{name} {default}"


def _wrong_choice(said: str) -> tuple[str, list[str]]:
    """Return what was typed, which may hold quotes itself, and what is taken in its place."""
    wrong, _, choices = said.rpartition(_CHOICES)
    return wrong[1:-1], re.findall(r"'([^']*)'", choices)
