"""Absolute figures need a settled server: warm-up is cut
by MSER-5, and the last third has to look like the first.

MSER-5 alone is known to miss slow drifts (Wang & Glynn 2016), hence the second look.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import scipy

from advisor.evidence import Calls, Evidence, Floats
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "steady"
BATCH = 5
LEAST_BATCHES = 24  # half of them still fill three thirds of four
COARSE = 4  # means a third
DRIFT_P = 0.01  # the check runs on every series of a report: rare false alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmup:
    """Say how many observations to drop, and whether the rest is level."""

    drop: int
    settled: bool
    # last third minus first third of what is left; None when it was still settling half way
    moved: float | None


def _thirds(means: Floats) -> tuple[float, float]:
    """Return how far the last third is from the first, and the p-value of so large a step.

    Neighbouring batches are alike; a few coarse means a third keep the test honest.
    """
    third = means.size // 3
    first = _coarse(means[:third])
    last = _coarse(means[-third:])
    p = _welch(first, last) if np.ptp(means) > 0 else 1.0
    return float(last.mean() - first.mean()), p


def _coarse(means: Floats) -> Floats:
    return np.array([each.mean() for each in np.array_split(means, COARSE)])


def _welch(first: Floats, last: Floats) -> float:
    """Return the two-sided p-value that two samples of unequal variance have one mean."""
    ours = first.var(ddof=1) / first.size
    theirs = last.var(ddof=1) / last.size
    freedom = ours**2 / (first.size - 1) + theirs**2 / (last.size - 1)
    with np.errstate(divide="ignore", invalid="ignore"):  # samples may not vary at all
        df = np.nan_to_num((ours + theirs) ** 2 / freedom, nan=1.0)
        score = (first.mean() - last.mean()) / np.sqrt(ours + theirs)
    return float(2 * scipy.special.stdtr(df, -abs(score)))


def mser5(series: Floats) -> Warmup | None:
    """Return the truncation of *series* (in time order), or None when it is too short to judge.

    MSER-5 cuts where the batches that are left have the least standard error.
    """
    batches = series.size // BATCH
    if batches < LEAST_BATCHES:
        return None
    means = series[: batches * BATCH].reshape(batches, BATCH).mean(axis=1)
    half = batches // 2
    left = np.arange(batches, batches - half, -1)
    tail_sum = _tail_sums(means)[:half]
    tail_square = _tail_sums(means**2)[:half]
    squared_error = (tail_square - tail_sum**2 / left) / left**2
    cut = int(np.argmin(squared_error))
    if cut == half - 1 and _thirds(means)[1] < DRIFT_P:
        return Warmup(drop=cut * BATCH, settled=False, moved=None)
    moved, p = _thirds(means[cut:])
    return Warmup(drop=cut * BATCH, settled=p >= DRIFT_P, moved=moved)


def _tail_sums(values: Floats) -> Floats:
    """Return the sum of each value and all that follow it."""
    return np.cumsum(values[::-1])[::-1]


def _without_length(calls: Calls) -> Floats:
    """Return the log token latency in time order, without what the context's length explains."""
    length = calls.prompt_tokens + calls.output_tokens
    is_timed = calls.ok & np.isfinite(calls.tpot_ms) & (calls.tpot_ms > 0)
    seen = is_timed & np.isfinite(length) & (length > 0)
    order = np.argsort(calls.start_s[seen], kind="stable")
    y = np.log(calls.tpot_ms[seen][order])
    x = np.log(length[seen][order])
    spread = x - x.mean() if x.size else x
    variance = float(spread @ spread)
    slope = float(spread @ y) / variance if variance > 0 else 0.0
    return y - slope * spread


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm and workload with enough calls.

    A drift spoils nothing that is compared in pairs.
    """
    del policy  # the check has its own level
    for each in evidence.observations:
        if not each.calls:
            continue
        found = mser5(_without_length(each.calls))
        if found is None:
            continue
        if found.moved is None:
            message = "time per output token was still settling in the second half of the run"
        else:
            message = (
                f"time per output token changed by {np.expm1(found.moved):+.1%} from the first "
                "third of the run to the last"
            )
        gate = Gate(
            name=NAME,
            arm=each.arm,
            workload=each.workload,
            message=message,
            observed=float(found.drop),
            unit="calls dropped",
        )
        yield gate.judged(good=found.settled, but=": pairs cancel drift, absolute figures do not")
