"""The load under which the pairs of a decision are played,
where the user does not say: one that tells speed from capacity.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from advisor.evidence import POOL_HOLDS
from agentload.decision.sequence import PAIRS
from agentload.layout.windows import Steady, fitting, held_tokens, longest_priming_s
from agentload.study.parts import Load

SESSIONS: Final = 8
USER_WAIT_S: Final = 5.0
BLOCK_S: Final = 75.0
"""Longest window, which two arms have in 45 minutes: a larger
budget pays for more of them, and is looked at as often.
"""
SPEED_SHARE: Final = 1 / 3
"""Of the budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What a load has to fit into."""

    budget_s: float
    arms: int
    pool_tokens: float | None
    """Of the smallest pool; None where nobody tells."""
    prefill_s: Callable[[int], float]
    """Seconds until a prompt of so many tokens is read."""
    seed: int


def pair_load(said: Load, stock: Steady, into: Surroundings) -> Load:
    """Return what the user said of the load, and for the rest: some
    sessions at once, short waits, windows that the budget has time for.
    """
    load = said
    if not load.wait_cap_s and not load.wait_scale:
        load = msgspec.structs.replace(load, wait_cap_s={"user": USER_WAIT_S})
    stock = stock.under(load.planned())
    if (load.sessions, load.rate_per_s, load.speed) == (None, None, 1.0):
        load = msgspec.structs.replace(load, sessions=_fitting(load, stock, into))
    if load.duration_s is None:
        load = msgspec.structs.replace(load, duration_s=_lasting(load, stock, into))
    return load


def windows_of(stock: Steady) -> int:
    """Return how many windows pairs play before one is played twice:
    as many as the trace has time for, and a last look may play.
    """
    return fitting(stock, PAIRS[-1])


def _fitting(load: Load, stock: Steady, into: Surroundings) -> int:
    """Return how many sessions are kept going: as many
    as the smallest pool holds, up to the usual number.
    """
    if into.pool_tokens is None:
        return SESSIONS
    for sessions in range(SESSIONS, 1, -1):
        crowd = stock.under(msgspec.structs.replace(load, sessions=sessions).planned())
        if held_tokens(crowd, seed=into.seed) <= POOL_HOLDS * into.pool_tokens:
            return sessions
    return 1


def _lasting(load: Load, stock: Steady, into: Surroundings) -> float:
    """Return how long a window lasts: twice its priming where
    that takes longer, if four pairs of that still fit the budget.
    """
    most_s = SPEED_SHARE * into.budget_s / into.arms
    usual_s = min(BLOCK_S, most_s / PAIRS[2])
    priming_s = longest_priming_s(stock.under(load.planned()), into.prefill_s, seed=into.seed)
    return float(round(max(usual_s, min(2 * priming_s, most_s / PAIRS[0] - priming_s))))
