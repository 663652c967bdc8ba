"""What an arm carries where its twin explains its trials, and where it does not."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from advisor.loads import FACTORS, TwinReplay
from advisor.statistics.carried_loads import carried_loads
from advisor.statistics.crossing import CarriedLoad, Tried

CARRIED = 20.0
SLOPE = 20.0


def expected(load: float) -> tuple[float, ...]:
    """Return the shares of turns that hold on a twin whose share falls steeply, at each factor."""
    beyond = math.log(load / CARRIED)
    return tuple(
        1 / (1 + math.exp(SLOPE * (beyond + math.log(factor)) - math.log(19))) for factor in FACTORS
    )


def trials(*, held: float, beyond: float, draws: int = 12, turns: int = 100) -> Iterator[Tried]:
    """Yield trials at what a twin carries and a fifth above, by the shares that hold there."""
    for _ in range(draws):
        for load, share in ((CARRIED, held), (1.2 * CARRIED, beyond)):
            yield Tried(
                load=load,
                turns=turns,
                within=round(turns * share),
                is_modelled=True,
                replay=TwinReplay(expected=expected(load), carried=CARRIED),
            )


def test_an_arm_that_does_as_its_twin_carries_what_the_twin_does() -> None:
    own = list(trials(held=0.95, beyond=expected(1.2 * CARRIED)[2]))
    found = carried_loads({"a": own, "b": own}, share=0.95)["a"]
    assert found.is_by_twin
    assert found.value == pytest.approx(CARRIED, rel=0.01)


def test_a_shelf_under_the_level_may_begin_right_above_the_loads_that_held() -> None:
    """The other arm's share falls steeply, which says nothing of where this one's shelf begins."""
    steep, shelf = list(trials(held=0.95, beyond=0.4)), list(trials(held=0.98, beyond=0.93))
    found = carried_loads({"steep": steep, "shelf": shelf}, share=0.95)
    assert not found["shelf"].is_by_twin
    assert found["shelf"].low == pytest.approx(CARRIED)
    assert found["shelf"].value > 1.1 * CARRIED


def test_loads_that_did_not_hold_bound_nothing_from_below() -> None:
    steep, worse = list(trials(held=0.95, beyond=0.4)), list(trials(held=0.9, beyond=0.88))
    found = carried_loads({"steep": steep, "worse": worse}, share=0.95)["worse"]
    alone = carried_loads(
        {
            "steep": [replace(each, replay=None) for each in steep],
            "worse": [replace(each, replay=None) for each in worse],
        },
        share=0.95,
    )["worse"]
    assert found == alone


def test_an_arm_carries_no_more_for_sure_than_its_twin_does_where_that_held() -> None:
    """Shorter steps, or a share that stays just below the level: trials do not say which."""
    own = list(trials(held=0.98, beyond=0.72))
    found = carried_loads({"a": own, "b": own}, share=0.95)["a"]
    assert found.is_by_twin
    assert found.low == pytest.approx(CARRIED)
    assert found.value > 1.05 * CARRIED
    slower = list(trials(held=0.9, beyond=0.4))
    worse = carried_loads({"a": slower, "b": slower}, share=0.95)["a"]
    assert worse.is_by_twin
    assert worse.low < worse.value < CARRIED


def test_a_twin_that_did_not_hold_bounds_no_interval_from_below() -> None:
    own = list(trials(held=0.949, beyond=0.5, turns=1000))
    found = carried_loads({"a": own, "b": own}, share=0.95)["a"]
    assert found.is_by_twin
    assert found.low > CARRIED


@pytest.mark.parametrize(("level", "deviations"), [(0.95, 1.0), (0.99, 1.3142)])
def test_an_error_that_all_trials_share_widens_the_interval_by_its_level(
    level: float, deviations: float
) -> None:
    def reach(error: float) -> float:
        own = [replace(each, error=error) for each in trials(held=0.95, beyond=0.4)]
        found = carried_loads({"a": own, "b": own}, share=0.95, level=level)["a"]
        assert found.high is not None
        return math.log(found.high / found.value)

    assert reach(0.05) == pytest.approx(math.hypot(reach(0.0), 0.05 * deviations), rel=1e-3)


@pytest.mark.parametrize("stretch", [-0.5, -2.0])
def test_what_step_times_change_is_what_they_change_on_the_twin(stretch: float) -> None:
    def load(stretch: float) -> CarriedLoad:
        own = [
            replace(each, replay=replace(each.replay, stretch=stretch))
            for each in trials(held=0.9, beyond=0.25)
            if each.replay is not None
        ]
        return carried_loads({"a": own, "b": own}, share=0.95)["a"]

    found, usual = load(stretch), load(-1.0)
    assert math.log(found.value / CARRIED) == pytest.approx(
        -stretch * math.log(usual.value / CARRIED)
    )
    widths = [math.log(each.value / each.low) for each in (found, usual)]
    assert widths[0] == pytest.approx(max(1.0, -stretch) * widths[1])
