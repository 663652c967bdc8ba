"""What stands between us and a server is noticed while a trace is played."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EvidenceError
from agentload.model.rows import BlockRow, CallRow
from agentload.store import journal
from agentload.store.places import journals
from tests.live.scripted import serving
from tests.run.playing import answering, played

pytestmark = pytest.mark.loopback


async def test_a_gateways_response_cache_voids_every_play_of_the_block_by_name(
    tmp_path: Path,
) -> None:
    async with serving(answering("x-litellm-cache-key: 5f3a", "x-served-by: pod-7")) as server:
        rows = await played(
            tmp_path, [Endpoint(name="a", url=server.url, replica_headers=("X-Served-By",))]
        )
    calls = [row for row in rows if isinstance(row, CallRow)]
    assert {(row.status, row.gateway) for row in calls} == {
        ("ok", "response cache (x-litellm-cache-key)")
    }
    assert {row.replica for row in calls} == {f"127.0.0.1:{server.port}; x-served-by=pod-7"}
    voids = [row.void for row in rows if isinstance(row, BlockRow)]
    assert len(voids) == 3  # the first play, and two more
    assert all(
        void is not None
        and "a gateway answered 2 calls in the server's place: response cache" in void
        for void in voids
    )


async def test_a_gateway_that_only_passes_calls_on_voids_nothing(tmp_path: Path) -> None:
    headers = (
        "x-litellm-attempted-retries: 0",
        "x-litellm-attempted-fallbacks: 0",
        "x-litellm-model-id: 3",
    )
    async with serving(answering(*headers)) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)])
    assert [row.void for row in rows if isinstance(row, BlockRow)] == [None]


async def test_three_pairs_in_a_row_that_are_invalid_for_one_reason_end_the_run(
    tmp_path: Path,
) -> None:
    async with serving(answering("x-litellm-cache-key: 5f3a")) as server:
        with pytest.raises(
            EvidenceError,
            match=r"^3 pairs in a row were invalid, for one reason: a: a gateway answered 2 calls",
        ) as error:
            await played(tmp_path, [Endpoint(name="a", url=server.url)], sessions=24, pairs=12)
    assert error.value.hint is not None
    assert error.value.hint.startswith("fix that, then: agentload replay")
    voids = [
        row.void
        for path in journals(tmp_path / "x.duckdb", "r1")
        for row in journal.read(path)
        if isinstance(row, BlockRow)
    ]
    assert len(voids) == 3
