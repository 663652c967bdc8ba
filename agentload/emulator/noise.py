"""How a server scatters around the model: slow waves, rare pauses, drift, and a character that each start draws anew.

Noise is bound to segments of steps, not to jumps: a jump that is cut anywhere gives the same instants. Two cards of one type differ by a
few percent, so an arm may also run on a slower machine.
"""

import math
from dataclasses import dataclass, fields, replace
from random import Random
from typing import Final

from agentload.emulator.steptime import PS_PER_MS
from agentload.model.profile import ArmProfile, Noise, StepTime

ONE = 1 << 20
"""A factor of one, as whole numbers have it."""
_TAIL_SHAPE = 2.0
_PS_PER_S = 1000 * PS_PER_MS
_NO_TIMES: Final = frozenset({"batch8_attention", "known_to_batch"})


@dataclass(frozen=True, slots=True)
class Segment:
    """What holds for some steps: all of them `factor / ONE` times as long, and a pause before the first."""

    factor: int
    pause_ps: int


def off(arm: ArmProfile) -> ArmProfile:
    """Return the arm on a deterministic machine."""
    return replace(arm, noise=Noise())


class NoiseSource:
    """Draw one segment after the other; equal seeds and names draw equal ones, as no two servers do."""

    def __init__(self, noise: Noise, *, seed: int, name: str = "") -> None:
        self._noise = noise
        self._rng = Random(f"noise:{seed}:{name}")
        self.is_silent = noise == Noise(segment_steps=noise.segment_steps)
        self._start_log = self._rng.gauss(0.0, noise.restart_sigma)
        self._wave = self._rng.gauss(0.0, noise.sigma)

    def restart(self) -> None:
        """Draw a new character, as a server does that is started again."""
        self._start_log = self._rng.gauss(0.0, self._noise.restart_sigma)
        self._wave = self._rng.gauss(0.0, self._noise.sigma)

    def segment(self, at_ps: int) -> Segment:
        """Draw the next segment, which begins at an instant since the engine's first request."""
        noise = self._noise
        at_s = at_ps / _PS_PER_S
        self._wave = noise.phi * self._wave + math.sqrt(1 - noise.phi**2) * self._rng.gauss(0.0, noise.sigma)
        log = self._wave - noise.sigma**2 / 2 + self._start_log
        factor = math.exp(log) * (1 + noise.drift_per_hour * at_s / 3600)
        for episode in noise.episodes:
            if episode.from_s <= at_s < episode.until_s:
                factor *= episode.factor
        pause_ms = 0.0
        if self._rng.random() < noise.tail_share:
            pause_ms = noise.tail_ms * (1 - self._rng.random()) ** (-1 / _TAIL_SHAPE)
        return Segment(max(1, round(factor * ONE)), round(pause_ms * PS_PER_MS))


def slowed(arm: ArmProfile, factor: float) -> ArmProfile:
    """Return the arm with every part of a step *factor* times as long."""
    if arm.step is None or factor == 1:
        return arm
    times = {each.name: getattr(arm.step, each.name) for each in fields(StepTime) if each.name not in _NO_TIMES}
    step = replace(arm.step, **{name: value * factor for name, value in times.items() if value is not None})
    drafting = None if arm.speculation is None else replace(arm.speculation, draft_ms=arm.speculation.draft_ms * factor)
    return replace(arm, step=step, speculation=drafting)
