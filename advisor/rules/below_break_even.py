"""Contexts shorter than the break-even of their batch: the
arm's dearer step is not yet paid for by cheaper reads.

Break-even is in KV tokens of the whole batch, so requests that decode together share it.
"""

from typing import Literal, TypeAlias

import numpy as np

from advisor import words
from advisor.assess.reach import contexts
from advisor.case import Case
from advisor.estimate import Estimate
from advisor.evidence import Arm, WorkloadClass
from advisor.verdict import BreakEven, Finding, Inequality, Weight

Side: TypeAlias = Literal["below", "above"]

NEEDS = frozenset({"break_even", "evidence.workloads.batch"})

KINDS: dict[bool | None, Weight] = {True: "supports", False: "opposes", None: "informs"}
"""By whether the arm is ahead where the batch is; None: too close to call."""


def _held(case: Case, workload: WorkloadClass) -> float | None:
    """Return the KV tokens of the batches that a class decodes in:
    with their neighbours of other classes, where those were seen.
    """
    calls = case.evidence.calls(workload.name, case.evidence.reference)
    seen = None if calls is None else calls.batch_kv_tokens
    if seen is not None and np.isfinite(seen).any():
        return float(np.nanmedian(seen))
    lengths = contexts(case.evidence, workload.name)
    if workload.batch is None or lengths is None:
        return None
    return workload.batch * float(np.median(lengths))


def _side(held: float, found: BreakEven) -> Side | None:
    """Return on which side of the break-even a batch is; None: within its interval."""
    if held < (found.low or 0.0):
        return "below"
    is_above = found.high is not None and held > found.high
    return "above" if is_above else None


def _inequality(workload: str, held: float, found: BreakEven, *, holds: bool | None) -> Inequality:
    return Inequality(
        left=f"KV tokens of the batch on {workload}",
        observed=Estimate(value=held, low=None, high=None, n=1, unit="KV tokens", method="median"),
        relation=">" if found.ahead == "above" else "<",
        right=f"break-even{_at(found)}",
        holds=holds,
    )


def _ends(found: BreakEven) -> str:
    high = None if found.high is None else words.tokens(found.high)
    return words.interval(words.tokens(found.low or 0.0), high)


def check(case: Case, arm: Arm, workload: WorkloadClass) -> Finding | None:
    """Return on which side of a bounded set or a half-line
    the workload is; the largest batch measured speaks.
    """
    own = [each for each in case.break_even if each.arm == arm.name]
    sets = [each for each in own if each.shape in ("bounded", "half-line")]
    held = _held(case, workload)
    if not sets or held is None:
        return None
    found = sets[-1]
    side = _side(held, found)
    is_ahead = None if side is None else side == found.ahead
    return Finding(
        kind=KINDS[is_ahead],
        message=(
            f"Calls of {workload.name} decode in batches of {words.tokens(held)} KV tokens. "
            f"{arm.name} takes less time per output token than {case.evidence.reference} "
            f"{found.ahead} the break-even{_at(found)}, and these batches are {_where(side)}."
        ),
        estimates=(_bound(found),),
        inequality=_inequality(workload.name, held, found, holds=is_ahead),
        flips=_flips(side, found),
        next_step=case.context_sweep() if side is None else None,
        leg="pays",
    )


def _bound(found: BreakEven) -> Estimate:
    """Return the break-even with its set; a half-line without a zero has its end instead."""
    return Estimate(
        value=found.tokens if found.tokens is not None else found.high or 0.0,
        low=found.low,
        high=found.high,
        n=found.pairs or 1,
        unit="KV tokens",
        method="Fieller set of the paired difference",
    )


def _at(found: BreakEven) -> str:
    """Say where the break-even is; a half-line has its end alone."""
    point = "" if found.tokens is None else f" of {words.tokens(found.tokens)}"
    return f"{point} {_ends(found)}"


def _where(side: Side | None) -> str:
    return (
        "within its interval: which arm is faster there is open" if side is None else f"{side} it"
    )


def _flips(side: Side | None, found: BreakEven) -> str | None:
    if side != "below" or found.high is None:
        return None
    return f"batches of {words.tokens(found.high)}"
