from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from agentload.endpoints.agreement import agreement
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify, identify_all
from agentload.endpoints.pages import silence
from agentload.errors import EndpointError
from agentload.exposition.scrape import of_replicas, parse
from agentload.telemetry.log_lines import start_up
from tests.live.scripted import Peer, serving
from tests.run.playing import answering

RECORDED: Final = Path(__file__).parent.parent / "serve" / "recorded"
OLD: Final = """vllm:cache_config_info{block_size="16",cache_dtype="auto",calculate_kv_scales="False",cpu_offload_gb="0",\
enable_prefix_caching="True",gpu_memory_utilization="0.9",is_attention_free="False",num_cpu_blocks="2048",num_gpu_blocks="27174",num_gpu_blocks_override="None",\
sliding_window="None",swap_space="4"} 1.0
"""
PAGES = {
    "/gpus": 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 70\nDCGM_FI_DEV_POWER_USAGE{gpu="1"} 70\n',
    "/login": "<html><body>log in</body></html>",
    "/other": "vllm:num_requests_running 0\n",
}


def identity(*pages: str) -> Identity:
    found = of_replicas([parse(page) for page in pages])
    return Identity(
        models=("m",), cache_config=found.cache_config, engines=found.engines, counters=found.values
    )


def told(found: Identity, *names: str) -> tuple[object, ...]:
    return tuple(found.facts()[name] for name in names)


RECORDINGS: Final = (
    ("cache_config_e-auto", ("auto", "[]", "True", 128, "524288", "4096", "64.0", 1)),
    ("cache_config_e-bf16", ("bfloat16", "[]", "True", 128, "524288", "4096", "64.0", 1)),
    # A skipping server's blocks hold twice the tokens of those it was started with.
    (
        "cache_config_g3-fp8skip",
        ("fp8", "['sliding_window']", "True", 256, "979691", "16384", "119.5912408759124", 1),
    ),
    (
        "cache_config_goss-fp8skip",
        ("fp8", "['sliding_window']", "True", 256, "1342177", "8192", "163.84", 1),
    ),
)


@pytest.mark.parametrize(("page", "facts"), RECORDINGS)
def test_a_recorded_configuration_is_read(page: str, facts: tuple[object, ...]) -> None:
    found = identity((RECORDED / f"{page}.txt").read_text())
    dtype, skipped, prefix_caching, block, *pool = facts
    assert told(found, "kv_cache_dtype", "skip_layers", "prefix_caching") == (
        dtype,
        skipped,
        prefix_caching,
    )
    assert told(found, "pool_tokens", "pool_blocks", "max_concurrency", "engines") == tuple(pool)
    assert found.cache_block == block


def test_an_older_server_counts_its_pool_in_blocks() -> None:
    facts = (
        "kv_cache_dtype",
        "skip_layers",
        "prefix_caching",
        "block_size",
        "pool_tokens",
        "pool_blocks",
        "max_concurrency",
    )
    assert told(identity(OLD), *facts) == ("auto", None, "True", "16", None, "27174", None)


def test_the_pool_is_that_of_all_engines_of_all_replicas() -> None:
    page = (RECORDED / "cache_config_e-auto.txt").read_text()
    two = page + page.replace('engine="0"', 'engine="1"')
    assert told(identity(two), "pool_tokens", "max_concurrency", "engines", "replicas") == (
        "1048576",
        "128.0",
        2,
        1,
    )
    assert told(identity(two, page), "pool_tokens", "max_concurrency", "engines") == (
        "1572864",
        "192.0",
        3,
    )


def test_a_log_and_sglangs_metrics_stand_in_for_the_pool() -> None:
    line = "(EngineCore pid=7) INFO [kv_cache_utils.py:2327] GPU KV cache size: 4,096 tokens"
    assert told(Identity(models=("m",), log=start_up([line])), "pool_tokens") == (4096,)
    assert told(identity('sglang:max_total_num_tokens{tp_rank="0"} 8192\n'), "pool_tokens") == (
        8192.0,
    )


@pytest.mark.parametrize(
    ("said", "tokens"), [({"block_size": "128"}, 128), ({"block_size": "None"}, None), ({}, None)]
)
def test_a_cache_block_has_the_tokens_that_the_server_says(
    said: dict[str, str], tokens: int | None
) -> None:
    assert Identity(models=("m",), cache_config=said).cache_block == tokens


@pytest.mark.loopback
async def test_why_an_exporter_says_nothing_of_the_arms_gpus() -> None:
    async with serving(
        answering(pages=lambda path, _: PAGES.get(path.partition("?")[0]))
    ) as server:
        host = server.url.removesuffix("/v1")

        async def said(path: str, *own: str) -> str | None:
            why = await silence(
                Endpoint(name="a", url=server.url, gpu_metrics=f"{host}{path}", gpu_ids=own)
            )
            return None if why is None else why.removeprefix(host)

        found = [
            await said("/gpus"),
            await said("/gpus", "1"),
            await said("/gpus", "7"),
            await said("/login?token=secret"),
        ]
        assert found == [
            None,
            None,
            "/gpus names GPU 0, 1, and gpu_ids says 7",
            "/login?*** is no metrics text",
        ]
        assert (await said("/other"), await said("/nowhere")) == (
            "/other names no GPU",
            "/nowhere answers 404",
        )
        assert await silence(Endpoint(name="a", url=server.url)) is None
        closed = Endpoint(name="a", url=server.url, gpu_metrics="http://127.0.0.1:9/metrics")
        met = await identify(closed)
    assert met.gpus_unseen == "http://127.0.0.1:9/metrics ClientConnectorError"
    caveat = f"a: {met.gpus_unseen}: what its GPUs draw, and whether they are slowed, is not seen"
    assert caveat in agreement([closed], {"a": met}).unseen
    assert caveat not in agreement([closed], {"a": Identity(models=("m",))}).unseen


async def test_a_server_that_does_not_answer_is_named_once_with_its_control(
    unused_tcp_port: int,
) -> None:
    arms = tuple(
        Endpoint(name=name, url=f"http://127.0.0.1:{unused_tcp_port}/v1") for name in ("a", "a@aa")
    )
    with pytest.raises(EndpointError) as caught:
        await identify_all(arms)
    assert caught.value.message == (
        f"a: cannot reach http://127.0.0.1:{unused_tcp_port}/v1/models: Connection refused"
    )


async def test_every_endpoint_that_does_not_answer_is_named(
    unused_tcp_port_factory: Callable[[], int],
) -> None:
    ports = [unused_tcp_port_factory() for _ in range(2)]
    arms = tuple(Endpoint(name=f"arm{port}", url=f"http://127.0.0.1:{port}/v1") for port in ports)
    with pytest.raises(EndpointError) as caught:
        await identify_all(arms)
    assert caught.value.message.count("Connection refused") == 2
    assert all(f"arm{port}: cannot reach" in caught.value.message for port in ports)
    assert caught.value.hint is not None
    assert caught.value.hint.count("/v1/models") == 2


@pytest.mark.loopback
@pytest.mark.parametrize(
    ("said", "known"), [(8192, 8192), (0, None), (-5, None), (True, None), ("8192", None)]
)
async def test_a_context_limit_that_no_model_can_have_is_unknown(
    said: object, known: int | None
) -> None:
    listing = json.dumps({"data": [{"id": "m", "max_model_len": said}]})

    async def lists(peer: Peer) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(listing)}\r\n\r\n"
        await peer.send(head.encode() + listing.encode())

    async with serving(lists) as server:
        found = await identify(Endpoint(name="a", url=server.url))
    assert found.max_model_len == known
