"""Sizes of KV caches."""

import json as jsons
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Final

import typer

from agentload.cli._print import ABSENT, print_json, print_table
from agentload.documents import UNREADABLE
from agentload.endpoints.commands import config_file
from agentload.errors import ProfileError, UsageError
from agentload.kvmath.compare import Size, cautions, layer_sizes, shard, sizes
from agentload.kvmath.config import model_shape, position_scaling, shape_of
from agentload.kvmath.gpus import NAMES, gpu_named
from agentload.kvmath.pool import GIB, USUAL_STEP
from agentload.kvmath.pool import batched_tokens as usual_step
from agentload.kvmath.practice import GUIDE, PublishedRule, ServedModel, advice
from agentload.model.profile import Gpu, ModelShape

WIDTH: Final = 96
HEAD: Final = ("published rule", "today", "verdict and what it means for this model")
UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def kv(
    model: Annotated[
        str | None,
        typer.Argument(
            help="config.json, a folder with one, or a model in the local Hugging Face cache."
        ),
    ] = None,
    *,
    shape: Annotated[
        str | None,
        (
            "In place of MODEL: layers=32,kv_heads=8,head_dim=128; with "
            "window=4096,windowed=16; layers=61,latent=576."
        ),
    ] = None,
    kv_memory: Annotated[
        str | None, "Memory of the pool on one GPU, as --kv-cache-memory-bytes: 40G."
    ] = None,
    gpu: Annotated[str | None, "GPU, such as H100: its memory, and the kernels it has."] = None,
    gpu_memory: Annotated[
        float | None, "Memory of one GPU in GiB, as its driver reports it."
    ] = None,
    weights: Annotated[float | None, "Loaded weights in GiB, all GPUs together."] = None,
    overhead: Annotated[float, "GiB for activations and graphs, on one GPU."] = 2.0,
    utilization: Annotated[float, "Share of the GPU's memory that the server may use."] = 0.92,
    max_model_len: Annotated[int | None, "Longest request; the model's own when omitted."] = None,
    batched_tokens: Annotated[
        int | None, "max_num_batched_tokens of the server; what vLLM takes on the GPU when omitted."
    ] = None,
    block: Annotated[int, "Tokens of a block: 16 on most GPUs, 128 on CPUs."] = 16,
    tensor_parallel: Annotated[int, "GPUs that share each layer."] = 1,
    rules: Annotated[bool, "Also say what published rules come to for this model."] = False,
    json: Annotated[bool, "Print the figures as JSON."] = False,
) -> None:
    """Compute what a KV cache takes: bytes a token, pages, pool
    tokens and concurrency of BF16, FP8 and FP8 that skips windows.

    MODEL is a config.json, a folder with one, or the name of a model in
    the local Hugging Face cache; nothing is downloaded. In its place
    --shape says what the model is made of. The pool is what --kv-memory says, or what
    the weights leave of the GPU's memory. --rules adds published rules for KV caches:
    which hold for today's vLLM, and what they come to for this model.

    For example:

        agentload kv ~/models/gemma-3-27b-it --kv-memory 40G --max-model-len 32768

        agentload kv openai/gpt-oss-20b --gpu H100 --weights 13.7

        agentload kv --shape layers=32,kv_heads=8,head_dim=128 --max-model-len 32768 --kv-memory 40G
    """
    whole, config = _model(model, shape, weights, max_model_len)
    made = shard(whole, tensor_parallel)
    length = max_model_len or made.max_len
    known = _gpu(gpu)
    room = known.memory_gib if gpu_memory is None and known else gpu_memory
    step = batched_tokens or (USUAL_STEP if room is None else usual_step(room, gpu or ""))
    memory = _memory(made, kv_memory, room, overhead, utilization)
    subject = ServedModel(
        shape=made,
        sizes=sizes(made, memory, max_model_len=length, in_flight=step, block_tokens=block),
        memory_bytes=memory,
        max_model_len=length,
        batched_tokens=step,
        block_tokens=block,
        gpu=known,
        is_multimodal=bool(config.keys() & {"vision_config", "audio_config"}),
        scaling=position_scaling(config),
    )
    applied_rules = advice(subject) if rules else ()
    if json:
        print_json(
            {
                "memory_bytes": memory,
                "max_model_len": length,
                "batched_tokens": step,
                "layers": layer_sizes(made, block_tokens=block),
                "sizes": subject.sizes,
                "cautions": cautions(made),
                "rules": applied_rules,
            }
        )
        return
    _print(
        subject,
        applied_rules,
        assumed=""
        if batched_tokens or room
        else " (as on most GPUs; --gpu or --batched-tokens says otherwise)",
    )


def _print(subject: ServedModel, applied_rules: tuple[PublishedRule, ...], *, assumed: str) -> None:
    print(
        f"{subject.shape.name}: {subject.memory_bytes / GIB:.2f} GiB of KV cache on each "
        f"GPU, requests of up to {subject.max_model_len:,} "
        f"tokens, read {subject.batched_tokens:,} at a time{assumed}\n"
    )
    layers = layer_sizes(subject.shape, block_tokens=subject.block_tokens)
    print_table(
        ("layers", "count", "B/token bf16", "fp8", "page B bf16", "fp8"),
        [
            (
                each.kind,
                str(each.layers),
                *(f"{size:,}" for size in (*each.token_bytes, *each.page_bytes)),
            )
            for each in layers
        ],
    )
    print()
    head = ("arm", "B/token", "page B", "pages", "pool tokens", "requests of full length", "pool")
    print_table(head, [_cells(each) for each in subject.sizes])
    for caution in cautions(subject.shape):
        print(f"\nnote: {caution}")
    if applied_rules:
        print()
        print(*_rules(applied_rules), sep="\n")


def _model(
    model: str | None, shape: str | None, weights: float | None, length: int | None
) -> tuple[ModelShape, Mapping[str, object]]:
    """Return the geometry that was named, and the config that it was read from, if any."""
    if (model is None) == (shape is None):
        raise UsageError(
            "name a model, or what it is made of",
            hint="agentload kv MODEL, or --shape layers=32,kv_heads=8,head_dim=128",
        )
    if shape is not None:
        if length is None:
            raise UsageError(
                "--shape does not say how long requests may be", hint="--max-model-len 32768"
            )
        return shape_of(shape, max_len=length, weight_gib=weights), {}
    path = config_file(model or "")
    try:
        config = jsons.loads(path.read_text(encoding="utf-8"))
    except UNREADABLE as error:
        raise ProfileError(
            f"{path}: not JSON: {error}", hint="name the config.json that comes with the weights"
        ) from error
    if not isinstance(config, dict):
        raise ProfileError(
            f"{path}: no JSON object", hint="name the config.json that comes with the weights"
        )
    return model_shape(config, name=str(path), weight_gib=weights), config


def _gpu(name: str | None) -> Gpu | None:
    if name is None:
        return None
    if (found := gpu_named(name)) is None:
        raise UsageError(
            f"--gpu: '{name}' is not known", hint=f"known: {', '.join(NAMES)}; or --gpu-memory GIB"
        )
    return found


def _memory(
    shape: ModelShape,
    kv_memory: str | None,
    gpu_memory: float | None,
    overhead: float,
    utilization: float,
) -> int:
    if kv_memory is not None:
        return _bytes(kv_memory)
    if gpu_memory is None or shape.weight_gib is None:
        raise UsageError(
            "the size of the pool is not known",
            hint="--kv-memory 40G, or --gpu-memory GIB with --weights GIB",
        )
    left = gpu_memory * utilization - shape.weight_gib - overhead
    if left <= 0:
        raise ProfileError(
            f"{shape.weight_gib:.1f} GiB of weights leave nothing of {gpu_memory:g} GiB for a pool",
            hint="--tensor-parallel N",
        )
    return int(left * GIB)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise UsageError(f"--kv-memory: '{text}' is no size", hint="--kv-memory 40G")
    return int(float(match[1]) * UNITS[match[2].upper()])


def _cells(size: Size) -> tuple[str, ...]:
    if size.pool_tokens is None or size.concurrency is None:
        room = (ABSENT, "too small for one request", ABSENT, ABSENT)
    else:
        against = ABSENT if size.against_first is None else f"{size.against_first:.2f}x"
        room = (f"{size.pages:,}", f"{size.pool_tokens:,}", f"{size.concurrency:.2f}", against)
    return (size.arm, f"{size.bytes_per_token:,}", f"{size.page_bytes:,}", *room)


def _rules(found: Sequence[PublishedRule]) -> Iterator[str]:
    """Yield the lines of a table whose last column is
    wrapped: what rules come to, and whether they still hold.
    """
    cells = [HEAD, *((each.rule, each.today, _text(each)) for each in found)]
    first, second = (max(len(line[place]) for line in cells) for place in (0, 1))
    for name, today, text in cells:
        begins = f"{name.ljust(first)}  {today.ljust(second)}  "
        yield textwrap.fill(
            text, len(begins) + WIDTH, initial_indent=begins, subsequent_indent=" " * len(begins)
        )
    yield f"guide: {GUIDE}"


def _text(found: PublishedRule) -> str:
    here = "" if found.here is None else f" Here: {found.here}."
    return (
        f'"{found.published}" ({found.source.replace(f"{GUIDE},", "guide")}): '
        f"{found.because}.{here}"
    )
