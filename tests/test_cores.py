"""Pure functions on other cores return what they return here."""

from __future__ import annotations

from concurrent.futures import as_completed

import pytest

from tests.cores import cores
from tests.remote.fleet import simulated


@pytest.mark.slow
def test_simulations_on_other_cores_are_equal_to_those_here_and_come_in_their_order() -> None:
    with cores(processes=2) as pool:
        assert list(pool.map(simulated, range(3))) == [simulated(seed) for seed in range(3)]


def test_what_a_function_raises_comes_back() -> None:
    with cores(processes=1) as pool:
        (failed,) = as_completed([pool.submit(int, "x")])
        with pytest.raises(ValueError, match="invalid literal"):
            failed.result()
