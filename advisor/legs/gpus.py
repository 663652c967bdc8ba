"""Decide by the GPUs that an arm needs at the user's peak.

This decides where a service level and a peak are given. Agents within the service level are what
one GPU carries, so arms that meet the level are compared by GPUs. Turns that are slower within it
are a fact and no harm. Latency breaks a tie.
"""

import math
import operator
from dataclasses import dataclass, replace

from advisor import words
from advisor.assess.capacity import fewer_gpus
from advisor.case import Case
from advisor.estimate import Estimate, present
from advisor.legs.capacity import finer
from advisor.verdict import Leg, LegState

GPUS = "GPUs at the user's peak"
# of the reference's GPUs: an arm that may need a larger share in addition is not tied with it
TIE = 0.20
UNMEASURED = "GPUs were not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpus:
    """Hold the GPUs that the arm and the reference need, and how many fewer the arm needs."""

    arm: Estimate
    reference: Estimate
    fewer: Estimate


def gpus_leg(case: Case, arm: str, workload: str | None, capacity: Leg) -> Leg:
    """Return whether the arm surely saves or costs a GPU, and the least change that counts."""
    found = None if capacity.estimate is None else _measured(case, arm, workload)
    if found is None:  # known by argument, not known, or no number of GPUs is enough
        return replace(capacity, name="pays")
    of_reference = found.reference.value
    margin = max(1.0, case.policy.min_change * of_reference)
    # Equal GPUs decide nothing unless latency does, so they share no error with it.
    undivided = _measured(case.undivided, arm, workload) or found
    state = _state(found.fewer, margin, undivided=undivided.fewer)
    if state == "equal":
        found = undivided
    relative = change_of_gpus(found.reference, found.arm, fewer=found.fewer)
    needs = capacity.needs or (finer(case, arm, workload, relative),)
    return Leg(
        name="pays",
        state=state,
        estimate=relative,
        margin=margin / of_reference,
        reason=_reason(case, found),
        needs=needs if state == "unclear" else (),
    )


def _measured(case: Case, arm: str, workload: str | None) -> _Gpus | None:
    """Return the GPUs for the class, or else for the mix; None where neither is known."""
    for scope in (workload, None):
        reference = case.gpus_of(case.evidence.reference, scope)
        mine = case.gpus_of(arm, scope)
        fewer = fewer_gpus(reference, mine)
        if reference and mine and fewer:
            return _Gpus(arm=mine, reference=reference, fewer=fewer)
    return None


def _state(fewer: Estimate, margin: float, *, undivided: Estimate) -> LegState:
    low, high = fewer.low, fewer.high
    if low is not None and low >= margin:
        return "yes"
    if high is not None and -high >= margin:
        return "no"
    return "equal" if undivided.is_within(margin) else "unclear"


def change_of_gpus(reference: Estimate, arm: Estimate, *, fewer: Estimate) -> Estimate:
    """Return the change of GPUs, as a share of the reference's; a bound where one end is open.

    The interval is what those of both arms give together, on the log scale (MOVER).
    """
    change = math.log(arm.value / reference.value)

    def end(mine: float | None, theirs: float | None, side: int) -> float | None:
        """Return the end of the change on one side, below (-1) or above (1)."""
        if mine is None or theirs is None:
            return None
        of_arm = math.log(mine / arm.value)
        of_reference = math.log(theirs / reference.value)
        return math.expm1(change + side * math.hypot(of_arm, of_reference))

    low = end(arm.low, reference.high, -1)
    high = end(arm.high, reference.low, 1)
    ends = present((low, high))
    # An arm with an open end has no estimate of its own, only a least or a most.
    value = ends[0] if len(ends) == 1 else math.expm1(change)
    return replace(fewer, value=value, low=low, high=high, unit="relative", method=GPUS)


def _reason(case: Case, found: _Gpus) -> str:
    peak = words.quantity(case.evidence.deployment.peak_agents or 0, "agent")
    mine = words.whole(found.arm, "GPU")
    theirs = words.whole(found.reference)
    reason = f"{mine} for {theirs} on {case.evidence.reference} at {peak}"
    fewer = found.fewer
    if not any((fewer.value, fewer.low, fewer.high)):
        return reason
    if fewer.value >= 0:
        return f"{reason}, {words.whole(fewer)} fewer"
    return f"{reason}, {words.whole(_opposite(fewer))} more"


def _opposite(found: Estimate) -> Estimate:
    negative = found.transformed(operator.neg)
    return replace(negative, low=negative.high, high=negative.low)


def pays_by_gpus(speed: Leg, gpus: Leg) -> Leg:
    """Return the leg that GPUs decide, and speed where they tie."""
    high = None if gpus.estimate is None else gpus.estimate.high
    is_tied = high is not None and high <= TIE
    match gpus.state, speed.state:
        case (("yes" | "no"), _):
            return replace(gpus, reason=f"{gpus.reason}; {speed.reason}")
        case "equal", _:
            return replace(speed, reason=f"{gpus.reason}; {speed.reason}")
        case "unclear", ("yes" | "unclear") if is_tied:
            needs = (*speed.needs, *gpus.needs) if speed.state == "unclear" else ()
            reason = f"{speed.reason}; GPUs are not shown to differ: {gpus.reason}"
            return replace(speed, reason=reason, needs=needs)
        case "unclear", _:
            return replace(gpus, reason=f"GPUs are undecided: {gpus.reason}; {speed.reason}")
        case _, _ if gpus.reason in speed.reason:  # one check spoils both
            return replace(gpus, reason=speed.reason)
        case _, _:
            # The latencies were looked at, and are as valid as ever.
            state: LegState = "untested" if speed.state == "untested" else "unclear"
            reason = f"{UNMEASURED}: {gpus.reason}; {speed.reason}"
            return replace(gpus, state=state, reason=reason)
