from itertools import islice
from random import Random

import numpy as np
import pytest

from agentload.workloads.parts.times import DAY_S, starts


@pytest.mark.parametrize("cv", [0.0, 0.5, 1.0, 4.0])
def test_gaps_have_the_rate_and_the_spread_asked_for(cv: float) -> None:
    at = list(islice(starts(Random(7), rate_per_s=2.0, cv=cv), 20_000))
    gaps = np.diff(at)
    assert at == sorted(at)
    assert gaps.mean() == pytest.approx(0.5, rel=0.08)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1, abs=0.01)


@pytest.mark.slow
def test_a_day_peaks_as_much_as_asked_and_starts_at_its_quietest() -> None:
    at = np.array(
        list(islice(starts(Random(7), rate_per_s=1.0, cv=0.0, peak=3.5), round(3 * DAY_S)))
    )
    hours = np.histogram(at % DAY_S, bins=24, range=(0, DAY_S))[0] / 3 / 3600
    assert hours.max() == pytest.approx(3.5, rel=0.06)
    assert hours.mean() == pytest.approx(1.0, rel=0.01)
    assert hours.argmax() in {11, 12}
    assert hours[0] < 0.1
