"""The level of a look at one start errs over all looks as it promises; `tests.advisor.one_start` derives it with more draws."""

from __future__ import annotations

import numpy as np

from advisor.statistics.planning import ONE_START_LEVEL
from tests.advisor.one_start import drawn, least_p


def test_looks_at_one_start_err_little_more_often_than_one_of_them() -> None:
    rng = np.random.default_rng(2)
    wrong = sum(least_p(drawn(rng, 0.02)) <= ONE_START_LEVEL for _ in range(300))
    assert wrong <= 15  # 2.35 % of 4,300; four standard errors of three hundred above it
