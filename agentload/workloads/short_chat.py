"""Short web chats: a small prompt, a few turns, answers of a paragraph."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import Final

from agentload.model.trace import Segment, Session
from agentload.plugins import Peak, Positive, Rate, Spread
from agentload.workloads.parts.draws import geometric, lognormal, quantiles, seconds, tokens
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import Target
from agentload.workloads.parts.times import starts

# Azure 2023 conversation trace (Azure/AzurePublicDataset): contexts q50 1,020 and q90 2,735, answers q50 129, q90 424, q99 601.
_SYSTEM: Final = 300  # judgement
_FIRST: Final = lognormal(1_020, 0.77, _SYSTEM + 3, 8_000)
_ANSWER: Final = quantiles((0, 4), (0.10, 40), (0.50, 129), (0.90, 424), (0.99, 601), (1, 1_000))  # q10: a lognormal's, sigma 0.93
_FURTHER: Final = lognormal(20, 1.1, 3, 2_000)  # user messages of pi sessions (badlogic/pi-mono)
# Mooncake conversation trace, linked by blocks: turns q90 3, q99 8; gaps q10/50/90 42/123/483 s (kvcache-ai/Mooncake).
_TURNS: Final = geometric(0.8, low=1)
_GAP: Final = quantiles((0, 3), (0.10, 42), (0.50, 123), (0.90, 483), (1, 3_600))

PREFIXES: Final = {"short_chat": (Segment(role="system", tokens=_SYSTEM, key="short_chat.system"),)}
TARGETS: Final = {
    "first": Target(1_020, 2_735),
    "output": Target(129, 424),
    "calls": Target(1, 3),
    "wait.user": Target(123, 483),
}


def generate(rng: Random, *, sessions: Positive = 500, rate_per_s: Rate = 1.0, cv: Spread = 1.1, peak: Peak = 1.0) -> Iterator[Session]:
    """Yield `sessions` sessions."""
    # CV 1.09: the same Azure trace.
    for number, start_s in enumerate(islice(starts(rng, rate_per_s=rate_per_s, cv=cv, peak=peak), sessions)):
        talk = Talk(f"short_chat-{number}", workload="short_chat", prefix="short_chat", leads=PREFIXES["short_chat"])
        for turn in range(round(_TURNS(rng.random()))):
            talk.add("user", tokens(rng, _FURTHER) if turn else tokens(rng, _FIRST) - _SYSTEM)
            talk.call(tokens(rng, _ANSWER), Pause("user", seconds(rng, _GAP)) if turn else NO_PAUSE)
        yield talk.session(start_s)
