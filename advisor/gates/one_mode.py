"""Starts of a server scatter; starts in two modes (a compile cache
that was missed, another clock) are two servers, not one on average.

A mode shows as a gap between starts that is larger than ten percent and than all scatter on either
side of it. Which of both servers it is, a ratio does not tell; what each start told of itself does.
"""

from collections.abc import Iterator

import numpy as np

from advisor.evidence import Arm, Evidence, Floats
from advisor.policy import Policy
from advisor.statistics import paired
from advisor.statistics.starts import ENOUGH_STARTS
from advisor.verdict import TIMES, Gate

# public reports of equal starts: the body scatters by 0.5
# to 1.5%, modes lie 20 to 90% apart (docs/statistics.md)
APART = 0.10
OFF = 0.20  # one short request scatters by some percent; the least mode that was reported is 20%
LEAST = 3  # starts, of which two agree


# every gate is asked alike
def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:  # noqa: ARG001
    """Yield one gate an arm that told of its starts, and one for
    each class whose servers were started three times or more.
    """
    yield from (
        _alone(arm)
        for arm in evidence.arms
        if arm.checks_ms and len(arm.checks_ms + arm.past_checks_ms) >= LEAST
    )
    for arm in evidence.challengers:
        for workload in evidence.workloads:
            means = paired.start_means(evidence.sides(workload.name, arm.name))
            if means.size < LEAST:
                continue
            gap, above = _gap(means)
            gate = Gate(
                name="one mode",
                arm=arm.name,
                workload=workload.name,
                message=f"{means.size} pairs of starts",
                observed=gap,
                limit=APART,
                unit="log ratio",
                spoils=TIMES,
            )
            told = (
                f", {above} of them {np.expm1(gap):.0%} above the others: find out what differs "
                "between these starts, and start again"
            )
            yield gate.judged(good=gap == 0, but=told)


def _alone(arm: Arm) -> Gate:
    """Return whether a short request, alone on the server, took
    as long after each start, and as long as in other runs.
    """
    here = np.log(arm.checks_ms)
    past = np.log(arm.past_checks_ms)
    usual = float(np.median(np.concatenate([here, past])))
    off = float(max(np.abs(here - usual)))
    missed = arm.compile_cache.count("missed")
    cache = (
        f"; {missed} of {len(arm.compile_cache)} starts missed the compile cache"
        if 0 < missed < len(arm.compile_cache)
        else ""
    )
    counted = f"{here.size} start{'' if here.size == 1 else 's'}" + (
        f" and {past.size} of other runs" if past.size else ""
    )
    gate = Gate(
        name="one mode",
        arm=arm.name,
        message=f"{counted}",
        observed=off,
        limit=OFF,
        unit="log ratio",
        spoils=TIMES,
    )
    told = (
        f": one answers a short request {np.expm1(off):.0%} off the others{cache}; find out "
        "why, and start again"
    )
    return gate.judged(good=off <= OFF, but=told)


def _gap(means: Floats) -> tuple[float, int]:
    """Return the gap between two modes (0: there is one), and how many starts lie above it."""
    ordered = np.sort(means)
    gaps = np.diff(ordered)
    cuts = np.flatnonzero(gaps > APART)
    ranges = [float(np.ptp(each)) for each in np.split(ordered, cuts + 1)]
    most = max(ranges)
    least = 2 if means.size >= ENOUGH_STARTS else 1
    found = [cut for cut in cuts if gaps[cut] > most and least <= cut + 1 <= means.size - least]
    widest = max(found, key=lambda cut: float(gaps[cut]), default=None)
    if widest is None:
        return (0.0, 0)
    return (float(gaps[widest]), int(means.size - widest - 1))
