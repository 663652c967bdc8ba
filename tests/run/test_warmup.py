"""Caches and clocks are cold again when a run goes
on: every leg that plays anything warms up before it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.model.rows import BlockRow
from tests.live.scripted import serving
from tests.run.playing import answering, played

pytestmark = pytest.mark.loopback


async def test_a_run_that_is_given_more_pairs_warms_up_again_under_a_salt_of_its_own(
    tmp_path: Path,
) -> None:
    async with serving(answering()) as server:
        for pairs in (1, 2, 2):  # the third finds nothing left, and warms up for nothing
            rows = await played(
                tmp_path,
                [Endpoint(name="a", url=server.url)],
                pairs=pairs,
                warmup=True,
                is_resumed=pairs > 1,
            )
    blocks = [(row.leg, row.pair, row.salt) for row in rows if isinstance(row, BlockRow)]
    assert blocks == [(1, -1, "r1/-1"), (1, 0, "r1/0"), (2, -1, "r1/-1~2.0"), (2, 1, "r1/1~2.0")]
