"""The arm loses turns to errors, and the reference loses fewer: no gain in latency makes up for it.

So few that latencies can still be compared are a fault all the same. Turns that one session loses
mostly have one cause, so sessions are counted.
"""

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
    if sides is None or any(each.lost is None for each in sides):
        return None
    (their_sessions, theirs), (my_sessions, mine) = map(_losses, sides)
    _, at_left, at_right = np.intersect1d(their_sessions, my_sessions, return_indices=True)
    less = int(theirs[at_left].sum())
    more = int(mine[at_right].sum())
    sessions = at_left.size
    is_more = more > less and more - less >= LEAST * sessions
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


def _losses(calls: Calls) -> tuple[Ints, Bools]:
    """Return the sessions of each pair by number, and which of them lost a turn."""
    place = (calls.pair << 32) | calls.session
    sessions, index = np.unique(place, return_inverse=True)
    lost = np.bincount(index, weights=calls.lost, minlength=sessions.size)
    return sessions, lost > 0
