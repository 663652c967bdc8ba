"""Find verbs by their names in the source and import a verb
only when it is invoked, so that `agentload --help` is instant.
"""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from inspect import Parameter, cleandoc, signature
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentload.cli import _defaults
from agentload.cli._print import notice, silence, transient
from agentload.errors import UsageError, nearest

Run = TypeVar("Run", bound=Callable[..., None])

WIDTH: Final = 76  # what 80 columns leave
_NO_VERBS: Final = frozenset({"main"})
_VERB: Final = re.compile(r'^def ([a-z]\w*)\(.*?^    """(.*?)"""', re.MULTILINE | re.DOTALL)
"""A public function and its docstring."""
_GROUP: Final = re.compile(r'"""(.*?)"""', re.DOTALL)
"""The docstring of a package."""
_IDLE: Final = (None, False, 0)
_ELSEWHERE: Final = {"serve": "emulate"}
"""What other programs call a verb of ours."""
GROUPED_FROM: Final = 16
"""A help text with as many options sorts them into groups."""
REST: Final = "Options"
_DB: Final = "--db"
GROUPS: Final[Mapping[str, str]] = {
    name: group
    for group, names in {
        "Servers": ("servers",),
        "Load": ("load", "capacity"),
        "Requests": ("request", "timeouts", "tokenizer"),
        "Statistics": (
            "pairs",
            "design",
            "swap",
            "cache",
            "aa",
            "warmup",
            "seed",
            "items",
            "repetitions",
        ),
        "Decision": (
            "reference",
            "slo",
            "agents",
            "price_usd",
            "decide_by",
            "budget_s",
            "min_change",
            "accuracy_margin",
            "fail_on",
        ),
        "Runs": ("db", "run_id", "into", "resume"),
        "Output": ("out", "json", "dry_run", "print_study", "quiet"),
    }.items()
    for name in names
}
"""Groups of options, by the part of a study that they are in, or by their own names."""
_INDENT: Final = "    "
_DEEPER: Final = "  "
_VERBATIM: Final = "\b"  # paragraphs that do not begin with it are filled
_SEAM: Final = re.compile(
    r'\s+(?=(?:--? ?\w|\|)(?:[^"]*"[^"]*")*[^"]*$)'
)  # before an option or a pipe, outside quotes


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Name a verb or a group without having imported it."""

    name: str
    docstring: str
    module: str
    function: str | None
    """None of a group."""

    @property
    def headline(self) -> str:
        """The docstring's first paragraph, in one line."""
        return " ".join(self.docstring.partition("\n\n")[0].split())

    def run(self) -> Callable[..., None]:
        """Import the verb's function."""
        assert self.function is not None, self.name
        # late: help needs no records
        from agentload.model.record import without_cycle_search

        with without_cycle_search():  # it took a tenth of an import, which hardly ever frees any
            module = import_module(self.module)
        found: Callable[..., None] = getattr(module, self.function)
        return found


def verbs(package: str) -> tuple[Verb, ...]:
    """List the verbs and groups of a package, sorted by name."""
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    found: list[tuple[str, str, str, str | None]] = []
    for file in Path(spec.origin).parent.glob("*.py"):
        if file.stem == "__init__" or not (file.stem.startswith("_") or file.stem in _NO_VERBS):
            module = package if file.stem == "__init__" else f"{package}.{file.stem}"
            found += [
                (name, docstring, module, name)
                for name, docstring in _VERB.findall(file.read_text(encoding="utf-8"))
            ]
    for file in Path(spec.origin).parent.glob("[a-z]*/__init__.py"):
        name = file.parent.name
        docstring = _GROUP.match(file.read_text(encoding="utf-8"))
        found.append((name, docstring[1] if docstring else "", f"{package}.{name}", None))
    return tuple(
        Verb(
            name=name.removesuffix("_").replace("_", "-"),
            docstring=cleandoc(docstring.replace("\\\n", "")),  # continued lines
            module=module,
            function=function,
        )
        for name, docstring, module, function in sorted(found)
    )


def needs(others: Mapping[str, tuple[str, ...]]) -> Callable[[Run], Run]:
    """Have a verb refuse a parameter that would do nothing: for
    each those of which at least one must have been given with it.
    """

    def decorated(run: Run) -> Run:
        run.needs = others  # type: ignore[attr-defined]  # read when the verb is invoked
        return run

    return decorated


class LazyGroup(TyperGroup):
    """Hold the verbs of one package; typer's group, except
    that its commands are text until they are needed.
    """

    def __init__(
        self, *, package: str = "agentload.cli", **attributes: Any
    ) -> None:  # typer's own attributes pass through
        super().__init__(**attributes)
        self.verbs = {verb.name: verb for verb in verbs(package)}

    # override: typer keeps its base class private, and mypy reads these as other ones of its parent
    def list_commands(  # type: ignore[override]
        self,
        ctx: typer.Context,  # noqa: ARG002
    ) -> list[str]:
        """List the names of the verbs."""
        return list(self.verbs)

    # override: typer's base class is private, as for list_commands
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, which take what needs no conversion without typer."""
        found = super().get_params(ctx)
        for each in found:
            _take_plainly(each)
        return found

    # override: typer's base class is private, as for list_commands
    def get_command(  # type: ignore[override]
        self,
        ctx: typer.Context,
        cmd_name: str,  # as typer calls it
    ) -> TyperCommand | TyperGroup:
        """Import the verb of that name; raise `UsageError`
        naming the nearest one if there is none.
        """
        verb = self.verbs.get(cmd_name)
        if verb is None:
            if ctx.resilient_parsing:  # a shell completes what is being typed
                return None  # type: ignore[return-value]  # which typer's own base class allows
            path = ctx.command_path
            raise UsageError(
                f"no verb '{cmd_name}'",
                hint=nearest(
                    _ELSEWHERE.get(cmd_name, cmd_name),
                    self.verbs,
                    form=f"`{path} {{}}`",
                    otherwise=f"{path} --help",
                ),
            )
        if verb.function is None:
            return LazyGroup(
                package=verb.module,
                name=verb.name,
                help=help_text(verb.docstring),
                rich_markup_mode=None,
            )
        return _command(verb)

    # override: typer's base class is private, as for list_commands
    def format_commands(  # type: ignore[override]
        self,
        ctx: typer.Context,  # noqa: ARG002
        formatter: Any,  # noqa: ANN401  # private to typer
    ) -> None:
        """List each verb with the first line of its docstring."""
        if self.verbs:
            with formatter.section("Commands"):
                formatter.write_dl([(verb.name, verb.headline) for verb in self.verbs.values()])


class _Command(TyperCommand):
    """A command that checks what was typed before it runs."""

    needs: Mapping[str, tuple[str, ...]]

    # override: typer's base class is private, as for list_commands
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """Return the parameters, which take what needs no conversion without typer."""
        found = super().get_params(ctx)
        for each in found:
            _take_plainly(each)
        return found

    # override: typer's base class is private, as for list_commands
    def parse_args(  # type: ignore[override]
        self,
        ctx: typer.Context,
        args: list[str],  # as typer calls it
    ) -> list[str]:
        args = self._with_database_first(ctx, args)
        words = ctx.command_path.split()[1:]
        if not ctx.resilient_parsing and _defaults.are_taken_by(words, args):
            ctx.default_map = _defaults.defaults(words, names_of(self))
        return super().parse_args(ctx, args)

    def _with_database_first(self, ctx: typer.Context, args: list[str]) -> list[str]:
        """Return the words with the value of `--db` in front, for a verb that reads a database.

        Such a verb takes its DATABASE as an argument, not as an option.
        """
        if not _reads(self):
            return args
        words = iter(args)
        databases = list[str]()
        rest = list[str]()
        for word in words:
            name, equals, value = word.partition("=")
            if name != _DB:
                rest.append(word)
            else:
                databases.append(value if equals else next(words, ""))
        if not databases:
            return args
        ctx.meta["note"] = (
            f"`{_DB}` is for verbs that run; of verbs that read, write: {ctx.command_path} "
            f"{' '.join(databases)}"
        )
        return [*databases, *rest]

    # override: typer's base class is private, as for parse_args
    def collect_usage_pieces(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """Leave out arguments that are hidden: they are older ways to say something."""
        hidden = [
            piece
            for each in self.params
            if getattr(each, "hidden", False)
            for piece in each.get_usage_pieces(ctx)
        ]
        return [piece for piece in super().collect_usage_pieces(ctx) if piece not in hidden]

    # override: typer's base class is private, as for parse_args
    def format_options(  # type: ignore[override]
        self,
        ctx: typer.Context,
        formatter: Any,  # noqa: ANN401  # private to typer
    ) -> None:
        """Write the options in groups, where there are many."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": []}
        params = self.get_params(ctx)
        for each in params:
            if each.param_type_name == "argument":
                group = "Arguments"
            else:
                group = (
                    GROUPS.get(getattr(each, "rich_help_panel", None) or each.name, REST)
                    if len(params) >= GROUPED_FROM
                    else REST
                )
            if (record := each.get_help_record(ctx)) is not None:
                groups.setdefault(group, []).append(record)
        for name in sorted(groups, key=lambda name: name == REST):
            if groups[name]:
                with formatter.section(name):
                    formatter.write_dl(groups[name])

    # override: typer's base class is private, as for parse_args
    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        for name, others in self.needs.items():
            source = ctx.get_parameter_source(name)
            if (
                source is not None
                and source.name == "COMMANDLINE"
                and all(ctx.params[other] in _IDLE for other in others)
            ):
                wanted = " or ".join(map(self._option, others))
                raise UsageError(
                    f"{self._option(name)} does nothing without {wanted}",
                    hint=f"{ctx.command_path} --help",
                )
        with silence(is_quiet=ctx.params.pop("quiet")):
            if "note" in ctx.meta:
                notice(f"note: {ctx.meta['note']}")
            if ctx.default_map:
                notice(f"defaults from {_defaults.NAME}: {_defaults.text(ctx.default_map)}")
            return super().invoke(ctx)

    def _option(self, name: str) -> str:
        return next(each.opts[0] for each in self.params if each.name == name)


def _reads(command: TyperCommand | TyperGroup) -> bool:
    return any(each.name == "database" for each in command.params)


def names_of(command: TyperCommand | TyperGroup) -> dict[str, str]:
    """Return a verb's parameters by what files of defaults call them."""
    own = {"db": "database"} if _reads(command) else {}
    return own | {
        option.lstrip("-"): each.name
        for each in command.params
        for option in each.opts
        if option.startswith("--")
    }


def _command(verb: Verb) -> TyperCommand:
    transient(f"{verb.name}: loading …")
    run = verb.run()
    transient()
    command = _typer_command(run, name=verb.name, help=help_text(verb.docstring))
    command.needs = getattr(run, "needs", {})
    command.params += _typer_command(_of_every_verb).params
    return command


def _typer_command(run: Callable[..., None], **settings: str) -> _Command:
    """Return a verb's function as a command of typer."""
    whole = signature(run, eval_str=True)
    options = [_option(each) for each in whole.parameters.values()]
    typed = whole.replace(parameters=options)
    run.__signature__ = typed  # type: ignore[attr-defined]  # as inspect has it
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(cls=_Command, **settings)(run)  # type: ignore[arg-type]  # a name and a help
    command = get_command(app)
    assert isinstance(command, _Command), command
    return command


def _take_plainly(parameter: Any) -> None:  # noqa: ANN401  # typer's classes of these are private
    """Have a parameter take without typer what needs no conversion.

    typer asks pydantic even about an option that was left out, and to
    import it takes a third of the time of a help text.
    """
    if "process_value" in vars(parameter):
        return
    converted = parameter.process_value

    def process_value(ctx: typer.Context, value: object) -> object:
        if value is None and not parameter.required:
            is_list = parameter.nargs == -1 or parameter.multiple
            left_out = () if is_list else None
            call = parameter.callback
            return left_out if call is None else call(ctx, parameter, left_out)
        kind = parameter.type_descriptor.annotation
        if parameter.callback is not None or not _is_plain(value, kind, default=parameter.default):
            return converted(ctx, value)
        return Path(str(value)) if kind is Path else value

    parameter.process_value = process_value


# ANN401: the annotation of any option
def _is_plain(value: object, kind: Any, *, default: object) -> bool:  # noqa: ANN401
    """Tell whether a value is right as it is; typer refuses the others, or converts them."""
    if kind is str:
        return isinstance(value, str) and value.isascii()
    if kind is Path:
        return isinstance(value, str | Path) and _is_plain_path(str(value))
    is_number = isinstance(value, int | float) and type(value) is type(default)
    return is_number and value == default


def _is_plain_path(path: str) -> bool:
    if not path.isascii() or "\0" in path:
        return False
    return not os.access(path, os.F_OK) or os.access(path, os.R_OK)


def _option(parameter: Parameter) -> Parameter:
    """Return a parameter as typer has options: a text next to its type is the option's help.

    One that is true or false is a switch.
    """
    said = getattr(parameter.annotation, "__metadata__", ())
    if not (said and isinstance(said[0], str)):
        return parameter
    kind = parameter.annotation.__origin__
    names = (f"--{parameter.name.replace('_', '-')}",) if kind is bool else ()
    return parameter.replace(annotation=Annotated[kind, typer.Option(*names, help=said[0])])


def _of_every_verb(
    *,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print results and errors alone: no progress, no notices."
        ),
    ] = False,
) -> None:
    """Declare the option that every verb has."""


def help_text(docstring: str) -> str:
    """Mark indented paragraphs as verbatim, with long
    commands continued on further lines as a shell reads them.
    """
    return "\n\n".join(map(_paragraph, docstring.strip().split("\n\n")))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    if not all(line.startswith(_INDENT) for line in lines):
        return text
    return "\n".join([_VERBATIM, *(fold_command(line) for line in lines)])


def fold_command(line: str, width: int = WIDTH) -> str:
    """Return an indented command, continued on further lines as a shell reads them."""
    if len(line) <= width or not line.startswith(f"{_INDENT}agentload "):
        return line
    first, *parts = _SEAM.split(_INDENT + " ".join(line.split()))
    lines = [first]
    for part in parts:
        if len(f"{lines[-1]} {part} \\") <= width:
            lines[-1] += f" {part}"
        else:
            lines.append(_INDENT + _DEEPER + part)
    return " \\\n".join(lines)
