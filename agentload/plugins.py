"""Find plug-ins: the modules next to a room's catalog, and other packages' entry points.

Other packages announce theirs in a group of the room's name. A plug-in's name is its file's or
its entry point's, the keyword-only signature of its function is its option schema, its docstring
is its help. Nothing is imported before it is used, and entry points are looked up only when a
catalog is: `agentload --help` reads neither.
"""

import hashlib
import inspect
import pkgutil
import traceback
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, wraps
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from agentload.errors import AgentloadError, UsageError, nearest, not_among

# Types of options: bounds are part of the type, so that `convert_options` holds for them all.
Bytes: TypeAlias = Annotated[float, Meta(gt=0)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]
Positive: TypeAlias = Annotated[int, Meta(ge=1)]
Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=1e18)]  # infinity is no time
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Rate: TypeAlias = Annotated[float, Meta(gt=0)]
Spread: TypeAlias = Annotated[float, Meta(ge=0, le=50)]
Peak: TypeAlias = Annotated[float, Meta(ge=1, le=20)]
Weight: TypeAlias = Annotated[float, Meta(ge=0)]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One keyword of a plug-in's function."""

    name: str
    type: Any
    default: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A plug-in of another package that cannot be used, and why; lists show it like any other."""

    name: str
    help: str
    options: tuple[Option, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """All plug-ins of one kind."""

    room: str
    """Package of our plug-ins; other packages announce theirs in a group of this name."""
    kind: str
    """Word for one plug-in in messages."""
    needs: tuple[str, ...]
    """What a plug-in must define, first the function whose keywords are its options."""
    joint: Literal["_", "-"] = "_"
    """Character between the words of a name; users may write either."""

    def own(self) -> tuple[str, ...]:
        """List the names of our plug-ins, sorted."""
        return tuple(sorted(map(self.shown, _modules(self.room))))

    def names(self) -> tuple[str, ...]:
        """List the names of all plug-ins, sorted, without loading any."""
        return tuple(sorted({*self.own(), *map(self.shown, _announced(self.room))}))

    def load(self, name: str) -> Any:  # noqa: ANN401  # a module, or what an entry point names
        """Import the plug-in of that name.

        Raises `UsageError` naming the nearest if there is none, and `AgentloadError` naming
        the package if another package's cannot be used, or has a name that is taken.
        """
        shown = self.shown(name)
        announced = _announced(self.room).get(shown.replace("-", "_"), ())
        holders = ["agentload"] * (shown in self.own()) + [_package(entry) for entry in announced]
        if not holders:
            raise UsageError(f"no {self.kind} '{name}'", hint=nearest(name, self.names()))
        if len(holders) > 1:
            taken = f"{self.kind} '{shown}' is of {' and of '.join(holders)}: a name stands for one"
            raise AgentloadError(
                taken, hint=f"pip uninstall {holders[-1]}, or have it use another name"
            )
        if announced:
            return self._loaded(announced[0])
        return self.load_own(shown)

    def load_own(self, name: str) -> Any:  # noqa: ANN401  # as `load`
        """Import one of our plug-ins, even if another package uses its name."""
        return import_module(f"{self.room}.{name.replace('-', '_')}")

    def every(self, made: Callable[[str], T]) -> Iterator[T | Broken]:
        """Yield *made* of each name, or `Broken` for a plug-in that cannot be used."""
        for name in self.names():
            try:
                yield made(name)
            except AgentloadError as error:
                yield Broken(name=name, help=error.message)

    def shown(self, name: str) -> str:
        """Spell a name as lists do."""
        return name.replace("-", "_").replace("_", self.joint)

    def _loaded(self, entry: EntryPoint) -> Any:  # noqa: ANN401  # as `load`
        package = _package(entry)
        what = f"{self.kind} '{entry.name}' of the package '{package}'"
        hint = f"pip install --upgrade {package}, or pip uninstall {package}"
        try:
            found = entry.load()
            lacks = [each for each in self.needs if not hasattr(found, each)]
            lacks or options(getattr(found, self.needs[0]))
        except (Exception, SystemExit) as error:  # whatever a package does wrong, it is named
            raise AgentloadError(
                f"{what} cannot be loaded: {type(error).__name__}: {error}", hint=hint
            ) from error
        if lacks:
            raise AgentloadError(f"{what} defines no {' and no '.join(lacks)}", hint=hint)
        return _ForeignPlugin(found, what, _package(entry))


class _ForeignPlugin:
    """Stand for a plug-in of another package; what fails in its functions is an error of theirs."""

    def __init__(self, plugin: Any, what: str, package: str) -> None:  # noqa: ANN401  # as `load`
        self.__doc__ = plugin.__doc__
        self._plugin = plugin
        self._what = what
        self._package = package

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  # as `load`
        found = getattr(self._plugin, name)
        if callable(found) and not isinstance(found, type):
            return self._watched(found)
        return found

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*given: Any, **options: Any) -> Any:  # noqa: ANN401  # as `load`
            with self._blamed():
                made = function(*given, **options)
            if isinstance(made, Iterator):
                return self._each(made)
            return made

        return call

    def _each(self, made: Iterator[T]) -> Iterator[T]:
        with self._blamed():
            yield from made

    @contextmanager
    def _blamed(self) -> Iterator[None]:
        try:
            yield
        except AgentloadError:
            raise
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name}:{last.lineno}"
            raise AgentloadError(
                f"{self._what} failed: {type(error).__name__}: {error} ({place})",
                hint=f"pip install --upgrade {self._package}, or tell its authors: "
                "AGENTLOAD_DEBUG=1 prints the traceback",
            ) from error


@cache
def _modules(room: str) -> tuple[str, ...]:
    found = pkgutil.iter_modules(import_module(room).__path__)
    return tuple(each.name for each in found if not each.ispkg and each.name != "catalog")


@cache
def _announced(group: str) -> Mapping[str, tuple[EntryPoint, ...]]:
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=group):
        name = entry.name.replace("-", "_")
        found[name] = (*found.get(name, ()), entry)
    return found


def _package(entry: EntryPoint) -> str:
    if entry.dist is None:
        return "?"
    return entry.dist.name


def help_of(plugin: object) -> str:
    """Return a plug-in's docstring, which is its help."""
    return inspect.cleandoc(plugin.__doc__ or "") or "(it says nothing of itself)"


def summary(text: str) -> str:
    """Return the first paragraph of a text in one line."""
    return paragraphs(text).partition("\n\n")[0]


def paragraphs(text: str) -> str:
    """Return a text with each of its paragraphs in one line."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


def options(function: Callable[..., Any]) -> tuple[Option, ...]:
    """List a function's options; a keyword whose default is a record stands for its fields."""
    types = typing.get_type_hints(function, include_extras=True)
    found: list[Option] = []
    for name, default in _keywords(function).items():
        if is_dataclass(default) and not isinstance(default, type):
            found += _fields(default)
        else:
            found.append(Option(name=name, type=types.get(name, Any), default=default))
    return tuple(found)


def keywords(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a function's keywords for these options: those of a record are put into it."""
    found = dict(given)
    for name, default in _keywords(function).items():
        if is_dataclass(default) and not isinstance(default, type):
            own = found.keys() & {each.name for each in fields(default)}
            found[name] = replace(default, **{each: found.pop(each) for each in own})
    return found


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the defaults of a function's keyword-only parameters by name."""
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.kind is each.KEYWORD_ONLY}


def _fields(record: Any) -> Iterator[Option]:  # noqa: ANN401  # any dataclass
    types = typing.get_type_hints(type(record), include_extras=True)
    for each in fields(record):
        yield Option(name=each.name, type=types[each.name], default=getattr(record, each.name))


def convert_options(
    name: str, known: tuple[Option, ...], given: Mapping[str, object], *, kind: str = ""
) -> dict[str, Any]:
    """Convert given values, perhaps text, to the options' types; raise `UsageError`."""
    by_name = {option.name: option for option in known}
    read = {}
    for key, value in given.items():
        if key not in by_name:
            raise UsageError(
                f"{kind} '{name}' has no option '{key}'".lstrip(), hint=nearest(key, tuple(by_name))
            )
        option = by_name[key]
        try:
            read[key] = msgspec.convert(
                _pairs(value) if typing.get_origin(option.type) is Mapping else value,
                option.type,
                strict=False,
            )
        except msgspec.ValidationError as error:
            if choices := _choices(option.type):
                raise UsageError(
                    not_among(f"{name}: {key}", choices, value),
                    hint=f"the default is {option.default}",
                ) from error
            what = str(error).partition(" - at ")[0]
            raise UsageError(
                f"{name}: {key}: {what}, got {value!r}", hint=f"the default is {option.default}"
            ) from error
    return read


def _choices(kind: object) -> tuple[str, ...]:
    """Return the only texts that a type has; none where it has others."""
    if typing.get_origin(kind) is not typing.Literal:
        return ()
    return typing.get_args(kind)


def _pairs(value: object) -> object:
    """Read `chat:2,rag:1`; anything but text is left as it is."""
    if not isinstance(value, str):
        return value
    return {
        name.strip(): weight
        for name, _, weight in (part.partition(":") for part in value.split(","))
    }


def generator(key: str) -> Random:
    """Return the generator that a plug-in draws from: it depends on the key alone."""
    return Random(
        int.from_bytes(hashlib.shake_256(key.encode("utf-8", "surrogatepass")).digest(32))
    )
