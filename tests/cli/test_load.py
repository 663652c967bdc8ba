"""The load that options describe, shared by verbs."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from agentload.cli import _load, replay, simulate
from agentload.errors import UsageError
from agentload.model.plan import Arrivals, Burst, ClosedLoop, Load, OpenLoop, Recorded


@pytest.mark.parametrize(
    ("options", "arrivals"),
    [
        ({}, Recorded()),
        ({"speed": 2.0}, Recorded(speed=2.0)),
        ({"sessions": 16, "ramp": 60.0}, ClosedLoop(sessions=16, ramp_s=60.0)),
        ({"rate": 0.5, "cv": 0.0}, OpenLoop(rate_per_s=0.5, cv=0.0)),
        ({"rate": 0.5, "ramp": 120.0, "ramp_from": 0.1}, OpenLoop(rate_per_s=0.5, ramp_s=120.0, ramp_from_per_s=0.1)),
        ({"rate": 0.5, "burst": "5x10/60"}, OpenLoop(rate_per_s=0.5, burst=Burst(factor=5.0, seconds=10.0, every_s=60.0))),
    ],
)
def test_options_describe_a_shape(options: dict[str, Any], arrivals: Arrivals) -> None:
    assert _load.load(**options) == Load(arrivals=arrivals)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sessions": 2, "rate": 1.0}, "exclude each other"),
        ({"sessions": 0}, "--sessions must be >= 1"),
        ({"ramp": 5.0}, "--ramp needs a load to rise to"),
        ({"sessions": 2, "ramp_from": 1.0}, "shape an open loop"),
        ({"burst": "5x10/60"}, "shape an open loop"),
        ({"rate": 1.0, "burst": "5x10"}, "FACTORxSECONDS/EVERY"),
        ({"rate": 1.0, "burst": "5x90/60"}, "fewer seconds than every"),
        ({"rate": 1.0, "burst": "0x1/2"}, "FACTORxSECONDS/EVERY"),
        ({"rate": 1.0, "burst": "1.2.3x1/2"}, "FACTORxSECONDS/EVERY"),
        ({"rate": 1.0, "ramp": -1.0}, "must not be negative"),
        ({"duration": 0.0}, "--duration must be positive"),
    ],
)
def test_what_makes_no_sense_is_said(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        _load.load(**options)


def test_a_verb_has_the_options_of_a_load_in_its_place_and_gets_the_load() -> None:
    given: list[tuple[str, Load, int]] = []

    @_load.with_load
    def verb(name: str, *, load: Load, pairs: int = 6) -> None:
        given.append((name, load, pairs))

    names = list(signature(verb).parameters)
    shared = list(signature(_load.load).parameters)
    assert names == ["name", *shared, "pairs"]
    verb("x", sessions=3)
    assert given == [("x", Load(arrivals=ClosedLoop(sessions=3)), 6)]
    for each in (replay, simulate):
        assert set(shared) < set(signature(each.run).parameters)


def test_machines_are_named_with_how_slow_they_are() -> None:
    assert _load.machines("m1,m2=1.08") == {"m1": 1.0, "m2": 1.08}
    for text in ("m1=fast", "=1", "m1=0"):
        with pytest.raises(UsageError, match="NAME=FACTOR"):
            _load.machines(text)
