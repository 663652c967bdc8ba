from __future__ import annotations

import pytest

from agentload.layout.cost import ideal_hit_rates
from agentload.layout.plan import plan
from agentload.model.plan import Cache
from agentload.model.trace import Header, Segment, Session, Trace, Turn


def trace(sessions: int) -> Trace:
    prefix = (Segment(role="system", tokens=160, key="sys"),)

    def talk(name: str) -> Session:
        turns = (
            Turn(add=(Segment(role="user", tokens=160, key=f"{name}.0"),), output=16),
            Turn(add=(Segment(role="user", tokens=160, key=f"{name}.1"),), output=16),
        )
        return Session(session=name, workload="chat", start_s=0.0, prefix="P", turns=turns)

    return Trace(header=Header(name="t", prefixes={"P": prefix}), sessions=tuple(talk(f"s{i}") for i in range(sessions)))


@pytest.mark.parametrize(
    ("sessions", "pairs", "cache", "rate"),
    [
        (1, 1, "cold", 320 / 800),  # the second turn finds the first
        (2, 1, "cold", (320 + 160 + 320) / 1600),  # the second session finds the prefix
        (2, 2, "cold", 320 / 800),  # a pair each: nobody finds the other's
        (1, 2, "warm", (320 + 320 + 480) / 1600),  # the second pair finds all of the first
    ],
)
def test_the_ideal_is_what_an_empty_cache_of_each_pair_could_find(sessions: int, pairs: int, cache: Cache, rate: float) -> None:
    made = plan(trace(sessions), ["a", "b"], run="r", pairs=pairs, cache=cache)
    assert ideal_hit_rates(made) == {"chat": pytest.approx(rate)}


@pytest.mark.parametrize(("block", "rate"), [(None, 320 / 800), (128, 256 / 800), (512, 0.0)])
def test_a_cache_of_larger_blocks_finds_less(block: int | None, rate: float) -> None:
    assert ideal_hit_rates(plan(trace(1), ["a"], run="r", pairs=1), block=block) == {"chat": pytest.approx(rate)}
