"""Fit token latency, prefill time and break-even of every arm that was swept."""

from dataclasses import replace

import numpy as np
import scipy

from advisor.assess.speed import start_spread
from advisor.evidence import Evidence, Floats, Ints, Prior
from advisor.policy import Policy
from advisor.statistics import resampling
from advisor.statistics.break_even import break_even, break_even_from_calls
from advisor.statistics.line import cell_medians, itl_line, length_index
from advisor.verdict import BreakEven, ItlLine, TtftCurve

_SCALE = np.array([1e8, 1e4, 1.0])  # puts the three columns on one footing
_UNITS = ("ms/token^2", "ms/token", "ms")
MIN_LENGTHS = 4  # one more than coefficients
MIN_PAIRS = 3  # fewer pairs are too few to resample whole
DRAWS = 500


def itl_lines(evidence: Evidence) -> tuple[ItlLine, ...]:
    """Return one line an arm and batch size."""
    out = []
    for sweep in evidence.sweeps:
        for users in np.unique(sweep.users):
            rows = sweep.users == users
            found = itl_line(
                sweep.arm,
                users=int(users),
                pair=sweep.pair[rows],
                batch_tokens=users * sweep.context_tokens[rows],
                itl_ms=sweep.itl_ms[rows],
                kv_bytes_per_token=evidence.arm(sweep.arm).kv_bytes_per_token,
            )
            if found is not None:
                out.append(found)
    return tuple(out)


def ttft_curves(evidence: Evidence) -> tuple[TtftCurve, ...]:
    """Return the prefill curve of each arm whose sweep knows the computed tokens.

    Only calls that ran alone count, because a call in a batch waits.
    """
    out = []
    for sweep in evidence.sweeps:
        alone = sweep.users == 1
        if sweep.ttft_ms is None or sweep.computed_tokens is None or not alone.any():
            continue
        found = ttft_curve(
            sweep.arm,
            pair=sweep.pair[alone],
            computed_tokens=sweep.computed_tokens[alone],
            ttft_ms=sweep.ttft_ms[alone],
            prompt_tokens=None if sweep.prompt_tokens is None else sweep.prompt_tokens[alone],
        )
        if found is not None:
            out.append(found)
    return tuple(out)


def ttft_curve(
    arm: str,
    *,
    pair: Ints,
    computed_tokens: Floats,
    ttft_ms: Floats,
    prompt_tokens: Floats | None = None,
) -> TtftCurve | None:
    """Return the curve of one arm, or None with too few lengths.

    Intervals come from resampled pairs, or from resampled cells below three pairs.
    The time is a q + b n + c with a, b, c >= 0, on the tokens that were computed: n = prompt
    - cached, and q = prompt^2 - cached^2 counts the causal pairs those tokens attend to (n^2
    for a cold prompt). Coefficients below zero predict negative times for short prompts, and
    an unweighted fit spends all its accuracy on the longest one, so residuals are relative.
    """
    seen = (
        np.isfinite(ttft_ms) & np.isfinite(computed_tokens) & (ttft_ms > 0) & (computed_tokens > 0)
    )
    if not seen.any():
        return None
    n, y, group = (
        computed_tokens[seen],
        ttft_ms[seen],
        np.unique(pair[seen], return_inverse=True)[1],
    )
    prompt = n if prompt_tokens is None else np.maximum(prompt_tokens[seen], n)
    column, lengths = length_index(n)
    other, _ = length_index(prompt)
    if lengths.size < MIN_LENGTHS:
        return None
    _, cell = np.unique(np.stack([group, column, other]), axis=1, return_inverse=True)
    size = np.bincount(cell)
    n, prompt, y = (
        np.bincount(cell, weights=n) / size,
        np.bincount(cell, weights=prompt) / size,
        cell_medians(cell, y),
    )
    group = (np.bincount(cell, weights=group.astype(np.float64)) / size).round().astype(np.int64)
    rows = (
        np.stack([prompt**2 - (prompt - n) ** 2, n, np.ones_like(n)], axis=1) / _SCALE / y[:, None]
    )
    units, lost = int(group.max()) + 1, 1
    if units < MIN_PAIRS:
        group, units, lost = np.arange(n.size), n.size, len(_SCALE)
    weights = np.sqrt(
        np.vstack([np.ones(units), resampling.draw_weights(units, draws=DRAWS)])[:, group]
    )
    value, *drawn = (
        scipy.optimize.nnls(weight[:, None] * rows, weight)[0] / _SCALE for weight in weights
    )
    # Few units: the draws' own quantiles would be the range of
    # three. Their error, widened and read against t, is not.
    spreads = [
        resampling.spread(float(v), column, units=units, lost=lost)
        for v, column in zip(value, np.array(drawn).T, strict=True)
    ]
    method = (
        f"non-negative least squares, relative residuals, Student's t over {units} "
        f"{'block pairs' if lost == 1 else 'cells'}"
    )
    found = (
        each.estimate(unit=unit, method=method) for each, unit in zip(spreads, _UNITS, strict=True)
    )
    # below zero lies no coefficient
    a, b, c = (replace(each, low=max(each.low or 0.0, 0.0)) for each in found)
    return TtftCurve(
        arm=arm, a=a, b=b, c=c, range_tokens=(float(lengths.min()), float(lengths.max()))
    )


def _own_batch(evidence: Evidence, shares: dict[str, float]) -> float | None:
    known = [
        (shares[each.name], each.batch) for each in evidence.workloads if each.batch is not None
    ]
    weight = sum(share for share, _ in known)
    return sum(share * batch for share, batch in known) / weight if weight > 0 else None


def _prior(evidence: Evidence, arm: str) -> float | None:
    def fits(prior: Prior) -> bool:
        return (
            prior.what == "break_even_tokens"
            and prior.arm == arm
            and prior.gpu in (None, evidence.deployment.gpu.name)
        )

    return next((prior.value for prior in evidence.priors if fits(prior)), None)


def break_evens(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], policy: Policy
) -> tuple[BreakEven, ...]:
    """Return the break-even sets of every challenger.

    They are from its sweeps, one a batch size, or else from the replay itself.
    """
    own, spread = _own_batch(evidence, dict(shares)), start_spread(evidence, policy)
    reference = next((each for each in evidence.sweeps if each.arm == evidence.reference), None)
    out = []
    for arm in evidence.challengers:
        prior = _prior(evidence, arm.name)
        sweep = next((each for each in evidence.sweeps if each.arm == arm.name), None)
        if reference is not None and sweep is not None:
            for users in np.intersect1d(reference.users, sweep.users):
                found = break_even(
                    reference,
                    sweep,
                    users=int(users),
                    spread=spread,
                    own_users=own,
                    prior_tokens=prior,
                )
                if found is not None:
                    out.append(found)
            continue
        theirs, mine = (
            list(evidence.calls_of(name).values()) for name in (evidence.reference, arm.name)
        )
        found = break_even_from_calls(
            arm.name, theirs, mine, spread=spread, own_users=own, prior_tokens=prior
        )
        if found is not None:
            out.append(found)
    return tuple(out)
