"""Short web chats: a small prompt, a few turns, answers of a paragraph."""

from collections.abc import Iterator
from random import Random
from typing import Final

from agentload.model.trace import Segment, Session
from agentload.workloads.parts.draws import geometric, lognormal, quantiles, seconds, tokens
from agentload.workloads.parts.talk import NO_PAUSE, Pause, Talk
from agentload.workloads.parts.targets import QuantileTarget
from agentload.workloads.parts.times import ArrivalProcess

# Azure 2023 conversation trace (Azure/AzurePublicDataset): lengths at
# q10/25/50/75/90/95/99. Its requests have no sessions, and those of further
# turns are among them, so first ones are drawn a little shorter.
_SYSTEM: Final = 100  # judgement
_FIRST: Final = quantiles(
    (0, _SYSTEM + 20),
    (0.10, 180),
    (0.25, 345),
    (0.50, 920),
    (0.75, 1_150),
    (0.90, 2_450),
    (0.95, 3_700),
    (0.99, 4_000),
    (1, 6_200),
)
_ANSWER: Final = quantiles(
    (0, 4),
    (0.10, 54),
    (0.25, 85),
    (0.50, 129),
    (0.75, 395),
    (0.90, 424),
    (0.95, 451),
    (0.99, 601),
    (1, 1_000),
)
_FURTHER: Final = lognormal(20, 1.1, 3, 2_000)  # user messages of pi sessions (badlogic/pi-mono)
# Mooncake conversation trace, linked by blocks: turns q90 3, q99
# 8, fewer here; gaps q10/50/90 42/123/483 s (kvcache-ai/Mooncake).
_TURNS: Final = geometric(0.5, low=1)
_GAP: Final = quantiles((0, 3), (0.10, 42), (0.50, 123), (0.90, 483), (1, 3_600))

PREFIXES: Final = {"short_chat": (Segment(role="system", tokens=_SYSTEM, key="short_chat.system"),)}
REAL: Final = "Azure 2023 conversations: single calls without sessions or contents"
UNSAID: Final = "turns and waits (Mooncake's are linked by blocks), system prompts, aborts"
TARGETS: Final = {
    "context": QuantileTarget(1_020, 2_735, 4_200),
    "output": QuantileTarget(129, 424, 601),
    "wait.user": QuantileTarget(123, 483),
}


def generate(
    rng: Random, *, arrivals: ArrivalProcess = ArrivalProcess(sessions=500, rate_per_s=1.0, cv=1.1)
) -> Iterator[Session]:
    """Yield `sessions` sessions."""
    # CV 1.09: the same Azure trace.
    for number, start_s in enumerate(arrivals.draw(rng)):
        talk = Talk(
            f"short_chat-{number}",
            workload="short_chat",
            prefix="short_chat",
            leads=PREFIXES["short_chat"],
        )
        for turn in range(round(_TURNS(rng.random()))):
            talk.add("user", tokens(rng, _FURTHER) if turn else tokens(rng, _FIRST) - _SYSTEM)
            talk.call(tokens(rng, _ANSWER), Pause("user", seconds(rng, _GAP)) if turn else NO_PAUSE)
        yield talk.session(start_s)
