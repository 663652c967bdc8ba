"""Records are values: equal by what they hold, replaced rather than changed."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from msgspec import Struct

from agentload.model.commands import Wake
from agentload.model.record import record


@record
class Pair(Struct, frozen=True, kw_only=True, gc=False):
    """Two numbers."""

    one: int
    other: int = 2


def test_a_record_is_a_value() -> None:
    assert Pair(one=1) == Pair(one=1, other=2) != Pair(one=1, other=3)
    assert len({Pair(one=1), Pair(one=1)}) == 1
    assert replace(Pair(one=1), other=3) == Pair(one=1, other=3)
    assert [each.name for each in fields(Wake)] == ["at_ns"]
    assert not hasattr(Pair(one=1), "__dict__")


def test_a_record_is_frozen() -> None:
    made = Pair(one=1)
    with pytest.raises(AttributeError, match="immutable"):
        # an ignore that nothing needs is an error: the checker complains too
        made.one = 2  # type: ignore[misc]
    assert made == Pair(one=1)
