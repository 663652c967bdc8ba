"""What can be typed and written: verbs with their options, plug-ins, the fields of files.

The one part of the recording that reads the code. Where types
move, the functions below follow; what they return stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import formatannotation
from typing import Any, Final, get_args

import msgspec
import typer
from typer.main import get_command

import advisor.gates
import advisor.rules
import agentload.report.formats
from advisor.policy import Policy, ServiceLimits
from advisor.rulebook import modules
from agentload import builtin
from agentload.cli.main import _app
from agentload.endpoints.read import KNOWN
from agentload.endpoints.values import FIELDS
from agentload.exporters import catalog as exporters
from agentload.importers import catalog as importers
from agentload.matrix import measure
from agentload.matrix import read as form
from agentload.model.profile import Price
from agentload.study.argv import options
from agentload.study.forms import FORMS, MINUTES
from agentload.study.kinds import Ask, Replay, Search, Sweep
from agentload.study.parts import Live, Load
from agentload.tasks import catalog as tasks
from agentload.verdict import policy
from agentload.watch import job
from agentload.watch.jobs_file import KEYS
from agentload.workloads import catalog as workloads

Json = dict[str, Any]


def verbs() -> Json:
    """Return each verb's parameters; a group has none but its verbs."""
    return {
        name: [_parameter(each, name) for each in command.params if each.name != "help"]
        for name, command in commands()
    }


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every group and verb by what one types: '', 'replay', 'trace', 'trace show', ...."""

    def below(command: Any, context: typer.Context, path: str) -> Iterator[tuple[str, Any]]:
        yield path, command
        for name in command.list_commands(context) if hasattr(command, "list_commands") else ():
            yield from below(command.get_command(context, name), context, f"{path} {name}".strip())

    root = get_command(_app)
    yield from below(root, typer.Context(root, info_name="agentload"), "")


def _parameter(each: Any, verb: str) -> Json:
    is_option = each.param_type_name == "option"
    default, annotation = each.default, each.type_descriptor.annotation
    flag = (
        next((flag for flag in options(verb) if flag.option in each.opts), None)
        if verb in FORMS and is_option
        else None
    )
    if (
        flag is not None and not flag.said.repeated
    ):  # the command line takes text, which the field reads
        annotation = flag.type if flag.type in (bool, int, float) or flag.choices else str
        default = flag.default if isinstance(flag.default, int | float) else flag.shown_default
        default = float(flag.text.write(default)) if flag.text is MINUTES else default
        default = None if any(form.switch == flag.option for form in FORMS[verb]) else default
    said = default if default is None or isinstance(default, bool | int | float) else str(default)
    found = {
        "name": "/".join([*each.opts, *each.secondary_opts]) if is_option else f"<{each.name}>",
        "type": annotation.__name__
        if isinstance(annotation, type) and not get_args(annotation)
        else str(annotation),
        "default": said,
        "required": each.required or None,
        "several": (each.multiple or each.nargs == -1) or None,
        "min": each.min,
        "max": each.max,
    }
    return {name: value for name, value in found.items() if value is not None}


def plug_ins() -> Json:
    """Return the names of everything that is found by name, with the options that it takes."""
    return {
        "workloads": {name: _options(workloads.workload(name)) for name in workloads.names()},
        "importers": {name: _options(importers.importer(name)) for name in importers.names()},
        "exporters": {name: _options(exporters.exporter(name)) for name in exporters.names()},
        "tasks": {
            name: {key: str(value) for key, value in tasks.task(name).options.items()}
            for name in tasks.names()
        },
        "rules": {
            _name(module): sorted(map(str, module.NEEDS)) for module in modules(advisor.rules)
        },
        "gates": [_name(module) for module in modules(advisor.gates)],
        "report formats": [_name(module) for module in modules(agentload.report.formats)],
        **{kind: list(builtin.names(kind)) for kind in ("profiles", "traces", "presets")},
    }


def _options(plug_in: Any) -> Json:
    return {option.name: str(option.default) for option in plug_in.options}


def _name(module: Any) -> str:
    return str(module.__name__).rpartition(".")[2]


def file_fields() -> Json:
    """Return the fields of the files that users write, by the place in which they stand."""
    return {
        "arms": {"arm": sorted(FIELDS | KNOWN), "launch": ["command", "env"]},
        "jobs": {"file": sorted(KEYS), **_jobs()},
        "matrix": {**_structs(form.File), **_measured()},
        "policy": {
            "file": _fields(Policy) | dict.fromkeys(policy.SECTIONS, "section"),
            **{each.__name__: _fields(each) for each in (ServiceLimits, policy.UserLoad, Price)},
        },
    }


def _jobs() -> Json:
    """Return the fields of a job: its own, those of its study, and what older files call them."""
    own, played, asked = (_fields(kind) for kind in (job._Entry, Replay, Live))
    load = {**_fields(Load), "waits": "{}"}
    return {
        **_structs(job._Entry),
        "entry": {**asked, **played, **own},
        "load": load,
        "wait": {"scale": "1.0", "cap_s": "None"},
    }


def _measured() -> Json:
    """Return the fields of what a matrix measures: its own,
    those of its studies, and what older files call them.
    """
    servers = dict.fromkeys(sorted(measure._SERVERS), "of servers")
    replay = {**_fields(Replay), **servers, **dict.fromkeys(measure._OWN, "None"), "aa": "False"}
    found = {
        "measure": {**replay, **{old: f"load.{new}" for old, new in measure._OLD_LOAD.items()}},
        "load": _fields(Load),
    }
    kinds: dict[str, Any] = {"contexts": Sweep, "concurrency": Search, "accuracy": Ask}
    return found | {name: {**_fields(kind), **measure._OLD[name]} for name, kind in kinds.items()}


def _fields(kind: type[Any]) -> Json:
    if is_dataclass(kind):
        types = {
            each.name: each.type if isinstance(each.type, str) else formatannotation(each.type)
            for each in fields(kind)
        }
        return {
            each.name: (
                f"{types[each.name]} = {'required' if each.default is MISSING else each.default}"
            )
            for each in fields(kind)
        }
    found = {}
    for each in msgspec.structs.fields(kind):
        default = (
            each.default
            if each.default is not msgspec.NODEFAULT
            else "required"
            if each.required
            else "{}"
        )
        found[each.encode_name] = "{}" if isinstance(default, msgspec.Struct) else str(default)
    return found


def _structs(root: type[Any]) -> Json:
    """Return the fields of a struct and of every
    struct that it holds, by their names in lower case.
    """
    found: Json = {}
    waiting = [root]
    while waiting:
        kind = waiting.pop(0)
        found[_place(kind)] = _fields(kind)
        waiting += [each for each in _inner(kind) if _place(each) not in found]
    return found


def _place(kind: type[Any]) -> str:
    name = kind.__name__.strip("_").lower()
    return name.removesuffix("entry") or name


def _inner(kind: type[Any]) -> Iterator[type[Any]]:
    def seen(type_: Any) -> Iterator[type[Any]]:
        match type_:
            case msgspec.inspect.StructType():
                yield type_.cls
            case msgspec.inspect.DictType():
                yield from seen(type_.value_type)
            case msgspec.inspect.UnionType():
                for each in type_.types:
                    yield from seen(each)
            case _:
                pass

    described = msgspec.inspect.type_info(kind)
    assert isinstance(described, msgspec.inspect.StructType)
    for each in described.fields:
        yield from seen(each.type)


LISTS: Final[dict[str, Callable[[], Json]]] = {
    "verbs": verbs,
    "plug-ins": plug_ins,
    "fields": file_fields,
}
