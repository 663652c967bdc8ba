"""More servers of each arm settle more, and none of it
wrongly; `python -m tests.decision.starts` has the table.
"""

from __future__ import annotations

import pytest

from tests.decision.starts import decided


@pytest.mark.slow
@pytest.mark.parametrize(
    ("starts", "gain", "least"), [(1, 3.0, 6), (1, 4.0, 10), (2, 3.0, 7), (2, 0.0, 5), (4, 0.0, 7)]
)
def test_replicas_settle_what_one_start_leaves_open(starts: int, gain: float, least: int) -> None:
    rows = [decided(number, starts, gain) for number in range(12)]
    assert sum(each.is_decided for each in rows) >= least
    assert not any(each.is_wrong for each in rows)
