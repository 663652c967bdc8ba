"""Find verbs by file name and import a verb only when it is invoked, so that `agentload --help` is instant."""

import pkgutil
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from agentload.cli._help import help_text
from agentload.cli._needs import command_class
from agentload.errors import UsageError

_NO_VERBS = frozenset({"main"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """Name a verb or a group without having imported it."""

    name: str
    module: str
    file: Path
    is_group: bool


def verbs(package: str) -> tuple[Verb, ...]:
    """List the verbs and groups of a package, sorted by name."""
    spec = find_spec(package)
    assert spec is not None, package
    assert spec.origin is not None, package
    root = Path(spec.origin).parent
    found = [
        Verb(
            name=part.name.removesuffix("_").replace("_", "-"),
            module=f"{package}.{part.name}",
            file=root / part.name / "__init__.py" if part.ispkg else root / f"{part.name}.py",
            is_group=part.ispkg,
        )
        for part in pkgutil.iter_modules([str(root)])
        if not part.name.startswith("_") and part.name not in _NO_VERBS
    ]
    return tuple(sorted(found, key=lambda verb: verb.name))


def headline(verb: Verb) -> str:
    """Read the first line of a verb's docstring from its file, without importing it."""
    with verb.file.open(encoding="utf-8") as source:
        return source.readline().strip().removeprefix('"""').removesuffix('"""')


class LazyGroup(TyperGroup):
    """Hold the verbs of one package; typer's group, except that its commands are files until they are needed."""

    def __init__(self, *, package: str = "agentload.cli", **attributes: Any) -> None:  # typer's own attributes pass through
        super().__init__(**attributes)
        self.verbs = {verb.name: verb for verb in verbs(package)}

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002  # typer keeps its base class private
        """List the names of the verbs."""
        return list(self.verbs)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | TyperGroup:  # type: ignore[override]  # as list_commands
        """Import the verb of that name; raise `UsageError` naming the nearest one if there is none."""
        verb = self.verbs.get(cmd_name)
        if verb is None:
            near = get_close_matches(cmd_name, self.verbs, n=1, cutoff=0.5)
            hint = f"did you mean `{ctx.command_path} {near[0]}`?" if near else f"{ctx.command_path} --help"
            raise UsageError(f"no verb '{cmd_name}'", hint=hint)
        return _group(verb) if verb.is_group else _command(verb)

    def format_commands(self, ctx: typer.Context, formatter: Any) -> None:  # type: ignore[override]  # noqa: ANN401, ARG002  # as list_commands
        """List each verb with the first line of its docstring."""
        if self.verbs:
            with formatter.section("Commands"):
                formatter.write_dl([(verb.name, headline(verb)) for verb in self.verbs.values()])


def _group(verb: Verb) -> LazyGroup:
    return LazyGroup(package=verb.module, name=verb.name, help=help_text(import_module(verb.module).__doc__ or ""), rich_markup_mode=None)


def _command(verb: Verb) -> TyperCommand:
    module = import_module(verb.module)
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(name=verb.name, cls=command_class(getattr(module, "NEEDS", {})), help=help_text(module.__doc__ or ""))(module.run)
    command = get_command(app)
    assert isinstance(command, TyperCommand), command
    return command
