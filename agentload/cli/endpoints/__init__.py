"""Write and check the arms file: what is compared, where it is, what it must be."""

import asyncio
import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer
import yaml

from agentload.cli._print import print_json, print_table
from agentload.endpoints.agreement import agreement
from agentload.endpoints.commands import Pins, has_windows, launch_plan, why
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify_all, served_model
from agentload.endpoints.read import Emulated, read
from agentload.errors import GateError, UsageError

Length: TypeAlias = Annotated[int | None, "Pin the longest request, equal on all arms."]
Batched: TypeAlias = Annotated[
    int | None, "Pin max_num_batched_tokens, which the pool depends on too."
]
Memory: TypeAlias = Annotated[str | None, "Pin the bytes of the KV pool: 40G."]
Revision: TypeAlias = Annotated[str | None, "Pin the commit of the model's weights on the hub."]


def init(
    *,
    model: Annotated[str, "Model to serve: a name, or a folder."],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write, or - for stdout.")
    ] = Path("endpoints.yaml"),
    max_model_len: Length = None,
    batched_tokens: Batched = None,
    kv_memory: Memory = None,
    revision: Revision = None,
    vllm: Annotated[str, "The vllm executable."] = "vllm",
    arms: Annotated[
        str | None,
        (
            "Arms to write, the reference first: bf16, fp8, fp8-skip-sw, fp8-calibrated, "
            "bf16-same-backend (these when omitted), fp8-e5m2, bf16-drafts, fp8-drafts, "
            "bf16-offload, fp8-offload, fp8-weights, fp8-weights-fp8-kv."
        ),
    ] = None,
    force: Annotated[bool, "Write over a file that is there."] = False,
) -> None:
    """Write an arms file for a KV-cache comparison: BF16, FP8, FP8
    that skips windows, calibrated FP8, and BF16 on FP8's kernel.

    Each arm gets its launch command and what its server must say of itself. An arm
    that skips windows is left out where the model's config is on this machine and
    has none. Calibrated FP8 is written as a comment until its weights are there.

    For example:

        agentload endpoints init --model meta-llama/Llama-3.1-8B-Instruct --max-model-len 32768

        agentload endpoints init --model Qwen/Qwen3-8B --arms bf16,fp8
    """
    pins = Pins(
        max_model_len=max_model_len,
        batched_tokens=batched_tokens,
        kv_memory=kv_memory,
        revision=revision,
    )
    named = [name.strip() for name in arms.split(",")] if arms else []
    plan = launch_plan(model, has_windows=has_windows(model), vllm=vllm, pins=pins, arms=named)
    text = _file(plan, model)
    if str(out) == "-":
        print(text, end="")
        return
    if out.exists() and not force:
        raise UsageError(f"{out} exists", hint="--force writes over it, --out names another")
    out.write_text(text, encoding="utf-8")
    print(
        f"wrote {out}; next, with your trace, on one GPU: agentload decide TRACE --endpoints {out} "
        "--launch --dry-run",
        file=sys.stderr,
    )
    print(
        f"with a GPU for each arm (CUDA_VISIBLE_DEVICES in its launch): agentload launch {out}",
        file=sys.stderr,
    )


def _file(arms: tuple[Endpoint, ...], model: str) -> str:
    lines = [
        "# What is compared. Every field of an arm may also stand here, for all of them.",
        "# Keys: key_env or key_command; header_env {HEADER: VARIABLE}. Never the key itself.",
        (
            "# Hardware, for physics gates and cost: gpu, gpus, price_per_hour, "
            "tensor_parallel, data_parallel, gpu_metrics, gpu_ids, config."
        ),
        (
            "# Connections: connections (session, pool, call), idle_s, ca_file, "
            "client_certificate, client_key, proxy or proxy_env."
        ),
        (
            "# Replicas: metrics (one URL each), replica_headers. Requests: aliases, headers, "
            "extra_body, force_lengths, counting, tokenizer."
        ),
        f"model: {json.dumps(model)}",
        "arms:",
        *(line for arm in arms for line in _arm(arm)),
    ]
    return "\n".join(lines) + "\n"


def _arm(arm: Endpoint) -> Iterator[str]:
    assert arm.launch is not None, arm.name
    command = arm.launch.command
    entry = {
        arm.name: {
            "url": arm.url,
            "expect": dict(arm.expect),
            "log": f"logs/{arm.name}.log",
            "launch": shlex.join(command),
        }
    }
    weights = command[command.index("serve") + 1]
    is_made = weights == arm.model or Path(weights).is_dir()
    yield f"  # {why(arm)}"
    if not is_made:
        yield "  # Once they are there, take the # away:"
    for line in yaml.safe_dump(entry, sort_keys=False, width=1000).splitlines():
        yield f"  {line}" if is_made else f"  # {line}"


SHOWN: Final = (
    "version",
    "kv_cache_dtype",
    "skip_layers",
    "attention_backend",
    "prefix_caching",
    "max_model_len",
    "pool_tokens",
    "replicas",
)


def check(
    endpoints: Annotated[
        str, typer.Argument(help="An arms file, or a=URL,b=URL.")
    ] = "endpoints.yaml",
    *,
    model: Annotated[str | None, "Model to ask for; the only one served when omitted."] = None,
    api_key_env: Annotated[str | None, "Environment variable that holds the API key."] = None,
    json: Annotated[bool, "Print what the servers said as JSON."] = False,
) -> None:
    """Ask every arm who it is, and hold it to what the arms file expects.

    Exits with 1 when a server cannot be used, with 3 when one is not what is expected.

    For example:

        agentload endpoints check endpoints.yaml
    """
    arms = read(endpoints, model=model, key_env=api_key_env)
    if isinstance(arms, Emulated):
        raise UsageError(
            "emulated endpoints are what their profile says",
            hint="agentload profile show " + arms.profile,
        )
    identities: dict[str, Identity] = dict(
        zip((arm.name for arm in arms), asyncio.run(identify_all(arms)), strict=True)
    )
    for arm in arms:
        served_model(arm, identities[arm.name])
    found = agreement(arms, identities)
    if json:
        facts = {name: identity.facts() for name, identity in identities.items()}
        print_json(
            {
                "arms": facts,
                "missing": {name: identity.missing for name, identity in identities.items()},
                "agreement": found,
            }
        )
    else:
        print_table(
            ("arm", *SHOWN), [(name, *_cells(identity)) for name, identity in identities.items()]
        )
        for caveat in (
            *found.unknown,
            *found.caveats()[len(found.mismatches) + len(found.unknown) :],
        ):
            print(f"caveat: {caveat}")
        for identity in identities.values():
            for source in identity.missing:
                print(f"not read: {source}")
            for warning in identity.log.warnings:
                print(f"log: {warning}")
    if found.mismatches:
        raise GateError("; ".join(found.mismatches), hint="fix the server or the arms file")


def _cells(identity: Identity) -> tuple[str, ...]:
    facts = identity.facts()
    return tuple("–" if facts[name] is None else str(facts[name]) for name in SHOWN)
