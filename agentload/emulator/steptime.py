"""Compute how long one engine step takes, in whole picoseconds.

Whole numbers make K steps jumped at once equal K single steps bit for bit.

    step = host + max(weights + batch8 * s(n), prefill_ms_per_token * n)
                                      everything but attention: a roofline
         + decode_ms_per_token * (1 + batch8_attention * s'(b)) * C
                                      decode attention: bound by memory
         + prefill_ms_per_pair * pairs
                                      prefill attention: bound by compute

with n tokens in the step, b decoding sequences, C the sum of their cached
tokens, and s(1) = 0, s(8) = 1: for a mixture of experts s follows the expected
number of distinct experts read, else it saturates as 1 - 1/n; s' always does.

A server scatters around this model: slow waves, rare pauses, drift, and a
character that each start draws again. Noise is bound to segments of steps, not
to jumps: a jump that is cut anywhere gives the same instants. Two cards of one
type differ by a few percent, so an arm may also run on a slower machine.
"""

import math
from dataclasses import dataclass, field, fields, replace
from random import Random
from typing import Final

from agentload.model.profile import ArmProfile, Experts, Noise, Speculation, StepTime

PS_PER_MS = 10**9
_PS_PER_S = 1000 * PS_PER_MS


def saturation(n: int) -> float:
    """Return the share of a dense batch's extra cost for *n* tokens: 0 for one, 1 for eight."""
    return (1 - 1 / n) * 8 / 7


def distinct_experts(experts: Experts, n: int) -> float:
    """Return the share of a batch's extra cost for a mixture of experts: 0 for one, 1 for eight.

    It follows the expected number of distinct experts that *n* tokens read.
    """
    missed = 1 - experts.active / experts.total
    return float((missed - missed**n) / (missed - missed**8))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepClock:
    """Compute the step time of one arm, tabulated by batch size."""

    step: StepTime
    experts: Experts | None
    max_seqs: int
    speculation: Speculation | None = None
    base_ps: tuple[int, ...] = field(init=False)
    """Time of a step without any cached token, by number of decoding sequences."""
    per_token_ps: tuple[int, ...] = field(init=False)
    """Decode attention per cached token, by number of decoding sequences."""
    _bound_ms: float = field(init=False)
    """Longest time of reading weights; prefill work beyond it alone decides the step."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_bound_ms", self._weights_ms(1 << 20))
        draft_ms = self.speculation.draft_ms if self.speculation else 0.0
        lost = self.step.batch8_attention or 0.0
        slope = self.step.decode_ms_per_token * PS_PER_MS
        base = [0]
        per_token = [0]
        for decoding in range(1, self.max_seqs + 1):
            linear_ms = self.linear_ms(decoding * self._verified)
            base.append(round((linear_ms + draft_ms) * PS_PER_MS))
            per_token.append(round(slope * (1 + lost * saturation(decoding))))
        object.__setattr__(self, "base_ps", tuple(base))
        object.__setattr__(self, "per_token_ps", tuple(per_token))

    @property
    def _verified(self) -> int:
        """Tokens that a step computes of each decoding sequence."""
        return 1 + (self.speculation.drafts if self.speculation else 0)

    def _weights_ms(self, n: int) -> float:
        """Return how long a step of *n* tokens reads weights."""
        extra = distinct_experts(self.experts, n) if self.experts else saturation(n)
        return self.step.weights_ms + (self.step.batch8_ms or 0.0) * extra

    def linear_ms(self, n: int) -> float:
        """Return the time of a step of *n* tokens without attention."""
        step = self.step
        prefill_ms = step.prefill_ms_per_token * n
        if prefill_ms >= self._bound_ms:
            return step.decode_ms - step.weights_ms + prefill_ms
        return step.decode_ms - step.weights_ms + max(self._weights_ms(n), prefill_ms)

    def mixed_ps(
        self, decoding: int, cached_tokens: int, chunk_tokens: int, twice_pairs: int
    ) -> int:
        """Return the time of a step with prefill chunks, in ps.

        The chunks attend to `twice_pairs / 2` causal pairs.
        """
        linear_ms = self.linear_ms(decoding * self._verified + chunk_tokens)
        compute_ms = linear_ms + self.step.prefill_ms_per_pair * twice_pairs / 2
        return round(compute_ms * PS_PER_MS) + self.per_token_ps[decoding] * cached_tokens

    def host_ps(self, prompt_tokens: int) -> int:
        """Return the time to tokenise and hash a prompt before the scheduler sees it, in ps."""
        return round(self.step.host_ms_per_token * prompt_tokens * PS_PER_MS)


def prefill_s(arm: ArmProfile, tokens: int) -> float:
    """Return how long an idle server takes to read a prompt and start its answer."""
    assert arm.step is not None, arm.name
    step = arm.step
    chunk = arm.server.max_num_batched_tokens
    clock = StepClock(step=step, experts=arm.model.experts, max_seqs=1)
    whole, left = divmod(tokens, chunk)
    linear_ms = whole * clock.linear_ms(chunk) + (clock.linear_ms(left) if left else 0.0)
    pairs_ms = step.prefill_ms_per_pair * tokens**2 / 2
    return (linear_ms + pairs_ms + step.host_ms_per_token * tokens) / 1000


def decode_s(arm: ArmProfile, batch: int, context: int) -> float:
    """Return the time of a step that decodes *batch* sequences of *context* tokens each."""
    assert arm.step is not None, arm.name
    clock = StepClock(
        step=arm.step, experts=arm.model.experts, max_seqs=batch, speculation=arm.speculation
    )
    attention_ps = clock.per_token_ps[batch] * batch * context
    return (clock.base_ps[batch] + attention_ps) / _PS_PER_S


ONE = 1 << 20
"""The factor 1 in fixed point."""
_TAIL_SHAPE = 2.0
_NO_TIMES: Final = frozenset({"batch8_attention", "known_to_batch"})


class StepNoise:
    """Hold the noise of some steps: each lasts `factor / ONE` times as long, after one pause."""

    __slots__ = ("factor", "pause_ps")

    def __init__(self, factor: int, pause_ps: int) -> None:
        self.factor = factor
        self.pause_ps = pause_ps


def off(arm: ArmProfile) -> ArmProfile:
    """Return the arm on a machine without noise."""
    return replace(arm, noise=Noise())


class NoiseSource:
    """Draw one noise segment after the other; equal seeds and names draw equal segments.

    No two servers are equal, so a server's name is part of the seed.
    """

    def __init__(self, noise: Noise, *, seed: int, name: str = "") -> None:
        self._noise = noise
        self._rng = Random(f"noise:{seed}:{name}")
        self.is_silent = noise == Noise(segment_steps=noise.segment_steps)
        self._fresh = math.sqrt(1 - noise.phi**2)
        self._start_log = self._rng.gauss(0.0, noise.restart_sigma)
        self._wave = self._rng.gauss(0.0, noise.sigma)

    def restart(self) -> None:
        """Draw a new character, as a restarted server has."""
        self._start_log = self._rng.gauss(0.0, self._noise.restart_sigma)
        self._wave = self._rng.gauss(0.0, self._noise.sigma)

    def segment(self, at_ps: int) -> StepNoise:
        """Draw the next segment, which starts *at_ps* after the engine's first request."""
        noise = self._noise
        at_s = at_ps / _PS_PER_S
        self._wave = noise.phi * self._wave + self._fresh * self._rng.gauss(0.0, noise.sigma)
        log = self._wave - noise.sigma**2 / 2 + self._start_log
        factor = math.exp(log) * (1 + noise.drift_per_hour * at_s / 3600)
        for episode in noise.episodes:
            if episode.from_s <= at_s < episode.until_s:
                factor *= episode.factor
        pause_ms = 0.0
        if self._rng.random() < noise.tail_share:
            pause_ms = noise.tail_ms * (1 - self._rng.random()) ** (-1 / _TAIL_SHAPE)
        return StepNoise(max(1, round(factor * ONE)), round(pause_ms * PS_PER_MS))


def slower_arm(arm: ArmProfile, factor: float) -> ArmProfile:
    """Return the arm with every part of a step *factor* times as long."""
    if arm.step is None or factor == 1:
        return arm
    longer = {}
    for each in fields(StepTime):
        time = getattr(arm.step, each.name)
        if time is not None and each.name not in _NO_TIMES:
            longer[each.name] = time * factor
    step = replace(arm.step, **longer)
    drafting = arm.speculation
    if drafting is not None:
        drafting = replace(drafting, draft_ms=drafting.draft_ms * factor)
    encoder = None if arm.encoder is None else arm.encoder.slower(factor)
    return replace(arm, step=step, speculation=drafting, encoder=encoder)
