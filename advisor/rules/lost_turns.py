"""Turns that end in an error: a gain for those that end well is no gain for the agents of others.

Few lost turns leave latencies comparable, and are all the same a fault of the arm where the
reference loses fewer. A lost turn ends its session, so sessions are counted.
"""

import math

import numpy as np

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm, Bools, Calls, Ints, WorkloadClass
from advisor.statistics.accuracy import fisher
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.workloads"})

LEAST = 0.005  # share of the sessions: what is rarer is no reason to wait


def check(case: Case, arm: Arm, workload: WorkloadClass) -> Finding | None:
    """Return that the arm surely loses turns in more sessions than the reference."""
    sides = case.evidence.sides(workload.name, arm.name)
    if sides is None:
        return None
    window = arm.max_model_len or math.inf
    theirs, mine = (_losses(each, window) for each in sides)
    _, at_left, at_right = np.intersect1d(theirs[0], mine[0], return_indices=True)
    less = int(theirs[1][at_left].sum())
    more = int(mine[1][at_right].sum())
    sessions = at_left.size
    is_more = more - less >= LEAST * sessions and more > less
    level = case.level(arm.name) / len(case.evidence.workloads)
    if not is_more or fisher(more, less, items=sessions) > level:
        return None
    return Finding(
        kind="opposes",
        message=(
            f"{arm.name} lost a turn in {more:,} of {words.quantity(sessions, 'session')} of "
            f"{workload.name} to errors, {case.evidence.reference} in {less:,}."
        ),
        flips=f"a run in which {arm.name} loses no more turns than {case.evidence.reference}",
        leg="pays",
        asks_for="test further",
    )


def _losses(calls: Calls, window: float) -> tuple[Ints, Bools]:
    """Return the sessions of each pair by number, and which of them lost a turn.

    Turns beyond the *window* of contexts are refused, and no error.
    """
    fits = ~(calls.prompt_tokens > window)
    place = (calls.pair[fits] << 32) | calls.session[fits]
    sessions, index = np.unique(place, return_inverse=True)
    lost = np.bincount(index, weights=~calls.ok[fits], minlength=sessions.size)
    return sessions, lost > 0
