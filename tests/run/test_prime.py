from __future__ import annotations

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import identify
from agentload.run.relay import PRIMED, prime, primed
from tests.serve.arms import arm
from tests.serve.serving import served

pytestmark = pytest.mark.loopback


async def test_a_server_that_has_just_started_has_answered_before_it_is_measured() -> None:
    async with served(arm()) as running:
        endpoint = Endpoint(name="a", url=running.url)
        await prime(endpoint)
        assert (await identify(endpoint)).counters["requests_done"] == len(PRIMED)


def test_what_cannot_be_asked_is_said_and_stops_nobody() -> None:
    said: list[str] = []
    primed([Endpoint(name="a", url="http://127.0.0.1:9/v1")], notice=said.append)
    assert [line.partition(": ")[0] for line in said] == ["a"]
