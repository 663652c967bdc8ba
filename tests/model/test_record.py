"""Records are values: equal by what they hold, replaced rather than changed."""

from __future__ import annotations

from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from functools import cached_property
from pprint import pformat

import pytest
from msgspec import field

from agentload.model.record import Record


class Pair(Record):
    """Two numbers."""

    one: int
    other: int = 2


class Named(Pair, dict=True):
    """Two numbers and what they are called."""

    names: list[str] = field(default_factory=list)

    @cached_property
    def title(self) -> str:
        return ", ".join(self.names)


class Point(Record, kw_only=False, eq=False):
    """A place, which is no other's."""

    across: int
    down: int = 0


def test_a_record_is_a_value() -> None:
    assert Pair(one=1) == Pair(one=1, other=2) != Pair(one=1, other=3)
    assert len({Pair(one=1), Pair(one=1)}) == 1
    assert not hasattr(Pair(one=1), "__dict__")


def test_a_record_is_printed_as_it_says_where_it_is_too_long_for_a_line() -> None:
    assert pformat(Pair(one=1), width=9) == "Pair(one=1, other=2)"


def test_a_record_is_frozen() -> None:
    made = Pair(one=1)
    with pytest.raises(AttributeError, match="immutable"):
        # an ignore that nothing needs is an error: the checker complains too
        made.one = 2  # type: ignore[misc]
    assert made == Pair(one=1)


def test_a_record_takes_its_fields_by_name_unless_it_says_otherwise() -> None:
    with pytest.raises(TypeError, match="positional"):
        Pair(1, 2)  # type: ignore[call-arg]
    here = Point(1, 2)
    assert (here.across, here.down) == (1, 2)
    assert here != Point(1, 2)


def test_a_record_is_read_and_replaced_as_a_dataclass_is() -> None:
    made = Named(one=1, names=["a", "b"])
    assert is_dataclass(made)
    assert asdict(made) == {"one": 1, "other": 2, "names": ["a", "b"]}
    assert replace(Pair(one=1), other=3) == Pair(one=1, other=3)
    assert replace(made, other=3).title == made.title == "a, b"
    # a kind that has been asked says nothing of those made from it
    assert [each.name for each in fields(Pair)] == ["one", "other"]
    described = {each.name: (each.type, each.default) for each in fields(Named)}
    assert described == {"one": (int, MISSING), "other": (int, 2), "names": (list[str], MISSING)}
    assert fields(Named)[2].default_factory is list
