"""A deployment as data: hardware, model geometry, timing coefficients, noise, accuracy, price, SLO.

A profile is what was published or fitted about a deployment; each
of its arms is one KV-cache configuration of the same server.
"""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from agentload.model.kv import KvDtype

LayerKind: TypeAlias = Literal["full", "sliding", "chunked", "mla", "mamba", "cross"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator, by its vendor's peak figures."""

    name: str
    memory_gib: float
    """What the driver reports as total."""
    bandwidth_tb_s: float
    bf16_tflops: float
    """Dense, without sparsity."""
    compute_capability: int
    """90 is Hopper, 100 Blackwell."""
    fp8_tflops: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """Layers of one kind that keep the same state per token."""

    kind: LayerKind
    layers: int
    kv_heads: int = 1
    head_dim: int = 0
    """Size of a key; for MLA the latent with its rotary part."""
    head_dim_v: int | None = None
    """Size of a value; None: as a key."""
    window: int | None = None
    """Tokens that a sliding layer sees, or the chunk of a chunked one."""
    state_bytes: int = 0
    """Fixed state of one mamba layer and sequence."""
    source_tokens: int = 0
    """Tokens of the encoder that a cross-attention layer looks at."""
    numbers: tuple[int, ...] = ()
    """Which layers of the model these are; () where nobody needs to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """How a mixture of experts routes: every token reads `active` of `total`."""

    total: int
    active: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The geometry of a model, as far as memory and step time depend on it."""

    name: str
    groups: tuple[LayerGroup, ...]
    """() where the geometry is not known; nothing can be computed from it then."""
    max_len: int
    heads: int | None = None
    """Query heads of a full-attention layer."""
    weight_gib: float | None = None
    """Loaded weights on one GPU; None: unknown, the pool must then be given in bytes."""
    weight_bits: int | None = None
    """Of one stored weight: 16, 8, 4."""
    active_parameters: float | None = None
    """Weights that a prompt token is multiplied with, for compute
    floors: neither the embedding table nor the output head.
    """
    experts: Experts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """Coefficients of one engine step, in ms; `docs/emulator.md` has the equation."""

    decode_ms: float
    """One sequence without context: weights, launches, host. The intercept of the ITL line."""
    decode_ms_per_token: float
    """Decode attention per cached token. The slope of the ITL line."""
    prefill_ms_per_token: float
    """Everything but attention, when compute-bound."""
    prefill_ms_per_pair: float
    """Prefill attention per causal pair of tokens."""
    weights_ms: float
    """Part of `decode_ms` that is reading weights:
    hidden under the prefill work of a large step.
    """
    host_ms_per_token: float = 0.0
    """Tokenising and hashing a prompt before the scheduler sees it; the GPU goes on meanwhile."""
    batch8_ms: float | None = None
    """What a batch of 8 costs over a batch of 1, attention apart.

    None: unknown, taken as 0 and so a lower bound.
    """
    batch8_attention: float | None = None
    """Share of decode-attention bandwidth that a batch of 8 loses.

    None: unknown, taken as 0 and so a lower bound.
    """
    known_to_batch: int = 1
    """Largest batch that the data behind these numbers cover; beyond it the model extrapolates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderTime:
    """Coefficients of encoding one image before the language model reads it, in ms.

    A token is one of the context: what the encoder makes of 28 x 28 pixels.
    """

    ms_per_token: float
    """Everything that grows with the image: layers, and attention inside windows."""
    ms_per_pair: float = 0.0
    """Attention of the whole image to itself, for each pair of its tokens."""

    def image_ms(self, tokens: int) -> float:
        """Return the time of an image of so many tokens."""
        return self.ms_per_token * tokens + self.ms_per_pair * tokens**2

    def slower(self, factor: float) -> "EncoderTime":
        """Return the same on a machine that takes *factor* times as long."""
        return EncoderTime(
            ms_per_token=self.ms_per_token * factor, ms_per_pair=self.ms_per_pair * factor
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A span of time in which every step is slower: a noisy neighbour, a throttled clock.

    Seconds since the engine's first request.
    """

    from_s: float
    until_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """How a server's steps scatter around the model; everything 0 is a deterministic machine."""

    sigma: float = 0.0
    """Standard deviation of the log step time, as slow waves."""
    phi: float = 0.0
    """AR(1) correlation from one segment of steps to the next."""
    segment_steps: int = 64
    """Steps that share one factor."""
    tail_share: float = 0.0
    """Share of segments that begin with a pause."""
    tail_ms: float = 0.0
    """Scale of that pause; Pareto with shape 2, so rare ones are much longer."""
    restart_sigma: float = 0.0
    """Standard deviation of the log factor that one server start draws for all its life."""
    drift_per_hour: float = 0.0
    """Relative slow-down an hour."""
    episodes: tuple[Episode, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """Draft some tokens a step and keep those that verify."""

    drafts: int
    acceptance: float
    """Chance that a draft is kept, given that the one before it was."""
    draft_ms: float = 0.0
    """Time of drafting, per step."""
    method: str = "ngram"
    """How a real server is told to draft."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accuracy:
    """One published or assumed score of an arm."""

    task: str
    percent: float
    source: str
    context_tokens: int | None = None
    """None: the task has no context axis."""
    depth: tuple[float, ...] = ()
    """From where to where of the context the score holds: [0.25,
    0.5]; (): wherever no other row of the task says otherwise.
    """
    repetitions: int | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logprobs:
    """How far an arm's log probabilities are off the
    model's, and how many of them its server lists.
    """

    error: float = 0.0
    """Standard deviation of a logit's error that is the same whenever it is asked."""
    broken_from: int | None = None
    """Context from which on the error is another: a kernel that breaks there."""
    broken_error: float = 0.0
    batch: float = 0.0
    """Standard deviation of what the rest of a prompt, and
    requests that are served beside it, add to a logit.
    """
    most: int = 20
    """For each token; asked for more, the server refuses. 0: none at all."""
    crash_above: int | None = None
    """Asked for more of a prompt's own tokens, the server dies; None: it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTest:
    """One published load test of an arm: a closed loop of equal clients."""

    requests: int
    concurrency: int
    ttft_ms: float
    """Median."""
    itl_ms: float
    """Median."""
    duration_s: float
    output_tok_s: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadTier:
    """A second tier of the KV cache, where blocks are read from instead of computed again."""

    gib: float
    gb_per_s: float
    """At which blocks are read back."""
    outlives_restarts: bool = False
    """Whether a restarted server finds its blocks there: a store, not its own memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Settings of the serving engine that an arm runs with."""

    software: str
    max_model_len: int
    backend: str | None = None
    block_tokens: int = 16
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 256
    max_waiting: int | None = None
    """Refuse requests beyond this queue length; None queues without end."""
    gpu_memory_utilization: float = 0.9
    overhead_gib: float = 0.0
    """Activations and captured graphs: inside the utilisation, not in the pool."""
    kv_cache_memory_bytes: int | None = None
    """Pool size as set by hand; overrides the utilisation."""
    prefix_caching: bool = True
    offload: OffloadTier | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmProfile:
    """One KV-cache configuration of a profile: everything the emulated engine needs to know."""

    name: str
    profile: str
    gpu: Gpu
    model: ModelShape
    server: Server
    kv_dtype: KvDtype
    skip_layers: tuple[str, ...] = ()
    """Layers that stay at two bytes: `sliding_window`, or layer numbers."""
    step: StepTime | None = None
    """None: only accuracy is known; a latency is refused, never guessed."""
    encoder: EncoderTime | None = None
    """None: images cost what their tokens cost."""
    noise: Noise = field(default_factory=Noise)
    speculation: Speculation | None = None
    accuracy: tuple[Accuracy, ...] = ()
    failure: Literal["miss", "repetition"] = "miss"
    """What an emulated answer that fails looks like: a
    wrong value, or garbage as a broken kernel makes it.
    """
    logprobs: Logprobs = field(default_factory=Logprobs)
    load_tests: tuple[LoadTest, ...] = ()
    synthetic: bool = False
    """Invented for demonstrations; no deployment was ever measured."""
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedSlo:
    """A service level that others have set, to begin with."""

    name: str
    source: str
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    turn_ms: float | None = None
    share: float = 0.95
    """Of the calls that have to hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What one GPU costs an hour, as listed by somebody at some time."""

    usd_per_gpu_hour: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where numbers came from."""

    key: str
    title: str
    where: str
    date: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Say which numbers were published, fitted, predicted
    or assumed, and where the model extrapolates.
    """

    published: str
    fitted: str
    predicted: str
    assumed: str
    extrapolates: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A deployment: the same model on the same hardware in several KV-cache configurations."""

    name: str
    title: str
    sources: tuple[Source, ...]
    provenance: Provenance
    arms: tuple[ArmProfile, ...]
    slos: tuple[PublishedSlo, ...] = ()
    price: Price | None = None
