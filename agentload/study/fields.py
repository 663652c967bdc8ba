"""Describe the fields of a study as options: name, reading and help, declared with the field.

A field of a part is annotated with `option(…)`; `flags` lists those of a study, the
fields of its parts included. From this list come the options of the command line
with their help, the reading of files, and the words that a study is written with.
"""

import math
import re
import types
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec

from agentload.errors import UsageError
from agentload.model.record import Record
from agentload.study import quantity
from agentload.study.quantity import Text, Unit

Role: TypeAlias = Literal["what", "amount", "means"]
"""What a field does to a run.

`what` is measured (another value is another run), the `amount` of it (a run may be
given more), or by which `means` and with how much patience (no figure changes).
"""

SERVERS: Final = "servers"
"""The part whose fields are listed separately, because they depend on its kind."""
BITS: Final = 64
"""Most bits of a whole number with its sign: those of the database."""
_UNITS: Final[Mapping[str, Unit]] = {
    "_s": "s",
    "_ms": "ms",
    "_tokens": "tokens",
    "_share": "share",
    "share": "share",
}
_SUFFIX: Final = ("_per_s", "_s", "_ms", "_tokens")


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Some fields of a study that belong together."""


class FieldOption(Record):
    """What a field's declaration says beyond its type."""

    role: Role = "what"
    name: str | None = None
    also: tuple[str, ...] = ()
    """Further names on the command line."""
    needs: tuple[str, ...] = ()
    """Options without all of which this one does nothing."""
    text: Text | None = None
    unit: Unit | None = None
    repeated: tuple[str, ...] = ()
    """Kinds that a KIND=NUMBER option may be given for, once each."""
    ge: float | None = None
    gt: Literal[0] | None = None
    le: float | None = None
    """Upper bound of a share, given together with `ge` or `gt`."""
    place: bool = False
    """Whether the value is a path, relative to the file that holds the study."""
    positional: bool = False


def option(
    help: str, **said: Any
) -> msgspec.Meta:  # the fields of `FieldOption`, each with its type there
    """Declare a field's option: its help, and values for the fields of `FieldOption`."""
    return msgspec.Meta(description=help, extra={"option": FieldOption(**said)})


class Flag(Record):
    """One field as an option."""

    path: tuple[str, ...]
    option: str
    type: Any
    default: Any
    """`msgspec.NODEFAULT` if a value must be given."""
    help: str
    said: FieldOption
    text: Text

    @property
    def name(self) -> str:
        """Name of the value among a command line's typed values."""
        return self.option.removeprefix("--").replace("-", "_")

    def value(self, study: Part) -> Any:  # noqa: ANN401  # of its own type
        """Return the field's value in a study."""
        found: Any = study
        for name in self.path:
            found = getattr(found, name)
        return found

    def check(self, value: object, name: str) -> None:
        """Raise UsageError about *name* for a number out of bounds or an empty list."""
        if value == () and self.default != ():
            raise UsageError(f"{name} names at least one")
        if isinstance(value, Part):
            for flag in flags(type(value)):
                flag.check(flag.value(value), f"{name}: {flag.path[-1]}")
        for each in value.values() if isinstance(value, dict) else (value,):
            if isinstance(each, int | float) and not isinstance(each, bool):
                self._check_number(each, name)

    def _check_number(self, value: float, name: str) -> None:
        if isinstance(value, int) and value.bit_length() >= BITS:
            raise UsageError(f"{name} is a whole number of {BITS} bits, got {value}")
        if not math.isfinite(value):
            raise UsageError(f"{name} must be finite, got {value}")
        bounds = self._bounds(value)
        if bounds is not None:
            is_typed = name.startswith("--")
            hint = quantity.option_with(name, self._nearest(value)) if is_typed else None
            raise UsageError(f"{name} {bounds}, got {value:g}", hint=hint)

    def _bounds(self, value: float) -> str | None:
        """Return the bounds that a value breaks, in words; None where it keeps them."""
        least, above, most = self.said.ge, self.said.gt, self.said.le
        if least is not None and most is not None and not least <= value <= most:
            return f"is a share between {least:g} and {most:g}"
        if above == 0 and most is not None and not 0 < value <= most:
            return f"is a share above 0 and at most {most:g}"
        if above == 0 and value <= 0:
            return "must be positive"
        if least is not None and value < least:
            return f"must be {f'>= {least:g}' if least else 'zero or more'}"
        return None

    def _nearest(self, value: float) -> str:
        """Return the value that was probably meant by one that is out of bounds."""
        if self.said.le is not None and abs(value) > self.said.le:
            return f"{min(abs(value), 100):g}%"  # who writes 3 for a share means 3%
        if value < 0:
            return self.text.say(-value)
        if self.said.ge is not None:
            return self.text.say(self.said.ge)
        return self.shown_default or "1"

    @property
    def is_switch(self) -> bool:
        """Whether the option takes no value."""
        return self.type is bool

    @property
    def choices(self) -> tuple[str, ...]:
        """The only values that are allowed; () if any value is."""
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def shown_default(self) -> str | None:
        """Default as people type it, with its unit; None if the option has none to show."""
        if self.default in (msgspec.NODEFAULT, None, (), {}) or self.is_switch:
            return None
        return self.text.say(self.default)


@cache
def flags(part: type[Part]) -> tuple[Flag, ...]:
    """List the options of a study, or of a part, in the order of their fields."""
    return tuple(_flags(part, ()))


@cache
def server_flags(part: type[Part]) -> tuple[Flag, ...]:
    """List the options of a kind of servers, with the places of their fields in a study."""
    return tuple(replace(flag, path=(SERVERS, *flag.path)) for flag in flags(part))


def _flags(part: type[Part], path: tuple[str, ...]) -> Iterator[Flag]:
    hints = get_type_hints(part, include_extras=True)
    for field in msgspec.structs.fields(part):
        hint = hints[field.name]
        if get_origin(hint) is not Annotated:
            if isinstance(hint, type) and issubclass(hint, Part) and field.name != SERVERS:
                yield from _flags(hint, (*path, field.name))
            continue
        of, meta = get_args(hint)[:2]
        said: FieldOption = meta.extra["option"]
        default = field.default
        if field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        yield Flag(
            path=(*path, field.name),
            option=said.name or f"--{_stem(field.name)}",
            type=_bare(of),
            default=default,
            help=meta.description,
            said=said,
            text=said.text or _text(_bare(of), said, field.name),
        )


def _stem(name: str) -> str:
    suffix = next((each for each in _SUFFIX if name.endswith(each)), "")
    return name.removesuffix(suffix).replace("_", "-")


def _bare(of: Any) -> Any:  # noqa: ANN401  # a type is
    """Return a type without None."""
    if get_origin(of) in (Union, types.UnionType):
        (found,) = (each for each in get_args(of) if each is not type(None))
        return found
    return of


def _text(of: Any, said: FieldOption, name: str) -> Text:  # noqa: ANN401  # as _bare
    unit = said.unit if said.unit is not None else _unit(name)
    if said.repeated:
        return quantity.of_number(float, unit)
    if of is int or of is float:
        return quantity.of_number(of, unit)
    if get_origin(of) is tuple:
        return quantity.WORDS
    return quantity.TEXT


def _unit(name: str) -> Unit:
    if name.endswith("_per_s"):
        return ""
    return next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), "")


_NAMED: Final = r"[a-z]\w*=\d[\w.%]*"
_OPTION: Final = re.compile(
    r"(?P<option>--[a-z][a-z-]*)"
    # A range or a list of figures is no value.
    rf"(?: (?P<value>{_NAMED}(?:,{_NAMED})*|inf|\d(?:[\w.%/]*\w)?)(?!\w| to\b|,\d))?"
)
_Written: TypeAlias = dict[str, "str | _Written"]


def in_fields(text: str, known: Mapping[str, Flag]) -> str:
    """Return what is said of the *known* options as what is written in a file of their fields.

    For example `--rate 0.5 --cv 3` is `load: {rate_per_s: 0.5, cv: 3}` there.
    """
    made: list[str] = []
    tree: _Written = {}
    end = 0
    for said in _OPTION.finditer(text):
        flag, between = known.get(said["option"]), text[end : said.start()]
        is_given = flag is not None and said["value"] is not None
        if tree and not (is_given and between == " "):
            made.append(_flow(tree))
            tree = {}
        if not tree:
            made.append(between)
        if flag is None:
            made.append(said[0])
        elif said["value"] is None:
            made.append(".".join(flag.path))
        else:
            _put(tree, flag, said["value"])
        end = said.end()
    return "".join((*made, _flow(tree), text[end:]))


def _put(tree: _Written, flag: Flag, value: str) -> None:
    """Write the value of a field at its place; what is said of kinds is a mapping."""
    *above, name = flag.path
    for each in above:
        inner = tree.setdefault(each, {})
        assert isinstance(inner, dict), flag
        tree = inner
    if flag.said.repeated and "=" in value:
        pairs = (pair.partition("=") for pair in value.split(","))
        tree[name] = {kind: figure for kind, _, figure in pairs}
    else:
        tree[name] = f'"{value}"' if above and "," in value else value


def _flow(tree: _Written) -> str:
    """Write fields on one line of YAML."""
    return ", ".join(
        f"{name}: {f'{{{_flow(each)}}}' if isinstance(each, dict) else each}"
        for name, each in tree.items()
    )
