"""A deployment as data: hardware, model geometry, timing coefficients, noise, accuracy, price, SLO.

A profile is what was published or fitted about a deployment; each
of its arms is one KV-cache configuration of the same server.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, field

from agentload.model.kv import KvDtype
from agentload.model.record import Record

Figure: TypeAlias = Annotated[float, Meta(ge=0, le=1e18)]
Positive: TypeAlias = Annotated[float, Meta(gt=0, le=1e18)]
"""A figure that is divided by, or whose absence would mean a missing machine."""
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Number: TypeAlias = Annotated[int, Meta(ge=0, le=10**18)]
Many: TypeAlias = Annotated[int, Meta(ge=1, le=10**18)]
LayerKind: TypeAlias = Literal["full", "sliding", "chunked", "mla", "mamba"]


class Gpu(Record):
    """One accelerator, by its vendor's peak figures."""

    name: str
    memory_gib: Positive
    """What the driver reports as total."""
    bandwidth_tb_s: Positive
    bf16_tflops: Positive
    """Dense, without sparsity."""
    compute_capability: Number
    """90 is Hopper, 100 Blackwell."""
    fp8_tflops: Positive | None = None


class LayerGroup(Record):
    """Layers of one kind that keep the same state per token."""

    kind: LayerKind
    layers: Many
    kv_heads: Many = 1
    head_dim: Number = 0
    """Size of a key; for MLA the latent with its rotary part."""
    window: Many | None = None
    """Tokens that a sliding layer sees, or the chunk of a chunked one."""
    state_bytes: Number = 0
    """Fixed state of one mamba layer and sequence."""
    numbers: tuple[Number, ...] = ()
    """Which layers of the model these are; () where nobody needs to know."""


class Experts(Record):
    """How a mixture of experts routes: every token reads `active` of `total`."""

    total: Many
    active: Many


class ModelShape(Record):
    """The geometry of a model, as far as memory and step time depend on it."""

    name: str
    groups: tuple[LayerGroup, ...]
    """() where the geometry is not known; nothing can be computed from it then."""
    max_len: Many
    heads: Many | None = None
    """Query heads of a full-attention layer."""
    weight_gib: Positive | None = None
    """Loaded weights on one GPU; None: unknown, the pool must then be given in bytes."""
    weight_bits: Number | None = None
    """Of one stored weight: 16, 8, 4."""
    active_parameters: Figure | None = None
    """Weights that a prompt token is multiplied with, for compute
    floors: neither the embedding table nor the output head.
    """
    experts: Experts | None = None


class StepTime(Record):
    """Coefficients of one engine step, in ms; `docs/emulator.md` has the equation."""

    decode_ms: Positive
    """One sequence without context: weights, launches, host. The intercept of the ITL line."""
    decode_ms_per_token: Figure
    """Decode attention per cached token. The slope of the ITL line."""
    prefill_ms_per_token: Figure
    """Everything but attention, when compute-bound."""
    prefill_ms_per_pair: Figure
    """Prefill attention per causal pair of tokens."""
    weights_ms: Figure
    """Part of `decode_ms` that is reading weights:
    hidden under the prefill work of a large step.
    """
    host_ms_per_token: Figure = 0.0
    """Tokenising and hashing a prompt before the scheduler sees it; the GPU goes on meanwhile."""
    batch8_ms: Figure | None = None
    """What a batch of 8 costs over a batch of 1, attention apart.

    None: unknown, taken as 0 and so a lower bound.
    """
    batch8_attention: Figure | None = None
    """Share of decode-attention bandwidth that a batch of 8 loses.

    None: unknown, taken as 0 and so a lower bound.
    """
    known_to_batch: Many = 1
    """Largest batch that the data behind these numbers cover; beyond it the model extrapolates."""


class EncoderTime(Record):
    """Coefficients of encoding one image before the language model reads it, in ms.

    A token is one of the context: what the encoder makes of 28 x 28 pixels.
    """

    ms_per_token: Figure
    """Everything that grows with the image: layers, and attention inside windows."""
    ms_per_pair: Figure = 0.0
    """Attention of the whole image to itself, for each pair of its tokens."""

    def image_ms(self, tokens: int) -> float:
        """Return the time of an image of so many tokens."""
        return self.ms_per_token * tokens + self.ms_per_pair * tokens**2

    def slower(self, factor: float) -> "EncoderTime":
        """Return the same on a machine that takes *factor* times as long."""
        return EncoderTime(
            ms_per_token=self.ms_per_token * factor, ms_per_pair=self.ms_per_pair * factor
        )


class Episode(Record):
    """A span of time in which every step is slower: a noisy neighbour, a throttled clock.

    Seconds since the engine's first request.
    """

    from_s: Figure
    until_s: Figure
    factor: Positive


class Noise(Record):
    """How a server's steps scatter around the model; everything 0 is a deterministic machine."""

    sigma: Figure = 0.0
    """Standard deviation of the log step time, as slow waves."""
    phi: Annotated[float, Meta(ge=0, le=0.999)] = 0.0
    """AR(1) correlation from one segment of steps to the next."""
    segment_steps: Many = 64
    """Steps that share one factor."""
    tail_share: Share = 0.0
    """Share of segments that begin with a pause."""
    tail_ms: Figure = 0.0
    """Scale of that pause; Pareto with shape 2, so rare ones are much longer."""
    restart_sigma: Figure = 0.0
    """Standard deviation of the log factor that one server start draws for all its life."""
    drift_per_hour: Figure = 0.0
    """Relative slow-down an hour."""
    episodes: tuple[Episode, ...] = ()


class Speculation(Record):
    """Draft some tokens a step and keep those that verify."""

    drafts: Many
    acceptance: Share
    """Chance that a draft is kept, given that the one before it was."""
    draft_ms: Figure = 0.0
    """Time of drafting, per step."""
    method: str = "ngram"
    """How a real server is told to draft."""


class Accuracy(Record):
    """One published or assumed score of an arm."""

    task: str
    percent: Annotated[float, Meta(ge=0, le=100)]
    source: str
    context_tokens: Number | None = None
    """None: the task has no context axis."""
    depth: tuple[Share, ...] = ()
    """From where to where of the context the score holds: [0.25,
    0.5]; (): wherever no other row of the task says otherwise.
    """
    repetitions: Number | None = None
    note: str | None = None


class Logprobs(Record):
    """How far an arm's log probabilities are off the
    model's, and how many of them its server lists.
    """

    error: Figure = 0.0
    """Standard deviation of a logit's error that is the same whenever it is asked."""
    broken_from: Number | None = None
    """Context from which on the error is another: a kernel that breaks there."""
    broken_error: Figure = 0.0
    batch: Figure = 0.0
    """Standard deviation of what the rest of a prompt, and
    requests that are served beside it, add to a logit.
    """
    most: Number = 20
    """For each token; asked for more, the server refuses. 0: none at all."""
    crash_above: Number | None = None
    """Asked for more of a prompt's own tokens, the server dies; None: it does not."""


class LoadTest(Record):
    """One published load test of an arm: a closed loop of equal clients."""

    requests: Many
    concurrency: Many
    ttft_ms: Figure
    """Median."""
    itl_ms: Figure
    """Median."""
    duration_s: Figure
    output_tok_s: Figure
    source: str


class OffloadTier(Record):
    """A second tier of the KV cache, where blocks are read from instead of computed again."""

    gib: Figure
    gb_per_s: Positive
    """At which blocks are read back."""
    outlives_restarts: bool = False
    """Whether a restarted server finds its blocks there: a store, not its own memory."""


class Server(Record):
    """Settings of the serving engine that an arm runs with."""

    software: str
    max_model_len: Many
    backend: str | None = None
    block_tokens: Many = 16
    max_num_batched_tokens: Many = 8192
    max_num_seqs: Many = 256
    max_waiting: Number | None = None
    """Refuse requests beyond this queue length; None queues without end."""
    gpu_memory_utilization: Share = 0.9
    overhead_gib: Figure = 0.0
    """Activations and captured graphs: inside the utilisation, not in the pool."""
    kv_cache_memory_bytes: Number | None = None
    """Pool size as set by hand; overrides the utilisation."""
    prefix_caching: bool = True
    offload: OffloadTier | None = None


class ArmProfile(Record):
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


class PublishedSlo(Record):
    """A service level that others have set, to begin with."""

    name: str
    source: str
    ttft_ms: Figure | None = None
    tpot_ms: Figure | None = None
    turn_ms: Figure | None = None
    share: Share = 0.95
    """Of the calls that have to hold it."""


class Price(Record):
    """What one GPU costs an hour, as listed by somebody at some time."""

    usd_per_gpu_hour: Figure
    source: str


class Source(Record):
    """Where numbers came from."""

    key: str
    title: str
    where: str
    date: str | None = None


class Provenance(Record):
    """Say which numbers were published, fitted, predicted
    or assumed, and where the model extrapolates.
    """

    published: str
    fitted: str
    predicted: str
    assumed: str
    extrapolates: str


class Profile(Record):
    """A deployment: the same model on the same hardware in several KV-cache configurations."""

    name: str
    title: str
    sources: tuple[Source, ...]
    provenance: Provenance
    arms: tuple[ArmProfile, ...]
    slos: tuple[PublishedSlo, ...] = ()
    price: Price | None = None
