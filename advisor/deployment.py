"""Describe what all arms share: the model, the machines and the load at the user's peak.

A fact that is not known is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFacts:
    """Describe one GPU of the deployment; peaks are the vendor's dense figures."""

    name: str  # as in profiles: H100-SXM, H200-SXM, B200-SXM, A100-80GB
    sm: int | None = None  # compute capability times ten: 80, 89, 90, 100, 120
    bf16_tflops: float | None = None
    fp8_tflops: float | None = None
    hbm_tb_s: float | None = None
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Describe the served model as far as the KV cache and the physics gates need it."""

    name: str
    params: float | None = None  # all weights
    # weights that one token is multiplied with; a dense model's params less its embedding table
    active_params: float | None = None
    weight_bits: int | None = None  # 16, 8, 4
    layers: int | None = None
    full_layers: int | None = None  # layers that attend to the whole context
    window_layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    attention: Literal["gqa", "mla", "hybrid"] | None = None
    checkpoint: str | None = None  # revision or hash


# what one server reads, as a dry run assumes: an ordinary 8B model on one current GPU
PROMPT_TOKENS_PER_S = 10_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionRates:
    """Say what graded questions take, all arms asked at once, by those that were asked before."""

    token_s: float = 1 / PROMPT_TOKENS_PER_S  # a token of a context
    answer_s: float = 0.0
    per_context: int = 1  # questions behind a context, which is read once
    repetitions: int = 1  # how often each item is asked
    # those at each length that are not asked again; None: all that count, evenly
    stored: Mapping[int, int] | None = None

    def minutes(self, questions: Mapping[int, int]) -> float:
        """Return what so many questions take at each length."""
        contexts = sum(length * number for length, number in questions.items()) / self.per_context
        return (contexts * self.token_s + sum(questions.values()) * self.answer_s) / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """Describe what all arms share: engine, machines, load at the peak."""

    engine: str = "vllm"
    version: str | None = None  # the engine's own version string
    gpu: GpuFacts
    tensor_parallel: int = 1
    gpus_per_replica: int = 1
    replicas: int = 1  # behind one arm's URL: what was measured is theirs together
    max_model_len: int | None = None
    machines: tuple[str, ...] = ()  # distinct machines that served an arm
    swapped: bool = False  # each arm ran on each machine
    asking: QuestionRates = QuestionRates()
    peak_agents: int | None = None  # concurrent agents at the user's peak
    load_growth_per_month: float | None = None  # share, 0.05 is five percent
    spare_replicas: int = 0
