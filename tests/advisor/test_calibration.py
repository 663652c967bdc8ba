"""A reduced run of the report card; `python -m tests.advisor.calibration` makes the whole one."""

from __future__ import annotations

import pytest

from advisor.verdict import Word
from tests.advisor import calibration


def test_the_advisor_keeps_its_promises_on_deployments_whose_truth_is_known() -> None:
    rows = {row.name: row for row in calibration.table(calibration.simulate(100, seed=1))}
    assert {name: row.rate for name, row in rows.items() if name.startswith("wrong") and row.rate > 0.03} == {}
    least = {name: row.rate for name, row in rows.items() if row.goal.startswith(">=")}
    assert {name: rate for name, rate in least.items() if rate < (0.65 if "bounded" in name else 0.75)} == {}
    assert 0.88 <= rows["break-even set covers the truth"].rate <= 1.0
    assert rows["needed pairs, median ratio"].met


def test_a_share_is_held_against_the_bound_on_the_side_that_matters() -> None:
    few = calibration._share("wrong", [False] * 20, "<= 5 %", most=0.05)
    many = calibration._share("wrong", [False] * 200, "<= 5 %", most=0.05)
    assert (few.met, many.met) == (False, True)  # no error in 20 does not show 5 %
    assert calibration._share("right", [True] * 9 + [False], ">= 80 %", least=0.8).met


@pytest.mark.parametrize(
    ("verdict", "change", "loss", "wrong"),
    [
        ("use", -0.06, 0.0, False),
        ("use", -0.02, 0.0, True),
        ("use", -0.06, -0.06, True),
        ("avoid", 0.06, 0.0, False),
        ("avoid", 0.0, -0.06, False),
        ("avoid", 0.0, 0.0, True),
        ("test further", 0.06, 0.0, False),
    ],
)
def test_a_verdict_is_wrong_when_the_truth_lies_on_the_other_side_of_the_margin(
    verdict: Word,
    change: float,
    loss: float,
    wrong: bool,  # noqa: FBT001  # a column of the table
) -> None:
    assert calibration.Graded(verdict=verdict, change=change, loss=loss).wrong == wrong
