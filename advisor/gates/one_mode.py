"""Starts of a server scatter; starts in two modes (a compile cache
that was missed, another clock) are two servers, not one on average.

A mode shows as a gap between starts that is larger than ten percent and than all scatter on either
side of it. Which of both servers it is, a ratio does not tell; what each start told of itself does.
"""

from collections.abc import Iterator
from itertools import product

import numpy as np

from advisor import words
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
    """Yield one gate an arm that timed its starts, and one a class that was started enough."""
    for arm in evidence.arms:
        if arm.checks_ms and len(arm.checks_ms + arm.past_checks_ms) >= LEAST:
            yield _of_server(arm)
    for arm, workload in product(evidence.challengers, evidence.workloads):
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
        but = (
            f", {above} of them {np.expm1(gap):.0%} above the others: find out what differs "
            "between these starts, and start again"
        )
        yield gate.judged(good=gap == 0, but=but)


def _of_server(arm: Arm) -> Gate:
    """Return whether a short request alone took as long after each start, and in other runs."""
    here = np.log(arm.checks_ms)
    past = np.log(arm.past_checks_ms)
    usual = float(np.median(np.concatenate([here, past])))
    off = float(max(np.abs(here - usual)))
    starts = words.quantity(here.size, "start")
    if past.size:
        starts = f"{starts} and {past.size} of other runs"
    missed = arm.compile_cache.count("missed")
    cache = ""
    if 0 < missed < len(arm.compile_cache):
        cache = f"; {missed} of {len(arm.compile_cache)} starts missed the compile cache"
    gate = Gate(
        name="one mode",
        arm=arm.name,
        message=starts,
        observed=off,
        limit=OFF,
        unit="log ratio",
        spoils=TIMES,
    )
    but = (
        f": one answers a short request {np.expm1(off):.0%} off the others{cache}; find out "
        "why, and start again"
    )
    return gate.judged(good=off <= OFF, but=but)


def _gap(means: Floats) -> tuple[float, int]:
    """Return the gap between two modes (0: there is one), and how many starts lie above it."""
    ordered = np.sort(means)
    gaps = np.diff(ordered)
    cuts = np.flatnonzero(gaps > APART)
    scatter = max(float(np.ptp(each)) for each in np.split(ordered, cuts + 1))
    least = 2 if means.size >= ENOUGH_STARTS else 1
    widest = 0.0
    above = 0
    for cut in cuts:
        is_between = least <= cut + 1 <= means.size - least
        if is_between and gaps[cut] > max(scatter, widest):
            widest = float(gaps[cut])
            above = int(means.size - cut - 1)
    return widest, above
