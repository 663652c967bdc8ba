"""Fit the step-time model to the calls of a measured run, and say how well it predicts others.

Strategy: between two instants at which a call starts or stops decoding, the batch is constant and
its gaps are steps of one kind; their median is regressed on (1, C, s(b), s'(b) C), and the TTFT
of calls that prefilled alone on (prompt, computed tokens, causal pairs): the model is linear in
its coefficients. A chunk too small to be bound by compute takes the time of reading the weights,
whatever its tokens; which chunks those are depends on the coefficients, so that part is solved a
few times. What sequences that decode at the same time add to a prompt's steps is known from their
spans. Residuals are relative and large ones are damped (soft L1); coefficients are not negative.
Every fourth observation is left out of a first fit and predicted by it; the coefficients come from
a second fit to all. For a coefficient that is 0, a bootstrap over the observations gives how large
it may be. `steptime` defines C, s and s'.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

from agentload.emulator.steptime import distinct_experts, saturation
from agentload.errors import ProfileError
from agentload.model.profile import Experts, StepTime
from agentload.model.record import Record

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FEWEST_CALLS = 40
"""With fewer calls, a quarter left out proves nothing."""
FEWEST_GAPS = 9
"""Fewest gaps in a span, so that its median is not moved by chunks of a prompt that joins."""
FEWEST_SHARED = 0.1
"""Share of spans that must have more than one sequence before batch terms are fitted."""
HELD_OUT_EVERY = 4
PULL = 0.05
"""Relative residuals beyond this count less and less.

Those are pauses, and prompts that waited longer than most.
"""
SHORTEST_MS = 1e-3
ROUNDS: Final = 5
"""Rounds of finding which chunks are bound by compute; the boundary is still after three."""
DRAWS: Final = 100
NOTHING: Final = 1e-6
"""A coefficient that explains less than this share of the measured time counts as 0."""


class Observed(Record):
    """Calls of one arm that were answered in full, one entry a call."""

    sent_ns: Ints
    prompt_tokens: Ints
    cached_tokens: Ints
    output_tokens: Ints
    stamps_ns: Sequence[Ints]
    """When each chunk of the call arrived."""


class Error(Record):
    """Relative error of predictions for observations left out: median, 90th percentile."""

    median: float
    p90: float
    count: int


class Fitted(Record):
    """Hold the coefficients and how well they predict."""

    step: StepTime
    itl_error: Error
    ttft_error: Error
    calls: int
    notes: tuple[str, ...]
    """Sentences on what the data could not separate."""


def fit(
    seen: Observed, *, weights_ms: float | None, experts: Experts | None = None, budget: int = 8192
) -> Fitted:
    """Fit a step time; *weights_ms* is weight bytes over memory bandwidth, or None to fit it.

    Raises ProfileError for too few calls.
    """
    calls = len(seen.sent_ns)
    first_ns = np.array([stamps[0] for stamps in seen.stamps_ns], dtype=np.int64)
    alone = _prefilled_alone(seen.sent_ns, first_ns)
    batch, gaps, gap_ms, beside = _spans(seen, first_ns, experts)
    if calls < FEWEST_CALLS or alone.sum() < FEWEST_CALLS // 2 or len(gap_ms) < FEWEST_CALLS // 2:
        raise ProfileError(
            f"{calls} complete calls, {int(alone.sum())} of them with a prefill of their "
            "own: too few to fit a profile",
            hint=f"measure at least {FEWEST_CALLS} calls, some at low concurrency",
        )
    in_company = bool((batch > 1).mean() >= FEWEST_SHARED)
    design = gaps if in_company else gaps[:, :2]
    itl, itl_error = _solved(design, gap_ms)
    decode = [*itl, 0.0, 0.0][:4]
    prompts = _Prompts.of(seen, first_ns, alone, budget=budget)
    where = beside[alone]
    has_company = where >= 0
    spans = gaps[where]
    attention_ms = spans[:, 1] * decode[1] + spans[:, 3] * decode[3]
    waited_ms = gap_ms[where] / 2 + prompts.chunks * attention_ms
    extra_ms = np.where(has_company, waited_ms, 0.0)
    company = np.where(has_company, batch[where], 0)
    host, per_token, per_pair, weights_ms, ttft_error = prompts.solved(
        extra_ms, company, decode, weights_ms, experts
    )
    return Fitted(
        step=StepTime(
            decode_ms=decode[0],
            decode_ms_per_token=decode[1],
            prefill_ms_per_token=per_token,
            prefill_ms_per_pair=per_pair,
            weights_ms=min(weights_ms, decode[0]),
            host_ms_per_token=host,
            batch8_ms=decode[2] if in_company else None,
            batch8_attention=decode[3] / decode[1] if in_company and decode[1] > 0 else None,
            known_to_batch=max(1, int(np.quantile(batch, 0.95))),
        ),
        itl_error=itl_error,
        ttft_error=ttft_error,
        calls=calls,
        notes=(
            *_notes(in_company=in_company, has_hits=prompts.has_hits, batch=batch),
            *_at_zero(design, gap_ms, itl),
        ),
    )


class _Prompts(Record):
    """Prompts that prefilled alone, described by their chunks."""

    ttft_ms: Floats
    prompt: Floats
    pairs: Floats
    chunks: Floats
    last: Floats
    """Tokens of the last chunk; the chunks before it have `budget` tokens."""
    budget: int
    has_hits: bool

    @classmethod
    def of(
        cls, seen: Observed, first_ns: Ints, alone: NDArray[np.bool_], *, budget: int
    ) -> "_Prompts":
        computed = np.maximum(seen.prompt_tokens - seen.cached_tokens, 1)[alone]
        chunks = np.ceil(computed / budget)
        return cls(
            ttft_ms=((first_ns - seen.sent_ns) / 1e6)[alone],
            prompt=seen.prompt_tokens[alone].astype(np.float64),
            pairs=computed * (seen.cached_tokens[alone] + computed / 2),
            chunks=chunks,
            last=computed - (chunks - 1) * budget,
            budget=budget,
            has_hits=bool(seen.cached_tokens[alone].any()),
        )

    def solved(
        self,
        extra_ms: Floats,
        company: Ints,
        decode: Sequence[float],
        weights_ms: float | None,
        experts: Experts | None,
    ) -> tuple[float, float, float, float, Error]:
        """Return the fitted times in ms, and the error.

        The order: host per prompt token, per computed token, per causal pair, reading the weights.
        """
        last = self.last + company
        reading_ms = decode[0] + decode[2] * np.array(
            [_extra(int(tokens), experts) for tokens in last]
        )
        is_bound = np.zeros(len(last), dtype=np.bool_)
        for _ in range(ROUNDS):
            full = self.chunks - is_bound
            tokens = (self.chunks - 1) * (self.budget + company) + np.where(is_bound, 0, last)
            columns = [tokens, self.pairs]
            columns += [self.prompt] if self.has_hits else []
            columns += [full] if weights_ms is None else []
            launch_ms = 0.0 if weights_ms is None else max(0.0, decode[0] - weights_ms)
            known = (
                extra_ms
                + np.where(is_bound, reading_ms, 0.0)
                + (0.0 if weights_ms is None else launch_ms * full)
            )
            found, error = _solved(
                np.column_stack(columns).astype(np.float64),
                np.maximum(self.ttft_ms, SHORTEST_MS),
                known,
            )
            per_token, per_pair = found[:2]
            launch_ms = found[-1] if weights_ms is None else launch_ms
            is_bound = launch_ms + per_token * last < reading_ms
        host = found[2] if self.has_hits else 0.0
        return (
            host,
            per_token,
            per_pair,
            decode[0] - launch_ms if weights_ms is None else weights_ms,
            error,
        )


def _extra(tokens: int, experts: Experts | None) -> float:
    if experts is None:
        return saturation(tokens)
    return distinct_experts(experts, tokens)


def _at_zero(design: Floats, measured: Floats, found: Sequence[float]) -> list[str]:
    """Return a note for each decode coefficient that came out as 0: how large it may be."""
    size = np.abs(design / measured[:, None]).mean(axis=0)
    shares = np.array(found) * size
    at_zero = [number for number in range(1, len(found)) if shares[number] < NOTHING]
    if not at_zero:
        return []
    rng = np.random.default_rng(0)
    picked = (rng.integers(len(measured), size=len(measured)) for _ in range(DRAWS))
    draws = np.array([_solve(design[rows], measured[rows]) for rows in picked])
    most = np.quantile(draws, 0.975, axis=0) * np.median(design, axis=0)
    return [
        f"{_NAMES[number]} was not seen: at most {most[number]:.2g} ms of a step"
        for number in at_zero
        if most[number] >= SHORTEST_MS
    ]


_NAMES: Final = (
    "",
    "attention to the context",
    "the cost of a batch",
    "what a batch adds to attention",
)


def _notes(*, in_company: bool, has_hits: bool, batch: Ints) -> tuple[str, ...]:
    notes = []
    if not in_company:
        notes.append(
            "no call decoded in company: the cost of a batch is unknown and taken as nothing"
        )
    elif batch.min() * 2 > batch.max():
        notes.append(
            "the batch hardly varied: its cost and that of a lone sequence cannot be separated"
        )
    if not has_hits:
        notes.append(
            "no prompt was cached: the host's time per prompt token is part of prefill_ms_per_token"
        )
    return tuple(notes)


def _spans(
    seen: Observed, first_ns: Ints, experts: Experts | None
) -> tuple[Ints, Floats, Floats, Ints]:
    """Return batch, regressors and median gap of every span, and the span each prompt came in.

    The batch is constant within a span; -1 marks a prompt that came while nobody decoded.
    """
    last_ns = np.array([stamps[-1] for stamps in seen.stamps_ns], dtype=np.int64)
    rate = seen.output_tokens / np.maximum(last_ns - first_ns, 1)
    ending = [(at, 0, call) for call, at in enumerate(last_ns)]
    beginning = [(at, 1, call) for call, at in enumerate(first_ns)]
    active: dict[int, None] = {}
    spans: list[tuple[int, float, float]] = []
    ends: list[int] = []
    for (start, begins, call), (end, *_) in pairwise(sorted(ending + beginning)):
        if begins:
            active[call] = None
        else:
            active.pop(call, None)
        if not active:
            continue
        # All sequences of a batch emit together, so the one that joined last represents all.
        stamps = seen.stamps_ns[next(reversed(active))]
        first = np.searchsorted(stamps, start)
        last = np.searchsorted(stamps, end, side="right")
        inside = np.diff(stamps[first:last])
        # A median gap of 0 means chunks read together, whose stamps show our reads, not their
        # arrival.
        if len(inside) >= FEWEST_GAPS and np.median(inside) > 0:
            middle = (start + end) / 2
            context = sum(
                seen.prompt_tokens[each] + rate[each] * (middle - first_ns[each]) for each in active
            )
            spans.append((len(active), float(context), float(np.median(inside)) / 1e6))
            ends.append(int(end))
    batch = np.array([size for size, _, _ in spans], dtype=np.int64)
    dense = np.array([saturation(int(size)) for size in batch])
    extra = np.array([_extra(int(size), experts) for size in batch])
    context_tokens = np.array([context for _, context, _ in spans])
    columns = [np.ones(len(spans)), context_tokens, extra, dense * context_tokens]
    gap_ms = np.array([gap for _, _, gap in spans])
    where = _beside(seen, first_ns, last_ns, np.array(ends))
    return batch, np.column_stack(columns), gap_ms, where


def _beside(seen: Observed, first_ns: Ints, last_ns: Ints, ends: Ints) -> Ints:
    """Return the span during which each prompt came while others decoded, or -1.

    On average half of the running step is still left when a prompt comes.
    """
    if not len(ends):
        return np.full(len(first_ns), -1)
    begun = np.searchsorted(np.sort(first_ns), seen.sent_ns)
    ended = np.searchsorted(np.sort(last_ns), seen.sent_ns)
    span = np.minimum(np.searchsorted(ends, seen.sent_ns), len(ends) - 1)
    return np.where(begun > ended, span, -1)


def _prefilled_alone(sent_ns: Ints, first_ns: Ints) -> NDArray[np.bool_]:
    """Tell which calls did not wait for another call's prefill, and shared theirs with none."""
    order = np.argsort(sent_ns, kind="stable")
    sent = sent_ns[order]
    first = first_ns[order]
    bounds = np.iinfo(np.int64)
    latest = np.maximum.accumulate(first)
    before = np.concatenate([[bounds.min], latest[:-1]])
    after = np.concatenate([sent[1:], [bounds.max]])
    alone = np.empty(len(sent), dtype=np.bool_)
    alone[order] = (before <= sent) & (first <= after)
    return alone


def _solved(
    design: Floats, measured: Floats, known: Floats | float = 0.0
) -> tuple[list[float], Error]:
    """Solve without every fourth observation, to predict those; then solve with all.

    *known* is the part of each measured value that needs no coefficient.
    """
    known = np.broadcast_to(known, measured.shape)
    train = np.arange(len(measured)) % HELD_OUT_EVERY != 0
    solved = _solve(design[train], measured[train], known[train])
    predicted = design[~train] @ solved + known[~train]
    relative = np.abs(predicted / measured[~train] - 1)
    error = Error(
        median=float(np.median(relative)),
        p90=float(np.quantile(relative, 0.9)),
        count=len(relative),
    )
    return [float(value) for value in _solve(design, measured, known)], error


def _solve(design: Floats, measured: Floats, known: Floats | float = 0.0) -> Floats:
    """Solve for coefficients >= 0 with relative residuals, damping large ones (soft L1)."""
    shares = design / measured[:, None]
    scale = np.abs(shares).mean(axis=0)
    scale[scale == 0] = 1.0
    relative = shares / scale
    wanted = 1 - known / measured

    def residuals(x: Floats) -> Floats:
        return np.asarray(relative @ x - wanted, dtype=np.float64)

    start = np.full(design.shape[1], 1.0 / design.shape[1])
    found = scipy.optimize.least_squares(
        residuals,
        start,
        bounds=(0, np.inf),
        loss="soft_l1",
        f_scale=PULL,
        x_scale="jac",
        xtol=1e-12,
        ftol=1e-12,
    )
    return np.asarray(found.x / scale, dtype=np.float64)
