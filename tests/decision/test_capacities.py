"""What a decision's trials say of two capacities, where the truth
is known; `tests.decision.capacities` draws more of them.
"""

from __future__ import annotations

import pytest

from tests.decision.capacities import FORMS, OF_POPULATION, graded


def test_three_draws_show_a_quarter_more_agents_in_some_deployments() -> None:
    found = [graded(1.25, OF_POPULATION, seed, draws=3) for seed in range(12)]
    assert sum(each.state == "yes" for each in found) >= 3


@pytest.mark.slow
def test_twelve_draws_show_a_quarter_more_agents_more_often_than_not() -> None:
    found = [graded(1.25, OF_POPULATION, seed, draws=12) for seed in range(12)]
    assert sum(each.state == "yes" for each in found) >= 7
    assert not any(each.is_wrong for each in found)
    assert sum(each.covers for each in found) >= 10


@pytest.mark.parametrize("form", FORMS)
def test_curves_of_another_form_show_nothing_that_is_wrong(form: str) -> None:
    found = [graded(1.0, form, seed, draws=6) for seed in range(6)]
    assert not any(each.is_wrong for each in found)
