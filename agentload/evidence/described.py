"""Describe model, hardware and arms to the advisor: by
what the rows say, and by a profile where they are silent.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal

from advisor.deployment import Deployment, Gpu, Model
from advisor.evidence import Arm, Scales
from agentload.errors import ProfileError
from agentload.evidence.servers import Server, count, names, number, text, truth
from agentload.kvmath.gpus import gpu_named
from agentload.kvmath.layout import bytes_per_token
from agentload.kvmath.pool import Pool, pool_of
from agentload.model.kv import FORMATS, KvDtype
from agentload.model.profile import ArmProfile, ModelShape, Price
from agentload.model.profile import Gpu as GpuPeaks

UNKNOWN_GPU: Final = "unknown GPU"
DTYPES: Final[Mapping[str, KvDtype]] = {
    name: each.dtype for each in FORMATS.values() for name in (each.dtype, each.flag)
}
"""Ours, by what servers call the dtype of their cache."""
_TOLD: Final = frozenset(
    f"--{name}"
    for name in (
        "model",
        "served-model-name",
        "max-model-len",
        "tensor-parallel-size",
        "kv-cache-dtype",
        "kv-cache-dtype-skip-layers",
    )
) | {"-tp"}
"""Options that the report has from elsewhere."""


def described(server: Server, profile: ArmProfile | None) -> Arm:
    """Describe an arm to the advisor."""
    facts, expected, own = server.facts, server.expected, _pool(profile)
    return Arm(
        name=server.arm,
        expected_dtype=text(expected.get("kv_cache_dtype"))
        or (profile.kv_dtype if profile else None),
        observed_dtype=text(facts.get("kv_cache_dtype")),
        kernel=_kernel(facts),
        skip_layers=names(facts.get("skip_layers")),
        scales=_scales(server),
        flags=tuple(
            word
            for option, said in server.arguments.items()
            if option not in _TOLD
            for word in (option, *said)
        ),
        all_flags=server.is_command_told,
        weights=_weights(server),
        prefix_caching=truth(facts.get("prefix_caching")),
        kv_bytes_per_token=_kv_bytes(server, profile),
        page_bytes=None if own is None else float(own.layout.page_bytes),
        pool_tokens=number(facts.get("pool_tokens")) or _pool_of_blocks(server, profile),
        # Each engine has a pool of its own.
        expected_pool_tokens=None
        if own is None
        else float(own.tokens * (count(facts.get("engines")) or 1)),
        max_concurrency=number(facts.get("max_concurrency")),
        max_model_len=count(facts.get("max_model_len")),
        machine=server.machine,
        checks_ms=tuple(
            found for each in server.starts if (found := number(each.get("check_ms"))) is not None
        ),
        compile_cache=tuple(
            state
            for each in server.starts
            if (state := text(each.get("compile_cache"))) is not None
        ),
        gpus=server.gpu_count,
    )


def deployment(
    arms: Sequence[Server], reference: str, profile: ArmProfile | None, price: Price | None
) -> Deployment:
    """Describe what all arms share; where they differ in
    hardware, the reference's counts and `differences` tells.
    """
    own = next(each for each in arms if each.arm == reference)
    length = next(
        (found for each in arms if (found := number(each.facts.get("max_model_len"))) is not None),
        None,
    )
    return Deployment(
        version=next((said for each in arms if (said := text(each.facts.get("version")))), None),
        gpu=_gpu(own, profile, price),
        tensor_parallel=own.ranks or 1,
        gpus_per_replica=own.gpu_count or 1,
        replicas=own.replicas,
        max_model_len=None if length is None else round(length),
        machines=tuple(sorted({each.machine for each in arms if each.machine is not None})),
    )


def differences(arms: Sequence[Server]) -> tuple[str, ...]:
    """Say where arms do not stand on the same hardware, and what of it is not known here."""
    built = {
        each.arm: f"{each.gpu_count or 1} × {each.gpu}" for each in arms if each.gpu is not None
    }
    told = []
    if len(set(built.values())) > 1:
        told.append(
            "arms run on different GPUs: "
            + ", ".join(f"{arm} on {gpus}" for arm, gpus in built.items())
        )
    unknown = {each.gpu for each in arms if each.gpu is not None and gpu_named(each.gpu) is None}
    told += [
        f"the peaks of '{name}' are not known: its figures are not compared with them"
        for name in sorted(unknown)
    ]
    return tuple(told)


def model(name: str | None, arms: Sequence[Server], profile: ArmProfile | None) -> Model:
    """Describe the served model."""
    served = name or next((each.model for each in arms if each.model), None) or "unknown model"
    shape = next(
        (each.shape for each in arms if each.shape is not None), profile.model if profile else None
    )
    if shape is None:
        return Model(name=served)
    whole = [group for group in shape.groups if group.kind in {"full", "mla"}]
    windows = [group for group in shape.groups if group.kind == "sliding"]
    return Model(
        name=served,
        active_params=shape.active_parameters,
        weight_bits=next((each.weight_bits for each in arms if each.weight_bits is not None), None),
        layers=sum(group.layers for group in shape.groups),
        full_layers=sum(group.layers for group in whole),
        window_layers=sum(group.layers for group in windows),
        heads=shape.heads,
        kv_heads=whole[0].kv_heads if whole else None,
        head_dim=whole[0].head_dim if whole else None,
        attention=_attention(shape),
    )


def _attention(shape: ModelShape) -> Literal["gqa", "mla", "hybrid"]:
    kinds = {group.kind for group in shape.groups}
    return "mla" if "mla" in kinds else "hybrid" if "mamba" in kinds else "gqa"


def _kernel(facts: Mapping[str, object]) -> str | None:
    """Name the attention kernel; two versions of FlashAttention are two kernels."""
    backend, version = text(facts.get("attention_backend")), count(facts.get("flash_version"))
    return (
        f"{backend}(FA{version})"
        if backend is not None and "FLASH_ATTN" in backend and version is not None
        else backend
    )


def _weights(server: Server) -> str | None:
    found = text(server.settings.get("weights")) or next(
        iter(server.arguments.get("--model", ())), None
    )
    return None if found == server.model else found


def _scales(server: Server) -> Scales | None:
    """Say where an FP8 cache takes its scales from.

    vLLM 0.32.0: weights without a quantisation of their own have none
    (model_executor/layers/attention/attention.py), those with one are warned of
    where it brings none (layers/quantization/kv_cache.py). Only a log that says
    something else shows that it was read.
    """
    dtype = (
        text(server.facts.get("kv_cache_dtype"))
        or text(server.expected.get("kv_cache_dtype"))
        or ""
    )
    said = " ".join(map(str, server.facts.get("warnings") or ()))
    if not dtype.startswith("fp8"):
        return None
    if "per_token_head" in dtype:
        return "dynamic"
    if "scaling factor 1.0" in said or (
        "weights" in server.settings and "quantization" not in server.settings
    ):
        return "default"
    return "calibrated" if "quantization" in server.settings and said else None


def _kv_bytes(server: Server, profile: ArmProfile | None) -> float | None:
    """Return what a decode step reads for each cached
    token, by the dtype that the server says it keeps.
    """
    dtype = DTYPES.get(
        text(server.facts.get("kv_cache_dtype"))
        or text(server.expected.get("kv_cache_dtype"))
        or ""
    )
    if server.shape is not None and dtype is not None:
        try:
            return float(
                bytes_per_token(server.shape, dtype, names(server.facts.get("skip_layers")))
            )
        except ProfileError:  # layers or dtypes that the formula does not know
            return None
    return (
        float(bytes_per_token(profile.model, profile.kv_dtype, profile.skip_layers))
        if profile
        else None
    )


def _gpu(server: Server, profile: ArmProfile | None, price: Price | None) -> Gpu:
    peaks: GpuPeaks | None = (
        gpu_named(server.gpu) if server.gpu is not None else profile.gpu if profile else None
    )
    # What a user pays wins over what a profile was listed at; a
    # policy's price comes as *price* and was written for this report.
    paid = price.usd_per_gpu_hour if price is not None else server.usd_per_gpu_hour
    if peaks is None:
        return Gpu(name=server.gpu or UNKNOWN_GPU, usd_per_hour=paid)
    return Gpu(
        name=peaks.name,
        sm=peaks.compute_capability,
        bf16_tflops=peaks.bf16_tflops,
        fp8_tflops=peaks.fp8_tflops,
        hbm_tb_s=peaks.bandwidth_tb_s,
        usd_per_hour=paid,
    )


def _pool_of_blocks(server: Server, profile: ArmProfile | None) -> float | None:
    """Return the pool that an older server counts in blocks
    alone: tokens, where every layer keeps all of them.
    """
    shape = server.shape or (profile.model if profile else None)
    blocks, block = number(server.facts.get("pool_blocks")), number(server.facts.get("block_size"))
    if (
        blocks is None
        or block is None
        or shape is None
        or any(group.kind not in {"full", "mla"} for group in shape.groups)
    ):
        return None
    return blocks * block


def _pool(profile: ArmProfile | None) -> Pool | None:
    """Return what fits beside the weights of a profile; None
    where they are unknown: nothing to compare the server with.
    """
    with suppress(ProfileError):
        return None if profile is None else pool_of(profile)
    return None
