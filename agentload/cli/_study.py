"""Options that are the fields of a study: a verb that
runs one is handed the study, not what was typed.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import typer

from agentload.cli._print import notice
from agentload.plugins import summary
from agentload.run.files import pin
from agentload.run.place import place_of
from agentload.run.record import without_secrets
from agentload.store.places import DATABASE
from agentload.study.argv import build_study, options
from agentload.study.document import yaml_text
from agentload.study.fields import Flag
from agentload.study.forms import FORMS, Form
from agentload.study.quantity import slo_doubts

Db = Annotated[Path, "DuckDB file; it is made if it does not exist."]
Into = Annotated[str | None, "Add what was measured to this run, on the same arms, for its report."]
Resume = Annotated[
    str | None, "Resume this run: what is finished is not done again; it may be given more."
]
DB: Final = Path(DATABASE)
RUN_ID: Final = typer.Option(
    "--run-id", help="Call the run this; equal studies under one name send equal bytes."
)
PRINT: Final = typer.Option(
    "--print-study", help="Print what would be run, as a file for `agentload run`; run nothing."
)


def runs(
    verb: str, *joins: Literal["resume", "into"]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb the options of its studies, and of where rows
    go: in place of *study* and *place*, its first two parameters.
    """

    def decorated(run: Callable[..., None]) -> Callable[..., None]:
        flags = options(verb)
        own = list(signature(run, eval_str=True).parameters.values())[2:]
        places = _places(verb, joins)
        printed = _keyword("print_study", Annotated[bool, PRINT], default=False)
        studied = _parameters(verb, flags)
        parameters = [*studied, *places, *own, printed]
        whole = signature(run, eval_str=True).replace(parameters=parameters)

        @wraps(run)
        def verb_of(**given: Any) -> None:  # options of many types, each read by its field
            typed = {each.name: given.pop(each.name) for each in studied}
            study = build_study(verb, _without_unset_switches(typed, flags))
            _doubt_limits(typed)
            where = {each.name: given.pop(each.name) for each in places}
            if given.pop("print_study"):
                print(yaml_text(without_secrets(pin(study))), end="")
                return
            run(study, place_of(study, **where), **given)

        verb_of.__signature__ = whole  # type: ignore[attr-defined]  # where inspect looks for it
        verb_of.__annotations__ = {each.name: each.annotation for each in parameters}
        return verb_of

    return decorated


def _places(verb: str, joins: Sequence[Literal["resume", "into"]]) -> list[Parameter]:
    """Return the options that say where rows go."""
    kinds = [form.kind for form in FORMS[verb]]
    found = []
    if any(kind.rows != "none" for kind in kinds):
        found.append(_keyword("db", Db, default=DB))
    types = {"resume": Resume, "into": Into}
    found += [_keyword(name, types[name], default=None) for name in joins]
    if any(kind.rows == "run" for kind in kinds):
        found.append(_keyword("run_id", Annotated[str | None, RUN_ID], default=None))
    return found


def _without_unset_switches(typed: Mapping[str, Any], flags: Sequence[Flag]) -> dict[str, Any]:
    unset = {flag.name for flag in flags if flag.is_switch and typed[flag.name] == flag.default}
    return {name: value for name, value in typed.items() if name not in unset}


def _doubt_limits(typed: Mapping[str, Any]) -> None:
    """Warn of limits that are so short that another unit was probably meant."""
    for warning in slo_doubts(typed.get("slo") or ""):
        notice(f"warning: {warning}")


def _parameters(verb: str, flags: tuple[Flag, ...]) -> list[Parameter]:
    """Return the options that are fields, then those that only select a kind of study."""
    forms = FORMS[verb]
    switched = {form.switch: form.kind for form in forms if form.switch is not None}
    required = set.intersection(*map(_required_options, forms))
    found = []
    for flag in flags:
        kind = switched.pop(flag.option, None)
        is_required = flag.option in required
        found.append(_parameter(flag, is_required=is_required, is_switch=kind is not None))
    for switch, kind in switched.items():
        option = typer.Option(switch, help=summary(str(kind.__doc__)))
        name = switch.removeprefix("--")
        found.append(_keyword(name, Annotated[bool, option], default=False))
    return found


def _required_options(form: Form) -> set[str]:
    """Return the options without which a kind of study is no study."""
    return {flag.option for flag in form.flags() if flag.default is msgspec.NODEFAULT}


def _parameter(flag: Flag, *, is_required: bool, is_switch: bool) -> Parameter:
    """Return the parameter of a verb for a field.

    Leaving out an option that *is_switch* selects another kind of study, so its
    default is not shown.
    """
    if flag.said.positional and not flag.option.startswith("--"):
        argument = typer.Argument(help=flag.help)
        return _keyword(flag.name, Annotated[list[str], argument], default=Parameter.empty)
    names = (flag.option, *flag.said.also)
    part = flag.path[0]
    if flag.is_switch:
        name = flag.option
        if flag.default:
            name += f"/--no-{name.removeprefix('--')}"
        option = typer.Option(name, help=flag.help, rich_help_panel=part)
        return _keyword(flag.name, Annotated[bool, option], default=flag.default)
    if flag.said.repeated:
        option = typer.Option(*names, help=flag.help, rich_help_panel=part)
        return _keyword(flag.name, Annotated[list[str] | None, option], default=None)
    kind: Any = flag.type if flag.choices else str
    # typer would put a default that is text in parentheses.
    default = (
        "" if flag.shown_default is None or is_switch else f"  [default: {flag.shown_default}]"
    )
    metavar = None if flag.choices else flag.text.shown
    option = typer.Option(
        *names, help=flag.help + default, metavar=metavar, show_default=False, rich_help_panel=part
    )
    if is_required:
        return _keyword(flag.name, Annotated[kind, option], default=Parameter.empty)
    return _keyword(flag.name, Annotated[kind | None, option], default=None)


# ANN401: the annotation and the default of any option
def _keyword(name: str, annotation: Any, *, default: Any) -> Parameter:  # noqa: ANN401
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
