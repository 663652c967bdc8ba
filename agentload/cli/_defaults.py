"""Defaults of options in files: `agentload.toml` in the
working directory, then in the user's configuration folder.

    db = "bench.duckdb"              # of every verb that has the option

    [replay]                         # of one verb
    sessions = 16
    wait-cap = ["user=5", "tool=1"]

    [watch.add]
    time-zone = "Europe/Berlin"

What is typed comes first, then what a study says, then the nearer file. `agentload run`
and `--resume` take nothing from these files: what they run is described elsewhere.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from agentload.errors import UsageError, nearest

NAME: Final = "agentload.toml"
Values: TypeAlias = dict[str, Any]


def files() -> tuple[Path, ...]:
    """List the files that there are, the nearer one first."""
    # PTH111: Path.expanduser raises an error without a home, this does not
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")  # noqa: PTH111
    return tuple(path for path in (Path(NAME), Path(home, "agentload", NAME)) if path.is_file())


def are_taken_by(verb: Sequence[str], words: Sequence[str]) -> bool:
    """Tell whether a command line takes defaults from files: `run` and what is resumed do not."""
    return list(verb) != ["run"] and not any(word.partition("=")[0] == "--resume" for word in words)


def defaults(verb: Sequence[str], names: Mapping[str, str]) -> Values:
    """Return the defaults of a verb by its parameters'
    names; *names* has these by what a file calls them.

    Raises UsageError for a file that cannot be read, and for
    a key of the verb's own table that it has no option for.
    """
    found: Values = {}
    for path in reversed(files()):
        common = read(path)
        own: Any = common
        for word in verb:
            own = own.get(word, {})
            if not isinstance(own, dict):
                raise UsageError(
                    f"{path}: '{word}' is a verb, and takes a table", hint=f"[{'.'.join(verb)}]"
                )
        for key, value in own.items():
            if key not in names and not isinstance(value, dict):
                raise UsageError(
                    f"{path}: [{'.'.join(verb)}]: no option '{key}'", hint=nearest(key, names)
                )
        found |= {
            names[key]: _as_typed(value)
            for table in (common, own)
            for key, value in table.items()
            if key in names
        }
    return found


def read(path: Path) -> Values:
    """Read a file. Raises UsageError where it is no TOML."""
    import tomllib  # late: `agentload --help` does not need it

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{path}: {error}", hint='keys are options without their dashes: db = "bench.duckdb"'
        ) from error


def keys(values: Values, at: str = "") -> Iterator[tuple[str, str]]:
    """Yield each key with the verb that its table is of, which is "" at the top."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from keys(value, f"{at} {key}".strip())
        else:
            yield at, key


def options_of_files() -> frozenset[str]:
    """Return the options that the files set for any verb."""
    return frozenset(f"--{key}" for path in files() for _, key in keys(read(path)))


def text(values: Mapping[str, Any]) -> str:
    """Write defaults for people."""
    said = []
    for name, value in values.items():
        shown = value
        if isinstance(value, list):
            shown = " ".join(value)
        elif isinstance(value, bool):
            shown = str(value).lower()
        said.append(f"{name.replace('_', '-')} = {shown}")
    return ", ".join(said)


def _as_typed(value: object) -> object:
    """Return a value as it would be typed."""
    match value:
        case bool():
            return value
        case list():
            return [str(each) for each in value]
        case _:
            return str(value)
