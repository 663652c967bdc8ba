"""Refuse an option that would do nothing, because the one it belongs to was not given."""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import typer
from typer.core import TyperCommand

from agentload.errors import UsageError

Needs: TypeAlias = Mapping[str, tuple[str, ...]]
"""For each parameter of a verb those of which at least one must have been given with it."""

_IDLE: Final = (None, False, 0)


def command_class(needs: Needs) -> type[TyperCommand]:
    """Return a command that checks what was typed before it runs."""

    class Checked(TyperCommand):
        def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401  # typer keeps its base class private
            for name, others in needs.items():
                source = ctx.get_parameter_source(name)
                if source is not None and source.name == "COMMANDLINE" and all(ctx.params[other] in _IDLE for other in others):
                    wanted = " or ".join(self._option(other) for other in others)
                    raise UsageError(f"{self._option(name)} does nothing without {wanted}", hint=f"{ctx.command_path} --help")
            return super().invoke(ctx)

        def _option(self, name: str) -> str:
            return next(each.opts[0] for each in self.params if each.name == name)

    return Checked
