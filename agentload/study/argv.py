"""Convert between a study and the words of a command line.

`built` makes a study of typed values; `argv` writes the words that make the study
again, for the fields that differ from a default.
"""

import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import msgspec

from agentload.errors import UsageError
from agentload.study.document import IDLE, in_vain, study, tag
from agentload.study.fields import Flag
from agentload.study.forms import FORMS, Form, form_of
from agentload.study.kinds import Study
from agentload.study.quantity import Unit, parse_named, with_unit

Typed: TypeAlias = Mapping[str, Any]
"""Typed values by `Flag.name`: text, a list if repeated, True or False for a switch."""


@cache
def options(verb: str) -> tuple[Flag, ...]:
    """List the options of a verb that make up its studies, each once.

    Switches that choose a kind and have no value are not among them.
    """
    found: dict[str, Flag] = {}
    for form in FORMS[verb]:
        for flag in form.flags():
            found.setdefault(flag.option, flag)
    return tuple(found.values())


def build_study(verb: str, typed: Typed) -> Study:
    """Return the study that was typed.

    Raises UsageError where it cannot be read, is out of range or contradicts itself.
    """
    given = {name: value for name, value in typed.items() if value not in (None, [], ())}
    try:
        return _built(verb, given)
    except UsageError as error:
        raise UsageError(error.message, hint=error.hint or f"agentload {verb} --help") from error


def _built(verb: str, given: Typed) -> Study:
    form = _form(verb, given)
    own = form.flags()
    made: dict[str, Any] = {"servers": {"kind": tag(form.servers)}}
    for flag in own:
        if flag.name in given:
            _check_needed(verb, form, flag, given)
            _put(made, flag.path, _read(flag, given[flag.name]))
        elif flag.default is msgspec.NODEFAULT:
            raise UsageError(f"{flag.option} is missing")
        else:
            _put(made, flag.path, msgspec.to_builtins(flag.default))
    return study(made, form.kind, named={flag.path: flag.option for flag in own})


def argv(made: Study, *, spelled: Collection[str] = ()) -> tuple[str, ...]:
    """Write a study as a verb and its options: the changed ones, and those *spelled* out."""
    verb, form = form_of(made)
    own = form.flags()
    refused = {flag.option for flag in in_vain(made)}
    first = [verb]
    rest: list[str] = []
    if form.switch is not None and all(flag.option != form.switch for flag in own):
        rest.append(form.switch)
    for flag in own:
        value = flag.value(made)
        is_spelled = flag.option in spelled and not _is_unsaid(value)
        is_said = flag.option not in refused and (value != flag.default or is_spelled)
        if flag.said.positional and not flag.option.startswith("--"):
            first += _written(flag, value)
        elif flag.option.startswith("--") and (is_said or flag.option == form.switch):
            rest += _written(flag, value)
    return (*first, *rest)


def _is_unsaid(value: object) -> bool:
    """Return whether a field's value is written by leaving its option out."""
    return value is None or value is False or value in ((), {})


def lost_options(made: Study, spelled: Collection[str]) -> tuple[str, ...]:
    """List the *spelled* options that no command line of this study can name.

    Their fields have a value that is written by leaving the option out.
    """
    _, form = form_of(made)
    known = (flag for flag in form.flags() if flag.option in spelled)
    return tuple(flag.option for flag in known if _is_unsaid(flag.value(made)))


def command(
    made: Study,
    *,
    db: str | None = None,
    run_id: str | None = None,
    resume: str | None = None,
    into: str | None = None,
    spelled: Collection[str] = (),
) -> str:
    """Write a study as a shell command.

    It may call its run *run_id*, resume a run, or add its results *into* one.
    """
    words = ["agentload", *argv(made, spelled=spelled)]
    places = (("--db", db), ("--run-id", run_id), ("--resume", resume), ("--into", into))
    for option, value in places:
        if value is not None:
            words += [option, value]
    return shlex.join(words)


def _form(verb: str, given: Typed) -> Form:
    """Return the form that was typed.

    Raises UsageError for two forms at once, and for an option of another form.
    """
    forms = FORMS[verb]
    switched = [form for form in forms if _is_switched(form, given)]
    plain = [form for form in forms if form.switch is None]
    if len(switched) > 1 or not (switched or plain):
        names = " or ".join(form.switch or "" for form in forms)
        raise UsageError(f"{verb} takes either {names}")
    form = (switched or plain)[0]
    _check_own(verb, form, given)
    return form


def _check_own(verb: str, form: Form, given: Typed) -> None:
    """Raise UsageError for an option that only another form of the verb has."""
    own = _names(form)
    foreign = (flag for flag in options(verb) if flag.name in given and flag.name not in own)
    flag = next(foreign, None)
    if flag is None:
        return
    other = next(each for each in FORMS[verb] if flag.name in _names(each))
    if other.switch is None:
        raise UsageError(f"{flag.option} does nothing with {form.switch}")
    meant = readable_option(flag, given[flag.name])
    value = meant.removeprefix(flag.option).strip()
    minutes = value if value[-1:].isalpha() else f"{value}m"
    also = _TIMED.get(flag.name, "").format(minutes)
    raise UsageError(
        f"{flag.option} does nothing without {other.switch}",
        hint=f"{_usual(verb, other.switch)} {meant}{also}",
    )


def _is_switched(form: Form, given: Typed) -> bool:
    return form.switch is not None and given.get(_name(form.switch)) not in (None, False)


def _names(form: Form) -> set[str]:
    """Return the names of a form's options."""
    switch = set[str]() if form.switch is None else {_name(form.switch)}
    return {flag.name for flag in form.flags()} | switch


def _check_needed(verb: str, taken: Form, flag: Flag, given: Typed) -> None:
    """Raise UsageError for an option without any of those that it needs."""
    needed = [each.option for each in options(verb) if each.option in flag.said.needs]
    if not needed or any(given.get(_name(option)) not in IDLE for option in needed):
        return
    others = [
        form.switch
        for form in FORMS[verb]
        if form.switch and form.kind is not taken.kind and flag.name in _names(form)
    ]
    wanted = (*others, *needed)
    raise UsageError(
        f"{flag.option} does nothing without {' or '.join(wanted)}",
        hint=f"{_usual(verb, wanted[0])} {readable_option(flag, given[flag.name])}",
    )


_TIMED: Final = {"minutes": "; for a run of that length: --duration {}"}
"""What else an option may have been meant for, by its name."""
_USUAL: Final = {
    "rate": "2",
    "ramp": "60",
    "slo": "ttft=2s",
    "agents": "12",
    "capacity": "12",
    "sessions": "16",
    "on": "here",
    "contexts": "4k..64k",
    "own": "FILE",
    "endpoints": "bf16=URL,fp8=URL",
    "profile": "llama-3.1-8b-h100",
}
"""By an option's name; what only the user knows is a word in capitals."""


def _usual(verb: str, option: str) -> str:
    """Return an option with a usual value."""
    flag = next((each for each in options(verb) if each.option == option), None)
    if flag is None or flag.is_switch:
        return option
    value = next(iter(flag.choices), None) or _USUAL.get(flag.name) or flag.shown_default
    return f"{option} {value}"


def readable_option(flag: Flag, value: object) -> str:
    """Return an option as it was typed, or as it was probably meant where it cannot be read."""
    if not isinstance(value, str):
        return flag.option
    try:
        flag.check(_read(flag, [value] if flag.said.repeated else value), flag.option)
    except UsageError as error:
        return error.hint or flag.option
    return f"{flag.option} {shlex.quote(value)}"


# ANN401: takes text, a list of texts or a switch, and returns a field's value
def _read(flag: Flag, value: Any) -> Any:  # noqa: ANN401
    if flag.is_switch:
        return bool(value)
    if flag.said.repeated:
        return _read_kinds(flag, value)
    read = flag.text.read(value, flag.option) if isinstance(value, str) else value
    if flag.path[-1] == "traces":
        return [{"path": path} for path in read]
    return read


def _read_kinds(flag: Flag, values: Sequence[str]) -> dict[str, float]:
    """Return what is given for each kind of a repeated option."""
    kinds = flag.said.repeated
    found: dict[str, float] = {}
    for each in values:
        kind, figure = parse_named(
            each, flag.option, unit=_unit(flag), kinds=kinds, example=f"{kinds[0]}=30"
        )
        found[kind] = figure
    if len(found) < len(values):
        raise UsageError(
            f"{flag.option} is given twice for one kind: {', '.join(values)}",
            hint="name each kind once",
        )
    return found


def _written(flag: Flag, value: Any) -> Iterator[str]:  # noqa: ANN401  # a field's
    if flag.is_switch:
        yield flag.option if value else f"--no-{flag.option.removeprefix('--')}"
    elif flag.said.repeated:
        for kind, figure in value.items():
            yield from (flag.option, f"{kind}={with_unit(figure, _unit(flag))}")
    elif flag.path[-1] == "traces" and not flag.option.startswith("--"):
        yield from (each.path for each in value)
    elif flag.path[-1] == "traces":
        yield from (flag.option, ",".join(each.path for each in value))
    else:
        yield from (flag.option, flag.text.write(value))


def _unit(flag: Flag) -> Unit:
    """Return the unit of the figures of a repeated option."""
    return "s" if flag.path[-1].endswith("_s") else ""


def _put(made: dict[str, Any], path: Sequence[str], value: object) -> None:
    for name in path[:-1]:
        made = made.setdefault(name, {})
    made[path[-1]] = value


def _name(option: str) -> str:
    return option.removeprefix("--").replace("-", "_")
