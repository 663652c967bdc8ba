"""Between blocks servers are asked who they are: another process, dtype or replica, or somebody else's requests, void the block."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.model.rows import BlockRow
from tests.experiment.playing import answering, played
from tests.live.scripted import serving

pytestmark = pytest.mark.loopback


def metrics(*, done: int = 0, dtype: str = "fp8", start_s: int = 7) -> str:
    return (
        f'vllm:request_success_total{{finished_reason="length"}} {done}\nprocess_start_time_seconds {start_s}\n'
        f'vllm:cache_config_info{{cache_dtype="{dtype}"}} 1.0\n'
    )


def page(told: Callable[[int], str | None]) -> Callable[[str, int], str | None]:
    return lambda path, chats: told(chats) if path == "/metrics" else None


@pytest.mark.parametrize(
    ("told", "void"),
    [
        (lambda chats: metrics(done=chats), None),
        (lambda chats: metrics(done=chats + 3 * (chats > 0)), "a answered 3 requests that were not ours"),
        (lambda chats: metrics(done=chats, start_s=7 + (chats > 0)), "a changed during the block: process_start_s 7.0 → 8.0"),
        (lambda chats: metrics(done=chats, dtype="auto" if chats else "fp8"), "a changed during the block: kv_cache_dtype fp8 → auto"),
    ],
)
async def test_a_block_is_void_when_its_server_changed_or_answered_others(
    tmp_path: Path, told: Callable[[int], str | None], void: str | None
) -> None:
    async with serving(answering(pages=page(told))) as server:
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url)])
    assert next(row.void for row in rows if isinstance(row, BlockRow)) == void


async def test_a_replica_that_goes_voids_the_block(tmp_path: Path) -> None:
    def pages(path: str, chats: int) -> str | None:
        match path:
            case "/one":
                return metrics(done=chats)
            case "/two" if chats == 0:
                return metrics()
            case _:
                return None

    async with serving(answering(pages=pages)) as server:
        root = server.url.removesuffix("/v1")
        rows = await played(tmp_path, [Endpoint(name="a", url=server.url, metrics=(f"{root}/one", f"{root}/two"))])
    void = next(row.void for row in rows if isinstance(row, BlockRow))
    assert void is not None
    assert "replicas 2 → 1" in void


async def test_replicas_of_different_dtypes_behind_one_url_stop_the_run(tmp_path: Path) -> None:
    pages = {"/one": metrics(dtype="fp8"), "/two": metrics(dtype="auto")}
    async with serving(answering(pages=lambda path, _: pages.get(path))) as server:
        root = server.url.removesuffix("/v1")
        with pytest.raises(EndpointError, match="a: replicas behind one URL differ in cache_dtype: auto, fp8"):
            await played(tmp_path, [Endpoint(name="a", url=server.url, metrics=(f"{root}/one", f"{root}/two"))])
