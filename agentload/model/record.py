"""Define records: values of named fields that are compared by what they hold and never change.

A record is a struct of msgspec: its class is made in a twentieth of the time of a dataclass,
whose methods Python writes as source text and compiles, and a value of it in a third.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field, dataclass, field, fields, make_dataclass
from typing import Any, Final, cast, dataclass_transform

import msgspec
from msgspec import NODEFAULT, Struct, StructMeta, structs

_DESCRIBED: Final = "_described"


class _KeywordsOnly(StructMeta):
    """Let a class take its fields by name alone, unless it says otherwise."""

    def __new__(cls, *parts: Any, kw_only: bool = True, **options: Any) -> StructMeta:
        return super().__new__(cls, *parts, kw_only=kw_only, **options)


@dataclass(frozen=True, repr=False)
class _Frozen:
    """What `pprint` reads of a dataclass that writes its own `repr`."""


class _DataclassFields:
    """Answer `dataclasses.fields`, `replace` and `asdict` for a record."""

    def __get__(self, record: Struct | None, cls: type[Struct]) -> dict[str, Field[Any]]:
        # Each class keeps its own: a cache here would keep every class until after the modules
        # that it speaks of are gone, and DuckDB's would be reported as leaked.
        if _DESCRIBED not in vars(cls):
            setattr(cls, _DESCRIBED, _dataclass_fields(cls))
        found: dict[str, Field[Any]] = vars(cls)[_DESCRIBED]
        return found


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Record(Struct, frozen=True, metaclass=_KeywordsOnly):
    """Base of every record, such as `class Pair(Record):` with its fields below.

    Options of a struct may follow: `eq=False` where values are told apart by identity,
    `dict=True` for cached properties, `gc=False` for those made by the million.
    """

    __dataclass_fields__ = _DataclassFields()
    __dataclass_params__ = vars(_Frozen)["__dataclass_params__"]


def _dataclass_fields(cls: type[Struct]) -> dict[str, Field[Any]]:
    """Describe the fields as those of a dataclass."""
    described = [(each.name, each.type, _dataclass_field(each)) for each in structs.fields(cls)]
    made = make_dataclass(cls.__name__, described, init=False, repr=False, eq=False)
    return {each.name: each for each in fields(made)}


def _dataclass_field(each: structs.FieldInfo) -> Field[Any]:
    if each.default_factory is not NODEFAULT:
        made = field(default_factory=each.default_factory, kw_only=True)
    elif each.default is not NODEFAULT:
        made = field(default=each.default, kw_only=True)
    else:
        made = field(kw_only=True)
    return cast("Field[Any]", made)


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Pause the collector of cycles, for work on very many records that form none."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
