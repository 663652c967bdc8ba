"""Fit the coefficients of the step-time model to the calls of a measured run, and say how well they predict what was left out.

Strategy: between two instants at which a call begins or ends to decode, the batch is constant and its gaps are steps of one kind; their
median is regressed on (1, C, s(b), s'(b) C), and the TTFT of calls that prefilled alone on (prompt, computed tokens, causal pairs): the
model is linear in its coefficients. Residuals are relative and pulled in (soft L1), coefficients are not negative. Every fourth observation
is left out of a first fit and predicted by it; the coefficients come from a second fit to all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from agentload.emulator.steptime import distinct_experts, saturation
from agentload.errors import ProfileError
from agentload.model.profile import Experts, StepTime

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FEWEST_CALLS = 40
"""Below this a quarter left out says nothing."""
FEWEST_GAPS = 9
"""In a span, so that its median does not see the chunks of a prompt that joins at its end."""
FEWEST_SHARED = 0.1
"""Share of spans that must have more than one sequence before batch terms are fitted."""
HELD_OUT_EVERY = 4
PULL = 0.05
"""Relative residuals beyond this count less and less: pauses, and prompts that waited longer than most."""
SHORTEST_MS = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Calls of one arm that were answered in full, one entry a call."""

    sent_ns: Ints
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    stamps_ns: Sequence[Ints]
    """When each chunk of the call arrived."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """Relative error of predictions for what was left out: its median, and what nine of ten stay below."""

    median: float
    p90: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """Coefficients and what they are worth."""

    step: StepTime
    itl_error: Error
    ttft_error: Error
    calls: int
    notes: tuple[str, ...]
    """What could not be told apart, in sentences."""


def fit(seen: Observed, *, weights_ms: float, experts: Experts | None = None, budget: int = 8192) -> Fitted:
    """Fit a step time. `weights_ms` is known beforehand: weight bytes at memory bandwidth. Raises ProfileError for too few calls."""
    calls = len(seen.sent_ns)
    first_ns = np.array([stamps[0] for stamps in seen.stamps_ns], dtype=np.int64)
    alone = _prefilled_alone(seen.sent_ns, first_ns)
    batch, gaps, gap_ms, wait_ms = _spans(seen, first_ns, experts)
    if calls < FEWEST_CALLS or alone.sum() < FEWEST_CALLS // 2 or len(gap_ms) < FEWEST_CALLS // 2:
        raise ProfileError(
            f"{calls} complete calls, {int(alone.sum())} of them with a prefill of their own: too few to fit a profile",
            hint=f"measure at least {FEWEST_CALLS} calls, some at low concurrency",
        )
    in_company = bool((batch > 1).mean() >= FEWEST_SHARED)
    itl, itl_error = _solved(gaps if in_company else gaps[:, :2], gap_ms)

    computed = seen.prompt_tokens - seen.cached_tokens
    pairs = computed * (seen.cached_tokens + computed / 2)
    host_per_step = max(0.0, itl[0] - weights_ms)
    ttft_ms = (first_ns - seen.sent_ns) / 1e6 - wait_ms - host_per_step * np.ceil(computed / budget)
    prompts = np.column_stack([seen.prompt_tokens, computed, pairs]).astype(np.float64)
    has_hits = bool(seen.cached_tokens[alone].any())
    first, ttft_error = _solved((prompts if has_hits else prompts[:, 1:])[alone], np.maximum(ttft_ms, SHORTEST_MS)[alone])
    host, per_token, per_pair = first if has_hits else (0.0, *first)
    return Fitted(
        step=StepTime(
            decode_ms=itl[0],
            decode_ms_per_token=itl[1],
            prefill_ms_per_token=per_token,
            prefill_ms_per_pair=per_pair,
            weights_ms=min(weights_ms, itl[0]),
            host_ms_per_token=host,
            batch8_ms=itl[2] if in_company else None,
            batch8_attention=itl[3] / itl[1] if in_company and itl[1] > 0 else None,
            known_to_batch=max(1, int(np.quantile(batch, 0.95))),
        ),
        itl_error=itl_error,
        ttft_error=ttft_error,
        calls=calls,
        notes=_notes(in_company=in_company, has_hits=has_hits, batch=batch),
    )


def _notes(*, in_company: bool, has_hits: bool, batch: Ints) -> tuple[str, ...]:
    notes = []
    if not in_company:
        notes.append("no call decoded in company: the cost of a batch is unknown and taken as nothing")
    elif batch.min() * 2 > batch.max():
        notes.append("the batch hardly varied: its cost and that of a lone sequence cannot be told apart")
    if not has_hits:
        notes.append("no prompt was cached: the host's time per prompt token is part of prefill_ms_per_token")
    return tuple(notes)


def _spans(seen: Observed, first_ns: Ints, experts: Experts | None) -> tuple[Ints, Floats, Floats, Floats]:
    """Return the batch, regressors and median gap of every span of a constant batch, and how long each prompt waited for a step to end."""
    last_ns = np.array([stamps[-1] for stamps in seen.stamps_ns], dtype=np.int64)
    rate = seen.output_tokens / np.maximum(last_ns - first_ns, 1)
    instants = sorted([*((at, 0, call) for call, at in enumerate(last_ns)), *((at, 1, call) for call, at in enumerate(first_ns))])
    active: dict[int, None] = {}
    spans: list[tuple[int, float, float]] = []
    ends: list[int] = []
    last_gap: list[float] = []
    for (start, begins, call), (end, *_) in pairwise(instants):
        if begins:
            active[call] = None
        else:
            active.pop(call, None)
        if not active:
            continue
        # All sequences of a batch emit together: the one that joined last speaks for all.
        stamps = seen.stamps_ns[next(reversed(active))]
        inside = np.diff(stamps[np.searchsorted(stamps, start) : np.searchsorted(stamps, end, side="right")])
        if len(inside) >= FEWEST_GAPS:
            middle = (start + end) / 2
            context = sum(seen.prompt_tokens[each] + rate[each] * (middle - first_ns[each]) for each in active)
            spans.append((len(active), float(context), float(np.median(inside)) / 1e6))
            ends.append(int(end))
            last_gap.append(spans[-1][2])
    batch = np.array([size for size, _, _ in spans], dtype=np.int64)
    dense = np.array([saturation(size) for size in batch])
    extra = dense if experts is None else np.array([distinct_experts(experts, int(size)) for size in batch])
    context_tokens = np.array([context for _, context, _ in spans])
    design = np.column_stack([np.ones(len(spans)), context_tokens, extra, dense * context_tokens]) if spans else np.empty((0, 4))
    return batch, design, np.array([gap for _, _, gap in spans]), _waits(seen, first_ns, last_ns, np.array(ends), np.array(last_gap))


def _waits(seen: Observed, first_ns: Ints, last_ns: Ints, ends: Ints, gap_ms: Floats) -> Floats:
    """Return half a step for prompts that came while others decoded: on average that is left of the running step."""
    decoding = np.searchsorted(np.sort(first_ns), seen.sent_ns) - np.searchsorted(np.sort(last_ns), seen.sent_ns)
    if not len(ends):
        return np.zeros(len(first_ns))
    nearest = np.minimum(np.searchsorted(ends, seen.sent_ns), len(ends) - 1)
    return np.where(decoding > 0, gap_ms[nearest] / 2, 0.0)


def _prefilled_alone(sent_ns: Ints, first_ns: Ints) -> NDArray[np.bool_]:
    """Tell which calls waited for no other call's prefill."""
    order = np.argsort(sent_ns, kind="stable")
    sent, first = sent_ns[order], first_ns[order]
    before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(first)[:-1]])
    after = np.concatenate([sent[1:], [np.iinfo(np.int64).max]])
    alone = np.empty(len(sent), dtype=np.bool_)
    alone[order] = (before <= sent) & (first <= after)
    return alone


def _solved(design: Floats, measured: Floats) -> tuple[list[float], Error]:
    """Solve with every fourth observation left out, to predict it; then with all."""
    train = np.arange(len(measured)) % HELD_OUT_EVERY != 0
    relative = np.abs(design[~train] @ _solve(design[train], measured[train]) / measured[~train] - 1)
    error = Error(median=float(np.median(relative)), p90=float(np.quantile(relative, 0.9)), count=len(relative))
    return [float(value) for value in _solve(design, measured)], error


def _solve(design: Floats, measured: Floats) -> Floats:
    """Solve for coefficients that are not negative, by relative residuals that are pulled in."""
    scale = np.abs(design / measured[:, None]).mean(axis=0)
    scale[scale == 0] = 1.0
    relative = design / measured[:, None] / scale

    def residuals(x: Floats) -> Floats:
        return np.asarray(relative @ x - 1, dtype=np.float64)

    start = np.full(design.shape[1], 1.0 / design.shape[1])
    found = least_squares(residuals, start, bounds=(0, np.inf), loss="soft_l1", f_scale=PULL, x_scale="jac", xtol=1e-12, ftol=1e-12)
    return np.asarray(found.x / scale, dtype=np.float64)
