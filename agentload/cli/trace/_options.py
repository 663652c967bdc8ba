"""Workloads and formats on the command line: what there is, and options as NAME=VALUE."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from agentload.cli._output import print_json
from agentload.errors import UsageError


class _Option(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def default(self) -> object: ...


class _Plugin(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def help(self) -> str: ...
    @property
    def options(self) -> Sequence[_Option]: ...


def named(given: Iterable[str], *, hint: str) -> dict[str, str]:
    """Return options by their names; the hint is the command that lists what there is."""
    options = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"'{text}' is no option of the form NAME=VALUE", hint=hint)
        options[name.replace("-", "_")] = value
    return options


def list_all(plugins: Sequence[_Plugin], *, json: bool) -> None:
    """List plug-ins by name and the first line of their help."""
    if json:
        print_json([_data(each) for each in plugins])
        return
    width = max(len(each.name) for each in plugins)
    for each in plugins:
        print(f"{each.name:<{width}}  {each.help.splitlines()[0]}")


def describe(plugin: _Plugin, *, json: bool) -> None:
    """Print what one is for, its options and their defaults."""
    if json:
        print_json(_data(plugin))
        return
    print(plugin.help, end="\n\n")
    width = max((len(option.name) for option in plugin.options), default=0)
    for option in plugin.options:
        print(f"{option.name:<{width}}  {option.default}")


def _data(plugin: _Plugin) -> dict[str, object]:
    return {"name": plugin.name, "help": plugin.help, "options": {option.name: option.default for option in plugin.options}}
