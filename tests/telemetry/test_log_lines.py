"""Lines as vLLM 0.32.0 wrote them on a CPU, and as 0.33.0 has them in its code for GPUs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from agentload.telemetry.log_lines import LogTail, PeriodicLine, StartUp, start_up, work
from agentload.telemetry.watch import TelemetrySource, TelemetryWatch

CPU = """\
(APIServer pid=1) INFO 11-20 12:40:33 [api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0
INFO 11-20 12:40:34 [cache.py:361] Using fp8 data type to store kv cache. It reduces the GPU memory footprint and boosts \
the performance. Meanwhile, it may cause accuracy drop without a proper scaling factor
(Worker pid=2) INFO 11-20 12:42:18 [unquantized.py:364] Using CPU Unquantized MoE backend out of potential backends: ['CPU'].
INFO 11-20 12:40:47 [kv_cache_utils.py:2327] CPU KV cache size: 979,691 tokens, Maximum concurrency for 8,192 tokens \
per request: 119.59x
"""
GPU = """\
INFO 1-2 3:04 [gpu_worker.py:1] Available KV cache memory: 53.21 GiB
INFO 1-2 3:04 [cuda.py:1] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN', 'FLASHINFER']
INFO 1-2 3:04 [flash_attn.py:1] Using FlashAttention version 3
WARNING 01-02 03:04:05 [attention.py:1] Using KV cache scaling factor 1.0 for fp8_e4m3. Verify the scales.
WARNING 01-02 03:04:05 [attention.py:1] Using KV cache scaling factor 1.0 for fp8_e4m3. Verify the scales.
INFO 1-2 3:04 [config.py:1] Setting attention block size to 1056 tokens to ensure that attention page size is >= mamba page size.
INFO 1-2 3:04 [config.py:1] Padding mamba page size by 0.76% to ensure that mamba and attention page sizes are exactly equal.
INFO 1-2 3:04 [kv_cache_utils.py:1] GPU KV cache size: 434,784 tokens
INFO 1-2 3:04 [kv_cache_utils.py:1] Maximum concurrency for 131,072 tokens per request: 3.32x
"""
PERIODIC = """\
INFO 11-21 08:34:45 [loggers.py:335] Engine 000: Avg prompt throughput: 1745.6 tokens/s, Avg generation throughput: 82.4 \
tokens/s, Running: 3 reqs, Waiting: 1 reqs, CPU KV cache usage: 12.5%, Prefix cache hit rate: 26.0%
INFO 1-2 3:04 [loggers.py:1] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 9.1 tokens/s, Running: 16 reqs, \
Waiting: 0 reqs, Preemptions: 15, GPU KV cache usage: 99.0%
INFO 1-2 3:04 [loggers.py:1] Engine 001: Avg prompt throughput: 5.0 tokens/s, Avg generation throughput: 9.1 tokens/s, Running: 9 reqs, \
Waiting: 5 reqs, Deferred: 2 reqs, KV fetch: 0 waiting to start, 1 in progress, 0 completed waiting, Preemptions: 4, \
GPU KV cache usage: 99.0%, Prefix cache hit rate: 3.0%, External prefix cache hit rate: 50.0%
"""
LINE = (
    "(APIServer pid=7) INFO 11-20 13:46:20 [loggers.py:273] Engine 000: Avg prompt "
    "throughput: 20.5 tokens/s, "
    "Avg generation throughput: 92.0 tokens/s, Running: 3 reqs, Waiting: 5 reqs, "
    "{preempted}GPU KV cache usage: 91.5%, "
    "Prefix cache hit rate: 40.0%\n"
)
BUSY = LINE.format(preempted="Preemptions: 2, ")
SEEN = {
    "running": 3.0,
    "waiting": 5.0,
    "kv_usage": 0.915,
    "prefix_hit_rate": 0.4,
    "prompt_tokens_per_s": 20.5,
    "output_tokens_per_s": 92.0,
}


def test_what_a_server_decided_is_read_from_its_start() -> None:
    warning = (
        "Using fp8 data type to store kv cache. It reduces the GPU memory footprint and boosts "
        "the performance. Meanwhile, it may cause "
    )
    assert start_up(CPU.splitlines()) == StartUp(
        version="0.32.0",
        pool_tokens=979_691,
        max_concurrency=119.59,
        kv_cache_dtype="fp8",
        warnings=(warning + "accuracy drop without a proper scaling factor",),
    )


def test_what_the_engine_was_started_with_is_read_from_its_config() -> None:
    line = (
        "(EngineCore pid=21136) INFO 11-20 12:40:40 [core.py:133] Initializing a V1 LLM "
        "engine (v0.32.0) with config: "
        "model='models/tiny', speculative_config=None, dtype=torch.bfloat16, "
        "max_seq_len=8192, tensor_parallel_size=2, "
        "data_parallel_size=1, quantization=None, quantization_config=None, "
        "enforce_eager=True, kv_cache_dtype=auto, "
        "enable_prefix_caching=False"
    )
    assert start_up([line]).settings == {
        "weights": "models/tiny",
        "tensor_parallel": "2",
        "data_parallel": "1",
        "eager": "True",
        "kv_cache_dtype": "auto",
        "prefix_caching": "False",
    }


@pytest.mark.parametrize(
    ("drafting", "settings"),
    [
        ("method='ngram', model=None, num_spec_tokens=4", {"speculative": "ngram", "drafts": "4"}),
        (
            "method='eagle', model='models/drafter', num_spec_tokens=2",
            {"speculative": "eagle", "drafts": "2", "draft_model": "models/drafter"},
        ),
    ],
)
def test_what_drafts_is_read_from_the_config_and_is_no_other_weights(
    drafting: str, settings: dict[str, str]
) -> None:
    line = (
        "INFO 11-20 12:40:40 [core.py:133] Initializing a V1 LLM engine (v0.32.0) with config: "
        f"model='models/tiny', speculative_config=SpeculativeConfig({drafting}), "
        "tokenizer='models/tiny', tensor_parallel_size=1"
    )
    assert start_up([line]).settings == {
        "weights": "models/tiny",
        "tensor_parallel": "1",
        **settings,
    }


def test_older_lines_and_kernels_are_read_and_a_repeated_warning_is_kept_once() -> None:
    assert start_up(GPU.splitlines()) == StartUp(
        pool_tokens=434_784,
        max_concurrency=3.32,
        attention_backend="FLASH_ATTN",
        flash_version=3,
        block_tokens=1056,
        warnings=("Using KV cache scaling factor 1.0 for fp8_e4m3. Verify the scales.",),
    )


FORCED = (
    # CUDA prints the member of an enum, CPU its name;
    # other choices of kernels are none of the attention's.
    (
        "INFO 11-20 12:40:34 [cuda.py:446] Using AttentionBackendEnum.FLASHINFER backend.",
        "FLASHINFER",
    ),
    ("INFO 11-20 12:40:34 [cpu.py:175] Using CPU_MLA backend.", "CPU_MLA"),
    (
        "INFO 11-20 12:40:34 [selector.py:106] Using TRTLLM_RAGGED MLA prefill backend.",
        "FLASH_ATTN",
    ),
    (
        "INFO 11-20 12:40:34 [unquantized.py:245] Using TRITON Unquantized MoE LoRA backend",
        "FLASH_ATTN",
    ),
)


@pytest.mark.parametrize(("line", "backend"), FORCED)
def test_a_forced_backend_wins_over_an_earlier_start(line: str, backend: str) -> None:
    assert (
        start_up(
            ["Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].", line]
        ).attention_backend
        == backend
    )


def test_the_pools_of_a_servers_engines_are_one_and_a_later_start_has_its_own() -> None:
    two = [
        "(APIServer pid=1) INFO 11-20 12:40:33 [api_utils.py:347]   version 0.32.0",
        *(
            f"(EngineCore_DP{rank} pid={7 + rank}) INFO 11-20 12:40:47 "
            f"[kv_cache_utils.py:2327] GPU KV cache size: {tokens} tokens, "
            "Maximum concurrency for 8,192 tokens per request: 12.50x"
            for rank, tokens in enumerate(("102,400", "102,000"))
        ),
    ]
    assert [
        (found.pool_tokens, found.max_concurrency)
        for found in (start_up(two), start_up([*two, *two[:2]]))
    ] == [(204_400, 25.0), (102_400, 12.5)]


def test_periodic_lines_say_how_busy_the_server_was() -> None:
    assert tuple(work(PERIODIC.splitlines())) == (
        PeriodicLine(
            engine="000",
            prompt_tokens_per_s=1745.6,
            output_tokens_per_s=82.4,
            running=3,
            waiting=1,
            kv_usage=0.125,
            prefix_hit_rate=0.26,
        ),
        PeriodicLine(
            engine="000",
            prompt_tokens_per_s=0.0,
            output_tokens_per_s=9.1,
            running=16,
            waiting=0,
            kv_usage=0.99,
            preemptions=15,
        ),
        PeriodicLine(
            engine="001",
            prompt_tokens_per_s=5.0,
            output_tokens_per_s=9.1,
            running=9,
            waiting=5,
            kv_usage=0.99,
            preemptions=4,
            prefix_hit_rate=0.03,
        ),
    )


def test_only_what_was_written_since_the_last_look_is_told_and_preemptions_add_up(
    tmp_path: Path,
) -> None:
    log = tmp_path / "x.log"
    log.write_text(BUSY)  # before the run
    tail = LogTail(str(log))
    assert list(tail.values()) == []
    with log.open("a") as file:
        file.write(BUSY + "INFO something else\n")
    assert dict(tail.values()) == SEEN | {"preemptions": 2.0}
    with log.open("a") as file:
        file.write(BUSY[:40])  # half a line
    assert list(tail.values()) == []
    with log.open("a") as file:
        file.write(BUSY[40:] + LINE.format(preempted=""))
    assert dict(tail.values()) == SEEN | {"preemptions": 4.0}


def test_a_log_that_was_begun_anew_is_read_from_its_start_and_one_that_is_gone_tells_nothing(
    tmp_path: Path,
) -> None:
    log = tmp_path / "x.log"
    log.write_text(BUSY * 3)
    tail = LogTail(str(log))
    log.write_text(BUSY)
    assert dict(tail.values()) == SEEN | {"preemptions": 2.0}
    log.unlink()
    assert list(tail.values()) == []


def test_engines_that_write_lines_of_their_own_are_one_server(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.touch()
    tail = LogTail(str(log))
    second = (
        BUSY.replace("Engine 000", "Engine 001")
        .replace("91.5%", "50.0%")
        .replace("Preemptions: 2", "Deferred: 1 reqs, Preemptions: 3")
    )
    with log.open("a") as file:
        file.write(BUSY + second)
    added = {
        name: 2 * value
        for name, value in SEEN.items()
        if name not in {"kv_usage", "prefix_hit_rate"}
    }
    assert dict(tail.values()) == added | {"kv_usage": 0.915, "preemptions": 5.0}
    with log.open("a") as file:
        file.write(second.replace("Running: 3", "Running: 1"))
    assert dict(tail.values()) == added | {"kv_usage": 0.915, "preemptions": 8.0, "running": 4.0}


@pytest.mark.loopback
async def test_the_log_stands_in_where_metrics_are_closed_and_only_there(tmp_path: Path) -> None:
    seen, enough = 0, asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        nonlocal seen
        if request.path == "/open":
            seen += 1
            if seen == 3:
                enough.set()
            return web.Response(text="vllm:num_requests_running 9\n")
        raise web.HTTPForbidden

    app = web.Application()
    app.router.add_get("/{any}", page)
    logs = {name: tmp_path / f"{name}.log" for name in ("open", "closed")}
    for log in logs.values():
        log.write_text("")
    async with TestServer(app) as server:
        watch = TelemetryWatch(
            {
                name: TelemetrySource(urls=(str(server.make_url(f"/{name}")),), log=str(log))
                for name, log in logs.items()
            },
            every_s=0.01,
        )
        for log in logs.values():
            log.write_text(BUSY)
        task = asyncio.create_task(watch.run())
        await asyncio.wait_for(enough.wait(), 60)
        task.cancel()
    rows = list(watch.rows(run_id="r", leg=1))
    assert {(row.name, row.value, row.labels) for row in rows if row.arm == "open"} == {
        ("running", 9.0, None)
    }
    assert {row.name: row.value for row in rows if row.arm == "closed"} == SEEN | {
        "preemptions": 2.0
    }
    assert {row.labels for row in rows if row.arm == "closed"} == {'{"source": "log"}'}


def test_the_state_of_the_compile_cache_is_that_of_the_last_start() -> None:
    hit = (
        "INFO 06-21 07:20:13 [backends.py:292] Directly load the compiled graph(s) for compile "
        "range (1, 8192) from the cache, took 0.717 s"
    )
    missed = (
        "INFO 06-21 07:20:13 [backends.py:315] Compiling a graph for compile range (1, 8192) "
        "takes 14.78 s"
    )
    begun = "INFO 06-21 07:19:00 [api_server.py:1] vLLM API server version 0.33.0"
    assert [
        start_up(lines).compile_cache
        for lines in ([hit], [missed, hit], [begun, missed, begun, hit], [begun])
    ] == ["hit", "missed", "hit", None]
