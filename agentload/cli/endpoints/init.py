"""Write an arms file for a KV-cache comparison: BF16, FP8, FP8 that skips windows, and BF16 on FP8's kernel.

Each arm gets its launch command and what its server must say of itself. An arm that skips windows is left out where the model's config is
on this machine and has none.

For example:

    agentload endpoints init --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
import yaml

from agentload.endpoints.commands import RECIPES, planned
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.weights import has_windows
from agentload.errors import UsageError


def run(
    *,
    model: Annotated[str, typer.Option(help="Model to serve: a name, or a folder.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="File to write, or - for stdout.")] = Path("endpoints.yaml"),
    max_model_len: Annotated[int | None, typer.Option(help="Pin the longest request, equal on all arms.")] = None,
    vllm: Annotated[str, typer.Option(help="The vllm executable.")] = "vllm",
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    text = _text(planned(model, has_windows=has_windows(model), vllm=vllm, length=max_model_len), model)
    if str(out) == "-":
        print(text, end="")
        return
    if out.exists() and not force:
        raise UsageError(f"{out} exists", hint="--force writes over it, --out names another")
    out.write_text(text, encoding="utf-8")
    print(f"wrote {out}; next, on one GPU: agentload replay rag --endpoints {out} --launch --dry-run", file=sys.stderr)
    print(f"with a GPU for each arm (CUDA_VISIBLE_DEVICES in its launch): agentload launch {out}", file=sys.stderr)


def _text(arms: tuple[Endpoint, ...], model: str) -> str:
    whys = {recipe.arm: recipe.why for recipe in RECIPES}
    lines = [
        "# What is compared. Every field of an arm may also stand here, for all of them.",
        "# Keys: key_env or key_command; header_env {HEADER: VARIABLE}. Never the key itself.",
        "# Hardware, for physics gates and cost: gpu, gpus, price_per_hour, tensor_parallel, data_parallel, gpu_metrics, gpu_ids, config.",
        "# Connections: connections (session, pool, call), idle_s, ca_file, client_certificate, client_key, proxy or proxy_env.",
        "# Replicas: metrics (one URL each), replica_headers. Requests: aliases, headers, extra_body, force_lengths, tokenizer.",
        f"model: {json.dumps(model)}",
        "arms:",
    ]
    for arm in arms:
        assert arm.launch is not None, arm.name
        entry = {
            arm.name: {"url": arm.url, "expect": dict(arm.expect), "log": f"logs/{arm.name}.log", "launch": " ".join(arm.launch.command)}
        }
        lines += [f"  # {whys[arm.name]}", *(f"  {line}" for line in yaml.safe_dump(entry, sort_keys=False, width=1000).splitlines())]
    return "\n".join(lines) + "\n"
