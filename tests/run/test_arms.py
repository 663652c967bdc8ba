"""Which servers the arms of a study are, and which of them are shared."""

from __future__ import annotations

import pytest

from agentload.run.arms import read_arms
from agentload.study.parts import Live

PROFILE = "emulated:llama-3.1-8b-h100"


@pytest.mark.loopback
def test_some_arms_of_a_profile_use_the_servers_that_run_for_all_of_them() -> None:
    whole, some = read_arms(Live(endpoints=PROFILE)), read_arms(Live(endpoints=f"{PROFILE}/fp8"))
    with whole.up(noise=False, seed=1) as served:
        with some.up(noise=False, seed=1) as own:
            assert own == tuple(each for each in served if each.name == "fp8")
        with some.up(noise=False, seed=2) as others:
            assert not {each.url for each in others} & {each.url for each in served}
    with some.up(noise=False, seed=1) as own, whole.up(noise=False, seed=1) as served:
        assert not {each.url for each in own} & {each.url for each in served}
