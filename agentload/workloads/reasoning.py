"""Reasoning models: short questions, long answers, thinking dropped from the history."""

from collections.abc import Iterator
from random import Random
from typing import Final, Literal

from agentload.model.record import Record
from agentload.model.trace import Segment, Session
from agentload.plugins import Share
from agentload.workloads.parts.draws import (
    Distribution,
    WeightedChoice,
    even,
    exponential,
    happens,
    lognormal,
    quantiles,
    seconds,
    tokens,
)
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import QuantileTarget
from agentload.workloads.parts.times import PI_USER, ArrivalProcess

# ServeGen deepseek-r1 (alibaba/ServeGen, complete): a day of its 73 clients
# drawn, evened with its first hour, and the share of thinking in an answer. Its
# requests have no sessions: a question is a whole prompt.
_R1_QUESTION: Final = quantiles(
    (0, 4),
    (0.10, 17),
    (0.25, 36),
    (0.50, 190),
    (0.75, 430),
    (0.90, 1_250),
    (0.95, 5_300),
    (0.99, 21_800),
    (1, 34_000),
)
_R1_ANSWER: Final = quantiles(
    (0, 60),
    (0.10, 300),
    (0.25, 450),
    (0.50, 850),
    (0.75, 1_450),
    (0.90, 2_650),
    (0.95, 4_600),
    (0.99, 12_000),
    (1, 32_000),
)
_THINKING: Final = quantiles(
    (0, 0.05), (0.10, 0.37), (0.25, 0.54), (0.50, 0.79), (0.75, 0.91), (0.90, 0.96), (1, 0.99)
)
_TURNS: Final = WeightedChoice((0.9, 0.07, 0.03))  # 1 to 3 turns: judgement, as is what follows
_FURTHER: Final = lognormal(20, 1.1, 3, 2_000)
_HANDED_ON: Final = Pause("tool", 0.0)  # from the planner, by a program
_TENANTS: Final = 12
# Ten of 73 clients make most requests.
_TENANT: Final = WeightedChoice(tuple(rank**-1.2 for rank in range(1, _TENANTS + 1)))
_OWN_PROMPT: Final = 0.15  # of a question, as far as its tenant has asked for so much: judgement


class _Preset(Record, kw_only=False):
    question: Distribution
    answer: Distribution


_PRESETS: Final = {
    "r1": _Preset(_R1_QUESTION, _R1_ANSWER),
    # answers of inference-perf's reasoning workload
    "heavy": _Preset(_R1_QUESTION, exponential(8_000, 64, 32_000)),
}

PREFIXES: Final[dict[str, tuple[Segment, ...]]] = {}
REAL: Final = "ServeGen deepseek-r1 (alibaba): single calls without sessions or contents"
UNSAID: Final = "turns, waits, system prompts and what of them is shared, effort asked for"
TARGETS: Final = {
    "context": QuantileTarget(200, 1_500, 22_000),
    "output": QuantileTarget(850, 2_650, 12_000),
    "thinking": QuantileTarget(0.79, 0.96),
}


def generate(
    rng: Random,
    *,
    arrivals: ArrivalProcess = ArrivalProcess(sessions=200, rate_per_s=0.2),
    preset: Literal["r1", "heavy"] = "r1",
    effort: Literal["unsaid", "said"] = "unsaid",
    planner: Share = 0.0,
) -> Iterator[Session]:
    """Yield `sessions` sessions; the preset `heavy` answers with
    8,000 tokens on average, and `effort=said` asks for one a turn. A `planner` share of them
    begins with a plan, which the next call gets with all the reasoning that led to it.
    """
    # Clients of the same ServeGen trace: CV q50 1.0, q75 1.9.
    lengths = _PRESETS[preset]
    evenly = even(rng, 1)
    for number, start_s in enumerate(arrivals.draw(rng)):
        talk = Talk(f"reasoning-{number}", workload="reasoning")
        question = max(2, round(lengths.question(next(evenly)[0])))
        # A shorter segment of a key is a prefix of a longer one: questions
        # to a tenant begin with as much of its prompt as they have.
        system = max(1, round(question * _OWN_PROMPT))
        talk.add("system", system, f"reasoning.tenant{_TENANT.pick(rng)}")
        asked = question - system
        has_plan = planner > 0 and happens(rng, planner)
        if has_plan:
            talk.add("user", asked)
            output, thinking = _answer(rng, lengths.answer)
            talk.call(output, NO_PAUSE, thinking=thinking, remembered=output)
            asked = tokens(rng, _FURTHER)
        pause = _HANDED_ON if has_plan else NO_PAUSE
        for turn in range(_TURNS.pick(rng) + 1):
            talk.add("user", tokens(rng, _FURTHER) if turn else asked)
            output, thinking = _answer(rng, lengths.answer)
            if turn:
                pause = Pause("user", seconds(rng, PI_USER))
            asks: tuple[tuple[str, str], ...] = ()
            if effort == "said":
                asks = (("reasoning_effort", f'"{_effort(thinking)}"'),)
            # Templates of Qwen and DeepSeek drop the thinking of earlier turns.
            talk.call(output, pause, thinking=thinking, remembered=output - thinking, asks=asks)
        yield talk.session(start_s)


def _answer(rng: Random, lengths: Distribution) -> tuple[int, int]:
    """Draw an answer's tokens, and how many of them are thinking."""
    output = tokens(rng, lengths)
    return output, min(output - 1, round(output * _THINKING(rng.random())))


def _effort(thinking: int) -> str:
    """Name the effort that this many tokens of
    thinking are: thirds of the answers, by judgement.
    """
    if thinking < 400:
        return "low"
    if thinking < 1_200:
        return "medium"
    return "high"
