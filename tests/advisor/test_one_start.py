"""The level of a look at servers that run errs over all looks as
it promises; `tests.advisor.one_start` derives it with more draws.
"""

from __future__ import annotations

import numpy as np
import pytest

from advisor.statistics.planning import planned_level
from tests.advisor.one_start import drawn, ps


@pytest.mark.slow
@pytest.mark.parametrize("starts", [1, 2, 4, 8])
def test_looks_at_a_few_starts_err_little_more_often_than_one_of_them(starts: int) -> None:
    rng, level = np.random.default_rng(2), planned_level(0.05, starts=starts)
    wrong = sum(
        ps(drawn(rng, 0.02, starts=starts), starts=starts).min() <= level for _ in range(150)
    )
    assert wrong <= 11  # 2.5% of one hundred and fifty, and four standard errors
