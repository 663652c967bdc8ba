"""Reasoning models: short questions, long answers, thinking dropped from the history."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Final, Literal

from agentload.model.trace import Segment, Session
from agentload.plugins import Peak, Positive, Rate, Spread
from agentload.workloads.parts.draws import Choice, Distribution, exponential, quantiles, seconds, tokens
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import Target
from agentload.workloads.parts.times import PI_USER, starts

# ServeGen deepseek-r1 (alibaba/ServeGen, complete): lengths at q10/25/50/75/90/95/99, and the share of thinking in an answer.
_R1_QUESTION: Final = quantiles(
    (0, 4), (0.10, 22), (0.25, 50), (0.50, 208), (0.75, 620), (0.90, 1_978), (0.95, 5_993), (0.99, 24_118), (1, 28_000)
)
_R1_ANSWER: Final = quantiles(
    (0, 60), (0.10, 286), (0.25, 422), (0.50, 864), (0.75, 1_718), (0.90, 4_489), (0.95, 6_810), (0.99, 13_834), (1, 32_000)
)
_THINKING: Final = quantiles((0, 0.05), (0.10, 0.37), (0.25, 0.54), (0.50, 0.79), (0.75, 0.91), (0.90, 0.96), (1, 0.99))
_TURNS: Final = Choice((0.6, 0.25, 0.15))  # 1 to 3 turns: judgement
_VARIANTS: Final = 6


@dataclass(frozen=True, slots=True)
class _Preset:
    question: Distribution
    answer: Distribution


_PRESETS: Final = {
    "r1": _Preset(_R1_QUESTION, _R1_ANSWER),
    "heavy": _Preset(_R1_QUESTION, exponential(8_000, 64, 32_000)),  # answers of inference-perf's reasoning workload
}

PREFIXES: Final = {  # system prompts of 250 to 500 tokens: judgement
    f"reasoning{number}": (Segment(role="system", tokens=250 + 50 * number, key=f"reasoning.system{number}"),)
    for number in range(_VARIANTS)
}
TARGETS: Final = {"user": Target(208, 1_978), "output": Target(864, 4_489), "thinking": Target(0.79, 0.96)}


def generate(
    rng: Random,
    *,
    sessions: Positive = 200,
    rate_per_s: Rate = 0.2,
    cv: Spread = 1.0,
    peak: Peak = 1.0,
    preset: Literal["r1", "heavy"] = "r1",
) -> Iterator[Session]:
    """Yield `sessions` sessions; the preset `heavy` answers with 8,000 tokens on average."""
    # Clients of the same ServeGen trace: CV q50 1.0, q75 1.9.
    lengths = _PRESETS[preset]
    for number, start_s in enumerate(islice(starts(rng, rate_per_s=rate_per_s, cv=cv, peak=peak), sessions)):
        variant = f"reasoning{int(rng.random() * _VARIANTS)}"
        talk = Talk(f"reasoning-{number}", workload="reasoning", prefix=variant, leads=PREFIXES[variant])
        for turn in range(_TURNS.pick(rng) + 1):
            talk.add("user", tokens(rng, lengths.question))
            output = tokens(rng, lengths.answer)
            thinking = min(output - 1, round(output * _THINKING(rng.random())))
            # Templates of Qwen and DeepSeek drop the thinking of earlier turns.
            pause = Pause("user", seconds(rng, PI_USER)) if turn else NO_PAUSE
            talk.call(output, pause, thinking=thinking, remembered=output - thinking)
        yield talk.session(start_s)
