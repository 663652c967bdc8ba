"""What follows from a history alone."""

from __future__ import annotations

from dataclasses import replace

from agentload.watch.history import Execution, floors, with_floors
from tests.watch.histories import execution


def night(day: int, *, floor: float | None, reference: str = "r0") -> Execution:
    made = execution(day, change=0.01)
    return replace(
        made,
        detail=replace(
            made.detail,
            reference=reference,
            changes=(replace(made.detail.changes[0], floor=floor),),
        ),
    )


def test_the_latest_floor_beside_a_reference_is_that_of_later_runs() -> None:
    past = (
        night(1, floor=0.01),
        night(2, floor=0.02),
        night(3, floor=None),
        night(4, floor=0.5, reference="other"),
    )
    void = replace(night(5, floor=0.9), outcome="void")
    assert floors((*past, void), "r0") == {"prod: turn_ms": 0.02}
    assert floors(past[2:], "r0") == {}


def test_a_floor_of_its_own_goes_before_one_that_is_known() -> None:
    own, none = night(1, floor=0.01).detail.changes[0], night(1, floor=None).detail.changes[0]
    known = {"prod: turn_ms": 0.02}
    assert [each.floor for each in with_floors((own, none, replace(none, arm="other")), known)] == [
        0.01,
        0.02,
        None,
    ]
