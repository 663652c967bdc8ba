"""Fit token latency, prefill time and break-even of every arm that was swept."""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from advisor.assess.speed import start_spread
from advisor.estimate import present
from advisor.evidence import ContextSweep, Evidence, Floats, Ints
from advisor.policy import Policy
from advisor.statistics import resampling
from advisor.statistics.break_even import break_even, break_even_from_calls
from advisor.statistics.groups import group_means, group_medians, group_numbers
from advisor.statistics.line import itl_line, length_index
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
            out.append(found)
    return tuple(present(out))


def ttft_curves(evidence: Evidence) -> tuple[TtftCurve, ...]:
    """Return the prefill curve of each arm whose sweep knows the computed tokens.

    Only calls that ran alone count, because a call in a batch waits.
    """
    out = []
    for sweep in evidence.sweeps:
        is_alone = sweep.users == 1
        if sweep.ttft_ms is None or sweep.computed_tokens is None or not is_alone.any():
            continue
        prompt_tokens = sweep.prompt_tokens
        found = ttft_curve(
            sweep.arm,
            pair=sweep.pair[is_alone],
            computed_tokens=sweep.computed_tokens[is_alone],
            ttft_ms=sweep.ttft_ms[is_alone],
            prompt_tokens=None if prompt_tokens is None else prompt_tokens[is_alone],
        )
        out.append(found)
    return tuple(present(out))


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
    is_timed = np.isfinite(ttft_ms) & (ttft_ms > 0)
    is_counted = np.isfinite(computed_tokens) & (computed_tokens > 0)
    seen = is_timed & is_counted
    if not seen.any():
        return None
    computed = computed_tokens[seen]
    prompt = computed if prompt_tokens is None else np.maximum(prompt_tokens[seen], computed)
    _, lengths = length_index(computed)
    if lengths.size < MIN_LENGTHS:
        return None
    cells = _cells(pair[seen], computed, prompt, ttft_ms[seen])
    unit_of_cell = cells.pair
    lost = 1
    by = "block pairs"
    units = int(cells.pair.max()) + 1
    if units < MIN_PAIRS:
        units = cells.pair.size
        unit_of_cell = np.arange(units)
        lost = len(_SCALE)
        by = "cells"
    value, drawn = _fits(cells, unit_of_cell, units)
    method = f"non-negative least squares, relative residuals, Student's t over {units} {by}"
    coefficients = []
    # Few units: the draws' own quantiles would be the range of
    # three. Their error, widened and read against t, is not.
    for each, of_draws, unit in zip(value, drawn.T, _UNITS, strict=True):
        spread = resampling.spread(float(each), of_draws, units=units, lost=lost)
        found = spread.estimate(unit=unit, method=method)
        # below zero lies no coefficient
        coefficients.append(replace(found, low=max(found.low or 0.0, 0.0)))
    a, b, c = coefficients
    range_tokens = (float(lengths.min()), float(lengths.max()))
    return TtftCurve(arm=arm, a=a, b=b, c=c, range_tokens=range_tokens)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Cells:
    """Hold one row a cell: the calls of one pair with as long a prompt and as much computed."""

    pair: Ints  # numbered from 0
    computed: Floats
    prompt: Floats
    ttft_ms: Floats


def _cells(pair: Ints, computed: Floats, prompt: Floats, ttft_ms: Floats) -> _Cells:
    """Join the calls of each cell: means of their tokens, the median of their times."""
    by_computed, _ = length_index(computed)
    by_prompt, _ = length_index(prompt)
    keys = np.stack([group_numbers(pair), by_computed, by_prompt])
    cells, cell = np.unique(keys, axis=1, return_inverse=True)
    return _Cells(
        pair=cells[0],
        computed=group_means(cell, computed),
        prompt=group_means(cell, prompt),
        ttft_ms=group_medians(cell, ttft_ms),
    )


def _fits(cells: _Cells, unit_of_cell: Ints, units: int) -> tuple[Floats, Floats]:
    """Return the coefficients of all units, and those of each draw of units, one row a draw."""
    cached = cells.prompt - cells.computed
    attended = cells.prompt**2 - cached**2
    design = np.stack([attended, cells.computed, np.ones_like(cells.computed)], axis=1)
    rows = design / _SCALE / cells.ttft_ms[:, None]
    drawn = resampling.draw_weights(units, draws=DRAWS)
    times_taken = np.vstack([np.ones(units), drawn])[:, unit_of_cell]
    # The right side is 1: a time over itself. A row that is taken twice counts twice its square.
    fits = []
    for weight in np.sqrt(times_taken):
        solution, _ = scipy.optimize.nnls(weight[:, None] * rows, weight)
        fits.append(solution / _SCALE)
    return fits[0], np.array(fits[1:])


def _own_batch(evidence: Evidence, shares: dict[str, float]) -> float | None:
    """Return the batch of the user's mix, weighted over the classes that state theirs."""
    stated = {each.name: each.batch for each in evidence.workloads if each.batch is not None}
    whole = sum(shares[name] for name in stated)
    if whole <= 0:
        return None
    return sum(shares[name] * batch for name, batch in stated.items()) / whole


def _prior(evidence: Evidence, arm: str) -> float | None:
    """Return the published break-even of *arm*, on the user's GPU or on any."""
    for prior in evidence.priors:
        is_break_even = prior.what == "break_even_tokens" and prior.arm == arm
        if is_break_even and prior.gpu in (None, evidence.deployment.gpu.name):
            return prior.value
    return None


def break_evens(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], policy: Policy
) -> tuple[BreakEven, ...]:
    """Return the break-even sets of every challenger.

    They are from its sweeps, one a batch size, or else from the replay itself.
    """
    own_users = _own_batch(evidence, dict(shares))
    spread = start_spread(evidence, policy)
    reference = _sweep(evidence, evidence.reference)
    out: list[BreakEven | None] = []
    for arm in evidence.challengers:
        prior = _prior(evidence, arm.name)
        sweep = _sweep(evidence, arm.name)
        if reference is not None and sweep is not None:
            for users in np.intersect1d(reference.users, sweep.users):
                found = break_even(
                    reference,
                    sweep,
                    users=int(users),
                    spread=spread,
                    own_users=own_users,
                    prior_tokens=prior,
                )
                out.append(found)
            continue
        theirs = list(evidence.calls_of(evidence.reference).values())
        mine = list(evidence.calls_of(arm.name).values())
        found = break_even_from_calls(
            arm.name, theirs, mine, spread=spread, own_users=own_users, prior_tokens=prior
        )
        out.append(found)
    return tuple(present(out))


def _sweep(evidence: Evidence, arm: str) -> ContextSweep | None:
    return next((each for each in evidence.sweeps if each.arm == arm), None)
