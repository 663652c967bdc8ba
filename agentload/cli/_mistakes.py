"""Say what is wrong with options that typer refuses, and which option was probably meant."""

import re
import shlex
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from importlib import import_module
from itertools import chain, takewhile
from typing import Any, Final

import typer

from agentload.errors import ALIKE, not_among

_MISSING: Final = "Missing"
_PREFIX: Final = re.compile(r"Value error, |\.$")
_CHOICES: Final = " is not one of "
_BOUND: Final = re.compile(r"(?:less|greater) than (?:or equal to )?(-?[\d.]+)")
_SIMILAR: Final = 0.75
"""How alike an option is to the one that is meant: sessions and questions share 0.71."""
_FOREIGN: Final = {
    "base-url": "endpoints",
    "concurrency": "sessions",
    "max-concurrency": "sessions",
    "outdir": "out",
    "output": "out",
    "qps": "rate",
    "request-rate": "rate",
    "url": "endpoints",
}
"""Names of options as other load generators have them, and ours."""
_VERB_WITH: Final = {"--endpoints": "replay", "--profile": "simulate"}
"""The verb that plays the same trace on what this option names."""
_CATALOGS: Final = {
    "generate": "agentload.workloads.catalog",
    "export": "agentload.exporters.catalog",
    "import": "agentload.importers.catalog",
}
"""Where workloads and formats are whose options are NAME=VALUE, by the last word of their verb."""
_PLACEHOLDERS: Final = {"--profile": "PROFILE", "--endpoints": "URL"}


def explain(error: typer.TyperException) -> tuple[str, str | None]:
    """Return what is wrong, and a hint: the corrected option where it can be guessed."""
    # Only typer's usage errors know the verb they happened in, and typer keeps their
    # classes to itself.
    context = getattr(error, "ctx", None)
    message = error.format_message()
    typed = getattr(error, "option_name", None)
    if context is None:
        return message, _help_of_line() if typed else None
    help_of_verb = f"{context.command_path} --help"
    if message.startswith(_MISSING):
        return message, _example(context) or help_of_verb
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
    """Return the option or argument that was probably meant, with the value that was typed."""
    value = _value_of(typed)
    parameters = {name: each for each in context.command.params for name in each.opts}
    name = _nearest(typed, parameters) or _part_of(typed, parameters)
    verb = context.command_path.split()
    if name is None and verb[-1] in _CATALOGS:
        return _as_named_value(typed, value, verb)
    if name is None:
        return _of_another_verb(typed, value, context.command.name)
    if not name.startswith("-"):
        return _as_argument(parameters[name], typed, value, context) if value else None
    if not value or parameters[name].is_flag:
        return name
    return _read_or_meant(name, value, context.command.name)


def _nearest(typed: str, names: Iterable[str]) -> str | None:
    """Return the long name that was probably meant."""
    bare = {name.lstrip("-"): name for name in names if not re.match(r"-\w", name)}
    word = typed.lstrip("-")
    if word in _FOREIGN:
        return bare.get(_FOREIGN[word])
    near = get_close_matches(word, bare, n=1, cutoff=_SIMILAR)
    return bare[near[0]] if near else None


def _part_of(typed: str, names: Iterable[str]) -> str | None:
    """Return the only long name of which what was typed is a part, or the other way round."""
    word = typed.removeprefix("--")
    if word == typed:
        return None
    bare = {name.removeprefix("--"): name for name in names if name.startswith("--")}
    words = {*word.split("-")}  # in any order, where no name begins alike
    found = [name for name in bare if name.startswith(word) or word.startswith(name)]
    if not found:
        own_words = {name: {*name.split("-")} for name in bare}
        found = [name for name, own in own_words.items() if words <= own or words >= own]
    return bare[found[0]] if len(found) == 1 else None


def _of_another_verb(typed: str, value: str, verb: str) -> str | None:
    """Return the verb that has an option which *verb* lacks; None where none has.

    Both carry studies out. An option that says where calls are sent is no reason to look for
    another verb: its own form of the option is returned, or the same line with the verb for it.
    """
    # late: help needs none of them
    from agentload.study.argv import options
    from agentload.study.forms import FORMS

    if verb not in FORMS:
        return None
    for other in FORMS:
        known = {flag.option for flag in options(other)}
        option = _nearest(typed, known)
        if option is None:
            continue
        plays_traces = verb in _VERB_WITH.values()
        # All other verbs take a profile as an endpoint that is emulated.
        if option == "--profile" and not plays_traces:
            return f"--endpoints emulated:{shlex.quote(value or _PLACEHOLDERS[option])}"
        if option in _VERB_WITH and plays_traces:
            words = sys.argv[sys.argv.index(verb) + 1 :]
            own, *given = _by_option(words)
            kept = [each for each in given if each[0].partition("=")[0] in known - {typed}]
            line = shlex.join(("agentload", _VERB_WITH[option], *own, *chain(*kept)))
            return f"{line} {option} {shlex.quote(value or _PLACEHOLDERS[option])}"
        return f"`agentload {other}` has {option}: agentload {other} --help"
    return None


def _by_option(words: Sequence[str]) -> list[list[str]]:
    """Part a line before each option; what stands ahead of the first one comes first."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word.startswith("-"):
            parts.append([])
        parts[-1].append(word)
    return parts


def _as_argument(
    argument: Any,  # noqa: ANN401  # as _example
    typed: str,
    value: str,
    context: Any,  # noqa: ANN401  # as _example
) -> str | None:
    """Return the line with a value as the argument that it was named by, not as an option.

    None where more stands behind options than their values.
    """
    verb = context.command_path.split()
    arguments, *given = _by_option(sys.argv[len(verb) :])
    known = [each for each in context.command.params if not each.opts[0].startswith("-")]
    options = [each for each in context.command.params if each not in known]
    flags = {name for each in options if each.is_flag for name in each.opts}
    rest = [each for each in given if each[0].partition("=")[0] != typed]
    for option, *words in given:
        takes_word = option not in flags and "=" not in option
        if len(words) > takes_word:
            return None
    at = known.index(argument)
    is_there = len(arguments) == len(known)
    arguments[at : at + is_there] = [value]
    return shlex.join((*verb, *arguments, *chain(*rest)))


def _as_named_value(typed: str, value: str, verb: Sequence[str]) -> str | None:
    """Return the line with an option of the workload or format that it names as NAME=VALUE."""
    words = sys.argv[len(verb) :]
    # late: help needs none of them
    catalog = import_module(_CATALOGS[verb[-1]])
    named = {word.replace("-", "_") for word in words}
    plugins = [each for each in catalog.every() if each.name.replace("-", "_") in named]
    name = _nearest(typed, [option.name for each in plugins for option in each.options])
    if name is None or not value:
        return None
    at = next(index for index, word in enumerate(words) if word.partition("=")[0] == typed)
    end = at + (1 if "=" in words[at] else 2)
    return shlex.join((*verb, *words[:at], f"{name}={value}", *words[end:]))


def _read_or_meant(option: str, value: str, verb: str) -> str:
    """Return an option with its value, or with the one that is meant by what it cannot read."""
    # late: help needs none of them
    from agentload.study.argv import options, readable_option
    from agentload.study.forms import FORMS

    for flag in options(verb) if verb in FORMS else ():
        if flag.option == option:
            return readable_option(flag, value)
    return f"{option} {shlex.quote(value)}"


def _help_of_line() -> str:
    """Return the command that explains the verb of this line."""
    words = takewhile(lambda word: not word.startswith("-"), sys.argv[1:])
    return shlex.join(("agentload", *words, "--help"))


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
