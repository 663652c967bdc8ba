"""Which servers the arms of a study are, and which of them are shared."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from agentload.model.profile import ArmProfile
from agentload.run.arms import read_arms
from agentload.serve import processes
from agentload.serve.processes import ServerProcess, Servers
from agentload.serve.server import ServerOptions
from agentload.study.parts import Live

PROFILE = "emulated:llama-3.1-8b-h100"


def test_some_arms_of_a_profile_use_the_servers_that_run_for_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ports = count(1)

    def named(arms: Sequence[ArmProfile], options: ServerOptions) -> Servers:
        servers = (
            ServerProcess(
                arm=arm.name,
                profile=PROFILE,
                url=f"http://127.0.0.1:{next(ports)}/v1",
                model=arm.model.name,
                pid=0,
            )
            for arm in arms
        )
        return Servers(tuple(servers), ())

    monkeypatch.setattr(processes, "start", named)
    whole, some = read_arms(Live(endpoints=PROFILE)), read_arms(Live(endpoints=f"{PROFILE}/fp8"))
    with whole.up(noise=False, seed=1) as served:
        with some.up(noise=False, seed=1) as own:
            assert own == tuple(each for each in served if each.name == "fp8")
        with some.up(noise=False, seed=2) as others:
            assert not {each.url for each in others} & {each.url for each in served}
    with some.up(noise=False, seed=1) as own, whole.up(noise=False, seed=1) as served:
        assert not {each.url for each in own} & {each.url for each in served}
