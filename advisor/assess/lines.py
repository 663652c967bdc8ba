"""Fit token latency, prefill time and break-even of every arm that was swept."""

import numpy as np

from advisor.assess.speed import start_spread
from advisor.evidence import Evidence, Prior
from advisor.policy import Policy
from advisor.statistics.break_even import break_even, break_even_from_calls
from advisor.statistics.line import itl_line
from advisor.statistics.ttft import ttft_curve
from advisor.verdict import BreakEven, ItlLine, TtftCurve


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
    """Return one curve an arm whose sweep knows the computed tokens; calls that ran alone, because a batch waits."""
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


def _own_batch(evidence: Evidence, shares: dict[str, float]) -> float | None:
    known = [(shares[each.name], each.batch) for each in evidence.workloads if each.batch is not None]
    weight = sum(share for share, _ in known)
    return sum(share * batch for share, batch in known) / weight if weight > 0 else None


def _prior(evidence: Evidence, arm: str) -> float | None:
    def fits(prior: Prior) -> bool:
        return prior.what == "break_even_tokens" and prior.arm == arm and prior.gpu in (None, evidence.deployment.gpu.name)

    return next((prior.value for prior in evidence.priors if fits(prior)), None)


def break_evens(evidence: Evidence, shares: tuple[tuple[str, float], ...], policy: Policy) -> tuple[BreakEven, ...]:
    """Return the break-even sets of every challenger: from its sweeps, one a batch size, else from the replay itself."""
    own, spread = _own_batch(evidence, dict(shares)), start_spread(evidence, policy)
    reference = next((each for each in evidence.sweeps if each.arm == evidence.reference), None)
    out = []
    for arm in evidence.challengers:
        prior = _prior(evidence, arm.name)
        sweep = next((each for each in evidence.sweeps if each.arm == arm.name), None)
        if reference is not None and sweep is not None:
            for users in np.intersect1d(reference.users, sweep.users):
                found = break_even(reference, sweep, users=int(users), spread=spread, own_users=own, prior_tokens=prior)
                if found is not None:
                    out.append(found)
            continue
        sides = [
            [calls for each in evidence.workloads if (calls := evidence.calls(each.name, name)) is not None]
            for name in (evidence.reference, arm.name)
        ]
        found = break_even_from_calls(arm.name, sides[0], sides[1], spread=spread, own_users=own, prior_tokens=prior)
        if found is not None:
            out.append(found)
    return tuple(out)
