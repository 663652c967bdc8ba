"""Measure how late the emulated server writes: `python -m
benchmarks.serve [STREAMS [TOKENS_PER_S [SECONDS]]]`.

A synthetic arm decodes at a fixed rate whatever the batch; a client in a second
process reads all streams. The server's own truth log says when each step's first chunk
was about to be written, and when its last one had been, against the end of the step.
"""

import asyncio
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from pathlib import Path

from agentload.model.profile import ArmProfile, Gpu, LayerGroup, ModelShape, Server, StepTime
from agentload.serve.server import ServedArm, ServerOptions, serve

START_MS, LAST_MS = 2.0, 6.0
"""What the server promises at p99 for 256 streams of 50 tokens/s on two shared cores."""


def arm(step_ms: float) -> ArmProfile:
    """Return an arm whose every step lasts as long."""
    return ArmProfile(
        name="steady",
        profile="benchmark",
        gpu=Gpu(
            name="none", memory_gib=80, bandwidth_tb_s=3, bf16_tflops=1000, compute_capability=90
        ),
        model=ModelShape(
            name="steady",
            groups=(LayerGroup(kind="full", layers=1, kv_heads=1, head_dim=64),),
            heads=1,
            max_len=8192,
        ),
        server=Server(
            software="vLLM 0.32.0",
            max_model_len=8192,
            max_num_seqs=1024,
            kv_cache_memory_bytes=1 << 32,
        ),
        kv_dtype="bf16",
        step=StepTime(
            decode_ms=step_ms,
            decode_ms_per_token=0,
            prefill_ms_per_token=0,
            prefill_ms_per_pair=0,
            weights_ms=0,
        ),
        synthetic=True,
    )


class Reader(asyncio.Protocol):
    """Send one request and drop what comes back."""

    def __init__(self, body: bytes, done: asyncio.Future[None]) -> None:
        self._body = body
        self._done = done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        head = (
            "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
            f"application/json\r\nContent-Length: {len(self._body)}\r\n\r\n"
        )
        transport.write(head.encode() + self._body)

    def data_received(self, data: bytes) -> None:
        """Wait for the last chunk."""
        if data.endswith(b"0\r\n\r\n"):
            self._transport.close()
            self._done.set_result(None)


async def read(port: int, streams: int, tokens: int) -> None:
    """Open all streams and wait for their ends."""
    loop = asyncio.get_running_loop()
    body = json.dumps(
        {
            "messages": [{"role": "user", "content": "go"}],
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    ends = [loop.create_future() for _ in range(streams)]
    for end in ends:
        await loop.create_connection(partial(Reader, body, end), "127.0.0.1", port)
    await asyncio.gather(*ends)


async def measure(streams: float = 256, rate: float = 50, seconds: float = 10) -> None:
    """Serve, have it read, and print the quantiles."""
    wall, cpu = time.monotonic(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        truth = Path(folder) / "truth.jsonl"
        stop = asyncio.Event()
        ready: asyncio.Future[ServedArm] = asyncio.get_running_loop().create_future()
        server = asyncio.create_task(
            serve(arm(1000 / rate), ServerOptions(truth=truth), until=stop, ready=ready.set_result)
        )
        port = (await ready).url.split(":")[2].split("/")[0]
        reader = ("-m", "benchmarks.serve", "read", port, str(round(streams)))
        client = await asyncio.create_subprocess_exec(
            sys.executable, *reader, str(round(rate * seconds))
        )
        await client.wait()
        stop.set()
        await server
        share = 100 * (time.process_time() - cpu) / (time.monotonic() - wall)
        report([json.loads(line) for line in truth.read_text().splitlines()[1:]])
        load = os.getloadavg()[0]
        sys.stdout.write(
            f"the server used {share:.0f}% of a core; the machine's load over the last "
            f"minute was {load:.1f}\n"
        )


def report(logs: list[dict[str, list[int]]]) -> None:
    """Print lateness over all steps, and against what is promised."""
    starts: dict[int, int] = {}
    lasts: dict[int, int] = defaultdict(int)
    for log in logs:
        for planned, before, after in zip(
            log["planned_ns"], log["before_ns"], log["after_ns"], strict=True
        ):
            starts[planned] = min(starts.get(planned, before), before)
            lasts[planned] = max(lasts[planned], after)
    chunks = sum(len(log["planned_ns"]) for log in logs)
    sys.stdout.write(f"{len(logs)} streams, {len(starts)} steps, {chunks} chunks\n")
    for name, at, limit in (("first write", starts, START_MS), ("last write", lasts, LAST_MS)):
        late = sorted((instant - planned) / 1e6 for planned, instant in at.items())
        p50, p90, p99, worst = (late[int(q * (len(late) - 1))] for q in (0.5, 0.9, 0.99, 1.0))
        figures = f"p50 {p50:.2f}  p90 {p90:.2f}  p99 {p99:.2f} (≤ {limit:g})  worst {worst:.2f}"
        sys.stdout.write(f"{name:>11} after the end of its step, ms: {figures}\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        asyncio.run(read(*map(int, sys.argv[2:5])))
    else:
        asyncio.run(measure(*map(float, sys.argv[1:4])))
