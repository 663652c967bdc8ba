"""Describe model, hardware and arms to the advisor: by the rows, else by a profile."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, Literal, TypeVar

from advisor.deployment import Deployment, GpuFacts, Model
from advisor.evidence import Arm, Scales
from agentload.errors import ProfileError
from agentload.evidence.servers import (
    ArmServer,
    count,
    names,
    number,
    speculative_option,
    text,
    truth,
)
from agentload.kvmath.gpus import gpu_named
from agentload.kvmath.layout import bytes_per_token
from agentload.kvmath.pool import Pool, pool_of
from agentload.model.kv import FORMATS, KvDtype
from agentload.model.profile import ArmProfile, LayerGroup, ModelShape, Price
from agentload.model.profile import Gpu as GpuPeaks

_T = TypeVar("_T")

UNKNOWN_GPU: Final = "unknown GPU"
WHOLE: Final = frozenset({"full", "mla"})
"""Kinds of layers that keep every token."""
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


def describe_arm(server: ArmServer, profile: ArmProfile | None) -> Arm:
    """Describe an arm to the advisor."""
    facts = server.facts
    expected = server.expected
    own = _pool(profile)
    return Arm(
        name=server.arm,
        expected_dtype=text(expected.get("kv_cache_dtype"))
        or (profile.kv_dtype if profile else None),
        observed_dtype=text(facts.get("kv_cache_dtype")),
        kernel=_kernel(facts),
        skip_layers=names(facts.get("skip_layers")),
        scales=_scales(server),
        flags=tuple(_flags(server, profile)),
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
        checks_ms=_of_starts(server, "check_ms", number),
        compile_cache=_of_starts(server, "compile_cache", text),
        gpus=server.gpu_count,
    )


def _flags(server: ArmServer, profile: ArmProfile | None) -> Iterator[str]:
    drafting = None if profile is None else profile.speculation
    options = {} if drafting is None else speculative_option(drafting.method, drafting.drafts)
    if profile is not None and profile.server.offload is not None:
        options["--kv-offloading-size"] = (f"{profile.server.offload.gib:g}",)
    for option, values in {**options, **server.arguments}.items():
        if option not in _TOLD:
            yield option
            yield from values


def _of_starts(server: ArmServer, name: str, read: Callable[[object], _T | None]) -> tuple[_T, ...]:
    """Return the fact *name* of each start of a server that reports it."""
    found = (read(each.get(name)) for each in server.starts)
    return tuple(value for value in found if value is not None)


def deployment(
    arms: Sequence[ArmServer], reference: str, profile: ArmProfile | None, price: Price | None
) -> Deployment:
    """Describe what all arms share.

    Where arms differ in hardware, the reference's counts, and `differences` says so.
    """
    own = next(each for each in arms if each.arm == reference)
    return Deployment(
        version=_first(text(each.facts.get("version")) for each in arms),
        gpu=_gpu(own, profile, price),
        tensor_parallel=own.ranks or 1,
        gpus_per_replica=own.gpu_count or 1,
        replicas=own.replicas,
        max_model_len=_first(count(each.facts.get("max_model_len")) for each in arms),
        machines=tuple(sorted({each.machine for each in arms if each.machine is not None})),
    )


def differences(arms: Sequence[ArmServer]) -> tuple[str, ...]:
    """Say where arms run on different hardware, and which GPUs have no known peaks."""
    named = {each.arm: f"{each.gpu_count or 1} × {each.card}" for each in arms if each.card}
    # One card has several names: the driver's, and what people write.
    built = {(each.gpu_count or 1, _card_name(each.card)) for each in arms if each.card}
    told = []
    if len(built) > 1:
        told.append(
            "arms run on different GPUs: "
            + ", ".join(f"{arm} on {gpus}" for arm, gpus in named.items())
        )
    unknown = {each.card for each in arms if each.card is not None and gpu_named(each.card) is None}
    told += [
        f"the peaks of '{name}' are not known: its figures are not compared with them"
        for name in sorted(unknown)
    ]
    return tuple(told)


def _card_name(card: str) -> str:
    """Return one name for a card, whoever names it."""
    known = gpu_named(card)
    return card if known is None else known.name


def model(name: str | None, arms: Sequence[ArmServer], profile: ArmProfile | None) -> Model:
    """Describe the served model."""
    served = name or _first(each.model or None for each in arms) or "unknown model"
    shape = _first(each.shape for each in arms) or (profile.model if profile else None)
    if shape is None:
        return Model(name=served)
    whole = [group for group in shape.groups if group.kind in WHOLE]
    windows = [group for group in shape.groups if group.kind == "sliding"]
    kv_heads, head_dim = (whole[0].kv_heads, whole[0].head_dim) if whole else (None, None)
    return Model(
        name=served,
        active_params=shape.active_parameters,
        weight_bits=_first(each.weight_bits for each in arms),
        layers=_layers(shape.groups),
        full_layers=_layers(whole),
        window_layers=_layers(windows),
        heads=shape.heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        attention=_attention(shape),
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    """Return the first value that is known."""
    for value in values:
        if value is not None:
            return value
    return None


def _layers(groups: Sequence[LayerGroup]) -> int:
    return sum(group.layers for group in groups)


def _attention(shape: ModelShape) -> Literal["gqa", "mla", "hybrid"]:
    kinds = {group.kind for group in shape.groups}
    if "mla" in kinds:
        return "mla"
    return "hybrid" if "mamba" in kinds else "gqa"


def _kernel(facts: Mapping[str, object]) -> str | None:
    """Name the attention kernel; two versions of FlashAttention are two kernels."""
    backend = text(facts.get("attention_backend"))
    version = count(facts.get("flash_version"))
    if backend is None or version is None or "FLASH_ATTN" not in backend:
        return backend
    return f"{backend}(FA{version})"


def _weights(server: ArmServer) -> str | None:
    found = text(server.settings.get("weights")) or next(
        iter(server.arguments.get("--model", ())), None
    )
    return None if found == server.model else found


def _scales(server: ArmServer) -> Scales | None:
    """Say where an FP8 cache takes its scales from.

    vLLM 0.32.0: weights without a quantisation of their own have no scales
    (model_executor/layers/attention/attention.py); for weights with one, vLLM warns where it
    brings none (layers/quantization/kv_cache.py). That this warning is missing counts only where
    the log says something else, which shows that it was read.
    """
    dtype = _cache_dtype(server)
    said = " ".join(map(str, server.facts.get("warnings") or ()))
    if not dtype.startswith("fp8"):
        return None
    if "per_token_head" in dtype:
        return "dynamic"
    has_own = "quantization" in server.settings
    if "scaling factor 1.0" in said or ("weights" in server.settings and not has_own):
        return "default"
    return "calibrated" if has_own and said else None


def _cache_dtype(server: ArmServer) -> str:
    """Return the dtype of the cache, as the server says or else as the arms file does."""
    told, expected = (each.get("kv_cache_dtype") for each in (server.facts, server.expected))
    return text(told) or text(expected) or ""


def _kv_bytes(server: ArmServer, profile: ArmProfile | None) -> float | None:
    """Return what a decode step reads for each cached token, by the dtype the server reports."""
    dtype = DTYPES.get(_cache_dtype(server))
    if server.shape is not None and dtype is not None:
        try:
            return float(
                bytes_per_token(server.shape, dtype, names(server.facts.get("skip_layers")))
            )
        except ProfileError:  # layers or dtypes that the formula does not know
            return None
    if profile:
        return float(bytes_per_token(profile.model, profile.kv_dtype, profile.skip_layers))
    return None


def _gpu(server: ArmServer, profile: ArmProfile | None, price: Price | None) -> GpuFacts:
    peaks: GpuPeaks | None = profile.gpu if profile else None
    if server.card is not None:
        peaks = gpu_named(server.card)
    # What a user pays wins over what a profile was listed at; a
    # policy's price comes as *price* and was written for this report.
    paid = price.usd_per_gpu_hour if price is not None else server.usd_per_gpu_hour
    if peaks is None:
        return GpuFacts(name=server.card or UNKNOWN_GPU, usd_per_hour=paid)
    return GpuFacts(
        name=peaks.name,
        sm=peaks.compute_capability,
        bf16_tflops=peaks.bf16_tflops,
        fp8_tflops=peaks.fp8_tflops,
        hbm_tb_s=peaks.bandwidth_tb_s,
        usd_per_hour=paid,
    )


def _pool_of_blocks(server: ArmServer, profile: ArmProfile | None) -> float | None:
    """Return the pool in tokens of an older server, which counts it in blocks alone.

    None unless every layer keeps all tokens.
    """
    shape = server.shape or (profile.model if profile else None)
    blocks = number(server.facts.get("pool_blocks"))
    block = number(server.facts.get("block_size"))
    if blocks is None or block is None or shape is None:
        return None
    is_whole = all(group.kind in WHOLE for group in shape.groups)
    return blocks * block if is_whole else None


def _pool(profile: ArmProfile | None) -> Pool | None:
    """Return what fits next to the weights of a profile; None where they are not known."""
    with suppress(ProfileError):
        return None if profile is None else pool_of(profile)
    return None
