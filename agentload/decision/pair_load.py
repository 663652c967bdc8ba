"""Choose the load under which pairs are played: one that separates speed from capacity.

What the user says of the load stays.
"""

import math
from collections.abc import Callable
from typing import Final

import msgspec

from advisor.loads import POOL_HOLDS
from agentload.decision.look import PAIRS
from agentload.errors import UsageError
from agentload.layout.steady import Steady
from agentload.layout.windows import held_tokens, longest_priming_s, windows_played
from agentload.model.record import Record
from agentload.run.arms import read_arms
from agentload.study.kinds import Decide
from agentload.study.parts import Load

SESSIONS: Final = 8
USER_WAIT_S: Final = 5.0
BLOCK_S: Final = 75.0
"""Longest window in seconds, which two arms have in 45 minutes.

A larger budget pays for more windows, and is looked at as often.
"""
SPEED_SHARE: Final = 1 / 3
"""Share of the budget for pairs."""
SHORTEST_BLOCK_S: Final = 5.0
"""Seconds of the shortest block: shorter ones end before their turns do."""


class Surroundings(Record):
    """Hold what a load has to fit into."""

    budget_s: float
    arms: int
    pool_tokens: float | None
    """Tokens of the smallest pool; None where unknown."""
    prefill_s: Callable[[int], float]
    """Returns the seconds until a prompt of a number of tokens is read."""
    seed: int


def check_decide(study: Decide) -> None:
    """Raise UsageError where there is nothing to decide between, or the budget is too small."""
    arms = read_arms(study.servers).names
    if len(arms) < 2:
        raise UsageError(
            f"a decision needs two arms, got {', '.join(arms)}", hint="--endpoints bf16=URL,fp8=URL"
        )
    if study.budget_s < least_s(len(arms)):
        least = math.ceil(least_s(len(arms)) / 60)
        # who types 45 without a unit means minutes; whole minutes are meant as they are
        is_bare = study.budget_s >= least and study.budget_s % 60 != 0
        meant = f"{study.budget_s:g}" if is_bare else f"{least}"
        raise UsageError(
            f"--budget {study.budget_s:g} s is too short to measure anything: at least {least}m",
            hint=f"--budget {meant}m",
        )
    if study.reference not in (None, *arms):
        raise UsageError(
            f"--reference: no arm '{study.reference}'", hint=f"one of: {', '.join(arms)}"
        )


def least_s(arms: int) -> float:
    """Return the least budget, in seconds, that may settle something between *arms* arms."""
    return SHORTEST_BLOCK_S * PAIRS[2] * arms / SPEED_SHARE


def pair_load(said: Load, stock: Steady, into: Surroundings) -> Load:
    """Return the load that the user said, completed for pairs.

    The rest is some sessions at once, short waits, and windows that the budget has time for.
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
    """Return how many windows pairs play before one is played twice.

    As many as the trace has time for, and a last look may play.
    """
    return windows_played(stock, PAIRS[-1])


def _fitting(load: Load, stock: Steady, into: Surroundings) -> int:
    """Return how many sessions run at once: what the smallest pool holds, `SESSIONS` at most."""
    if into.pool_tokens is None:
        return SESSIONS
    for sessions in range(SESSIONS, 1, -1):
        crowd = stock.under(msgspec.structs.replace(load, sessions=sessions).planned())
        if held_tokens(crowd, seed=into.seed) <= POOL_HOLDS * into.pool_tokens:
            return sessions
    return 1


def _lasting(load: Load, stock: Steady, into: Surroundings) -> float:
    """Return the seconds of a window.

    Twice its priming where that takes longer than usual, if four such pairs still fit the budget.
    """
    most_s = SPEED_SHARE * into.budget_s / into.arms
    usual_s = min(BLOCK_S, most_s / PAIRS[2])
    priming_s = longest_priming_s(stock.under(load.planned()), into.prefill_s, seed=into.seed)
    return float(round(max(usual_s, min(2 * priming_s, most_s / PAIRS[0] - priming_s))))
