"""Write an arms file for a KV-cache comparison: BF16, FP8, FP8 that skips windows, calibrated FP8, and BF16 on FP8's kernel.

Each arm gets its launch command and what its server must say of itself. An arm that skips windows is left out where the model's config is
on this machine and has none. Calibrated FP8 is written as a comment until its weights are there.

For example:

    agentload endpoints init --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
import yaml

from agentload.cli import _pins as pin
from agentload.endpoints.commands import Pins, planned, why
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.weights import has_windows
from agentload.errors import UsageError


def run(
    *,
    model: Annotated[str, typer.Option(help="Model to serve: a name, or a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, or - for stdout.")] = Path("endpoints.yaml"),
    max_model_len: pin.Length = None,
    batched_tokens: pin.Batched = None,
    kv_memory: pin.Memory = None,
    revision: pin.Revision = None,
    vllm: Annotated[str, typer.Option(help="The vllm executable.")] = "vllm",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    pins = Pins(max_model_len=max_model_len, batched_tokens=batched_tokens, kv_memory=kv_memory, revision=revision)
    text = _text(planned(model, has_windows=has_windows(model), vllm=vllm, pins=pins), model)
    if str(out) == "-":
        print(text, end="")
        return
    if out.exists() and not force:
        raise UsageError(f"{out} exists", hint="--force writes over it, --out names another")
    out.write_text(text, encoding="utf-8")
    print(f"wrote {out}; next, on one GPU: agentload replay rag --endpoints {out} --launch --dry-run", file=sys.stderr)
    print(f"with a GPU for each arm (CUDA_VISIBLE_DEVICES in its launch): agentload launch {out}", file=sys.stderr)


def _text(arms: tuple[Endpoint, ...], model: str) -> str:
    lines = [
        "# What is compared. Every field of an arm may also stand here, for all of them.",
        "# Keys: key_env or key_command; header_env {HEADER: VARIABLE}. Never the key itself.",
        "# Hardware, for physics gates and cost: gpu, gpus, price_per_hour, tensor_parallel, data_parallel, gpu_metrics, gpu_ids, config.",
        "# Connections: connections (session, pool, call), idle_s, ca_file, client_certificate, client_key, proxy or proxy_env.",
        "# Replicas: metrics (one URL each), replica_headers. Requests: aliases, headers, extra_body, force_lengths, counting, tokenizer.",
        f"model: {json.dumps(model)}",
        "arms:",
        *(line for arm in arms for line in _lines(arm)),
    ]
    return "\n".join(lines) + "\n"


def _lines(arm: Endpoint) -> Iterator[str]:
    assert arm.launch is not None, arm.name
    command = arm.launch.command
    entry = {arm.name: {"url": arm.url, "expect": dict(arm.expect), "log": f"logs/{arm.name}.log", "launch": shlex.join(command)}}
    weights = command[command.index("serve") + 1]
    is_made = weights == arm.model or Path(weights).is_dir()
    yield f"  # {why(arm)}"
    if not is_made:
        yield "  # Once they are there, take the # away:"
    for line in yaml.safe_dump(entry, sort_keys=False, width=1000).splitlines():
        yield f"  {line}" if is_made else f"  # {line}"
