"""Facts about the model, its servers and the user's load; None is what nobody knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from advisor.columns import Floats

Scales = Literal["calibrated", "default", "dynamic"]
"""Where an FP8 cache takes its scales from: the checkpoint, the constant 1.0, or per token and head at run time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """Describe one GPU of the deployment; peaks are the vendor's dense figures."""

    name: str  # as in profiles: H100-SXM, H200-SXM, B200-SXM, A100-80GB
    sm: int | None = None  # compute capability times ten: 80, 89, 90, 100, 120
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    hbm_tb_s: float | None = None
    memory_gb: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Describe the served model as far as the KV cache and the physics gates need it."""

    name: str
    params: float | None = None  # all weights
    active_params: float | None = None  # weights that one token is multiplied with; a dense model's params less its embedding table
    weight_bits: int | None = None  # 16, 8, 4
    layers: int | None = None
    full_layers: int | None = None  # layers that attend to the whole context
    window_layers: int | None = None
    window_tokens: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    attention: Literal["gqa", "mla", "hybrid"] | None = None
    checkpoint: str | None = None  # revision or hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Describe what all arms share: engine, machines, load at the peak."""

    engine: str = "vllm"
    version: str | None = None  # the engine's own version string
    gpu: Gpu
    tensor_parallel: int = 1
    gpus_per_replica: int = 1
    replicas: int = 1  # behind one arm's URL: what was measured is theirs together
    max_model_len: int | None = None
    machines: tuple[str, ...] = ()  # distinct machines that served an arm
    swapped: bool = False  # each arm ran on each machine
    peak_agents: int | None = None  # concurrent agents at the user's peak
    load_growth_per_month: float | None = None  # share, 0.05 is five percent
    spare_replicas: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Describe one server configuration under comparison."""

    name: str
    expected_dtype: str | None = None  # what the arms file says: auto, bfloat16, fp8_e4m3, …
    observed_dtype: str | None = None  # what the server says, bfloat16 rather than auto
    kernel: str | None = None  # attention backend read from the server: FLASH_ATTN(FA3), FLASHINFER, …
    skip_layers: tuple[str, ...] = ()  # --kv-cache-dtype-skip-layers
    scales: Scales | None = None  # None for an unquantised cache or when unknown
    prefix_caching: bool | None = None
    flags: tuple[str, ...] = ()  # what else it was started with, word by word, as far as that is known
    all_flags: bool = False  # its log or launch told: what is not among the flags was not set
    weights: str | None = None  # what it was started with, where the model is served under another name
    kv_bytes_per_token: float | None = None  # bytes read per cached token and step, growing layers only, over all GPUs of the replica
    page_bytes: float | None = None  # bytes of one page over all layers of one rank
    pool_tokens: float | None = None  # KV pool as the server reports it
    expected_pool_tokens: float | None = None  # KV pool as the page formula gives it
    max_concurrency: float | None = None  # as the server reports it
    machine: str | None = None  # None when the arm moved between machines
    gpus: int | None = None  # of one replica; None: as many as the deployment's


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadClass:
    """Describe one class of the user's mix and what its own traffic looks like."""

    name: str
    gpu_time_share: float | None = (
        None  # share of the time in which the reference's server was busy, split equally among the calls that were open; None: not seen
    )
    context_tokens: Floats | None = None  # contexts of the user's own calls, for the share that lies outside the tested range
    batch: float | None = None  # sequences that decode together under this user's load
    working_set_tokens: float | None = None  # KV tokens of all sessions alive at the user's peak on one replica, shared prefixes once

    def __post_init__(self) -> None:
        assert self.gpu_time_share is None or 0 <= self.gpu_time_share <= 1, self.gpu_time_share


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Carry one published or fitted figure that was not measured in this run; shown beside, never pooled."""

    what: str  # itl_slope_ms_per_token, itl_intercept_ms, break_even_tokens, decode_ratio_b1, prefill_ratio, …
    arm: str  # name of the arm it speaks about
    value: float
    low: float | None = None
    high: float | None = None
    unit: str
    gpu: str | None = None
    version: str | None = None
    source: str
    dated: str | None = None  # ISO date


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """Hold one cell of the isolation matrix: whether this combination of features starts, answers right and hits its cache."""

    arm: str
    prefix_caching: bool | None = None
    cuda_graphs: bool | None = None
    outcome: Literal["ok", "no start", "crash", "garbage", "no hits"]
    detail: str = ""
