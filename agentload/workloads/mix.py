"""Several workloads at once on one server, by weight.

Each workload keeps its own arrival process at its share of the rate; their sessions overlap.
"""

from collections.abc import Iterator, Mapping
from heapq import merge
from itertools import islice
from random import Random
from typing import Final

from agentload.errors import UsageError
from agentload.model.trace import Session
from agentload.model.walk import families
from agentload.plugins import Positive, Rate, Weight
from agentload.workloads import catalog
from agentload.workloads.parts.targets import QuantileTarget, Range

_OTHERS: Final = catalog.ours(without="mix")
_WITHOUT_END: Final = 10**12

# A platform that serves agents of all kinds: judgement.
WEIGHTS: Final = {
    "chat": 2.0,
    "short_chat": 4.0,
    "rag": 2.0,
    "rag_passages": 4.0,
    "code": 1.0,
    "reasoning": 2.0,
    "cron": 4.0,
    "multimodal": 1.0,
}
PREFIXES: Final = {
    name: segments for other in _OTHERS.values() for name, segments in other.prefixes.items()
}
TARGETS: Final[dict[str, QuantileTarget | Range]] = {}  # those of its parts


def generate(
    rng: Random,
    *,
    sessions: Positive = 400,
    rate_per_s: Rate = 1.0,
    weights: Mapping[str, Weight] = WEIGHTS,
) -> Iterator[Session]:
    """Yield `sessions` root sessions and those they spawn; `weights` are shares of sessions."""
    unknown = sorted(weights.keys() - _OTHERS.keys())
    if unknown:
        raise UsageError(
            f"mix: weights: no workload '{unknown[0]}'", hint=f"there are {', '.join(_OTHERS)}"
        )
    total = sum(weights.values())
    if not total:
        raise UsageError("mix: weights sum to zero", hint="weights=chat:2,rag:1")
    # Each component draws from a generator of its own, so that
    # its sessions do not depend on how the others interleave.
    streams = [
        other.sessions(
            Random(int(rng.random() * 2**53)),
            {"sessions": _WITHOUT_END, "rate_per_s": rate_per_s * weights.get(name, 0) / total},
        )
        for name, other in _OTHERS.items()
        if weights.get(name, 0)
    ]
    merged = merge(*map(families, streams), key=_start)
    return (session for family in islice(merged, sessions) for session in family)


def _start(family: list[Session]) -> float:
    start_s = family[0].start_s
    assert start_s is not None, family[0].session
    return start_s
