"""Tabulate what was measured, arm by arm, each figure with its interval or its count.

Latencies, throughput, goodput, hits, cost and energy.
"""

from collections.abc import Iterator, Mapping
from math import exp
from typing import Final

import numpy as np

from advisor.estimate import Estimate, present
from advisor.evidence import Arm, Bools, Calls, Evidence, Floats, Ints, Observation, Telemetry
from advisor.policy import Metric, Policy, ServiceLimits
from advisor.statistics.groups import group_ends, group_numbers
from advisor.statistics.quantiles import quantile, wilson
from advisor.statistics.resampling import cluster_variance
from advisor.statistics.spread import student_reach
from advisor.verdict import Figure

QUANTILES = ((0.5, "p50"), (0.95, "p95"))
LEVEL = 0.95
LEAST_BLOCKS = 4  # with fewer an interval says how few they are, not how the server does
MOST_TAIL = 0.5  # share of turns in the drain tail above which no throughput is stated
LATENCIES: tuple[Metric, ...] = ("ttft_ms", "tpot_ms", "turn_ms")
UNITS_OF_FACTS: Final = {
    "pool_tokens": "tokens",
    "page_bytes": "bytes",
    "max_concurrency": "requests",
}
UNITS_OF_SAMPLES: Final = {
    "peak_kv_usage": "share",
    "pool_filled_share": "share",
    "preemptions": "count",
    "hit_rate": "share",
    "ideal_hit_rate": "share",
    "external_hit_rate": "share",
    "rejections": "count",
    "running_max": "requests",
    "waiting_max": "requests",
    "acceptance_rate": "share",
    "watts": "W",
    "throttled_share": "share",
    "power_capped_share": "share",
    "clock_mhz": "MHz",
}


def rate(values: Floats, *, unit: str, method: str) -> Estimate | None:
    """Return the mean rate over independent blocks; None with fewer than two.

    From four blocks on with Student's interval, on a log scale: no rate lies below zero.
    """
    n = values.size
    if n < 2:
        return None
    mean = float(values.mean())
    if n < LEAST_BLOCKS or mean <= 0:
        return _counted(mean, unit=unit, method=f"{method}, too few for an interval", n=n)
    deviation = float(values.std(ddof=1))
    # Of the log: the error of the mean over the mean.
    reach = student_reach(LEVEL, n - 1) * deviation / n**0.5 / mean
    return Estimate(
        value=mean,
        low=mean / exp(reach),
        high=mean * exp(reach),
        n=n,
        unit=unit,
        method=method,
        level=LEVEL,
    )


def _counted(value: float, *, unit: str, method: str, n: int = 1) -> Estimate:
    """Return a figure without an interval."""
    return Estimate(value=value, low=None, high=None, n=n, unit=unit, method=method)


def _is_within_slo(calls: Calls, slo: ServiceLimits) -> Floats:
    """Return 1 for each turn within the service level, 0 for others; failed turns are not."""
    is_within = calls.ok.copy()
    for metric, limit in slo.limits():
        is_longer = getattr(calls, metric) > limit
        is_within &= ~is_longer
    return is_within.astype(np.float64)


def rates_by_block(calls: list[Calls], weights: list[Floats]) -> Floats:
    """Return the sum of *weights* per second of each block, its drain tail left out."""
    is_loaded = np.concatenate([_before_tail(each) for each in calls])
    block = np.concatenate([each.block for each in calls])[is_loaded]
    start = np.concatenate([each.start_s for each in calls])[is_loaded]
    end = np.concatenate([each.end_s for each in calls])[is_loaded]
    weight = np.concatenate(weights)[is_loaded]
    number = group_numbers(block)
    total = np.bincount(number, weights=weight)
    first, last = group_ends(number, start, end)
    span = last - first
    has_span = span > 0
    rates: Floats = np.divide(total[has_span], span[has_span], dtype=np.float64)
    return rates


def _before_tail(calls: Calls) -> Bools:
    """Tell which calls are outside of the drain tail of their block."""
    if calls.tail is None:
        return np.ones(len(calls), dtype=np.bool_)
    return ~calls.tail


def _latencies(calls: Calls) -> Iterator[tuple[str, Estimate]]:
    for metric in LATENCIES:
        took_ms = calls.lasting(metric)
        for q, name in QUANTILES:
            found = quantile(took_ms, calls.session, q, unit="ms")
            if found is not None:
                yield f"{metric}.{name}", found
    dropped = 1 - float(calls.ok.mean())
    yield "dropped_share", _counted(dropped, unit="share", method="counted turns", n=len(calls))


def is_under_load(calls: list[Calls]) -> bool:
    """Say whether most turns were released before their block started to drain.

    Otherwise a rate says how sessions end, not what a server does.
    """
    tails = present(each.tail for each in calls)
    in_tail = sum(int(tail.sum()) for tail in tails)
    turns = sum(map(len, calls))
    return in_tail <= MOST_TAIL * turns


def output_rate(calls: list[Calls]) -> Estimate | None:
    """Return the output tokens of turns that succeeded, per second of their blocks."""
    tokens = []
    for each in calls:
        known = np.nan_to_num(each.output_tokens)
        tokens.append(np.where(each.ok, known, 0.0))
    return rate(rates_by_block(calls, tokens), unit="tokens/s", method="blocks")


def _throughput(evidence: Evidence, arm: Arm, policy: Policy) -> Iterator[tuple[str, Estimate]]:
    observed = evidence.calls_of(arm.name)
    calls = list(observed.values())
    if not calls or not is_under_load(calls):
        return
    good = _goodput_rate(observed, policy)
    if good is not None:
        yield "goodput_per_s", good
    done = [each.ok.astype(np.float64) for each in calls]
    requests = rate(rates_by_block(calls, done), unit="requests/s", method="blocks")
    if requests is not None:
        yield "requests_per_s", requests
    tokens = output_rate(calls)
    if tokens is not None:
        yield "output_tokens_per_s", tokens
        yield from _costs(evidence, arm, tokens, requests)


def _goodput_rate(observed: Mapping[str, Calls], policy: Policy) -> Estimate | None:
    """Return the rate of turns within the service level; None where a class has none."""
    within = []
    for workload, calls in observed.items():
        slo = policy.slo(workload)
        if slo is None:
            return None
        within.append(_is_within_slo(calls, slo))
    rates = rates_by_block(list(observed.values()), within)
    return rate(rates, unit="requests/s", method="blocks, turns within the service level")


def _costs(
    evidence: Evidence, arm: Arm, tokens: Estimate, requests: Estimate | None
) -> Iterator[tuple[str, Estimate]]:
    """Yield what tokens and turns cost in money and energy, where a rate surely exceeds 0."""
    usd_per_gpu_hour = evidence.deployment.gpu.usd_per_hour
    if usd_per_gpu_hour is not None:
        gpus = evidence.gpus(arm.name) * evidence.deployment.replicas
        usd_per_s = usd_per_gpu_hour * gpus / 3600
        if tokens.is_above(0.0):
            yield "usd_per_mtok", tokens.inverse(usd_per_s * 1e6, unit="USD/1M output tokens")
        if requests is not None and requests.is_above(0.0):
            yield "usd_per_turn", requests.inverse(usd_per_s, unit="USD/turn")
    server = evidence.telemetry(None, arm.name)
    if server is not None and server.watts is not None and tokens.is_above(0.0):
        yield "joule_per_token", tokens.inverse(server.watts, unit="J/output token")


def _telemetry(figures: Telemetry) -> Iterator[tuple[str, Estimate]]:
    yield from _fields(figures, UNITS_OF_SAMPLES, method="server's own samples")
    for phase in figures.phases:
        mean = _counted(phase.mean_ms, unit="ms", method="server's own histograms", n=phase.count)
        yield f"phase_ms.{phase.name}", mean


def _fields(
    known: Telemetry | Arm, units: Mapping[str, str], *, method: str
) -> Iterator[tuple[str, Estimate]]:
    """Yield the figures that are known of the fields that have *units*."""
    for name, unit in units.items():
        value = getattr(known, name)
        if value is not None:
            yield name, _counted(value, unit=unit, method=method)


def figures(evidence: Evidence, policy: Policy) -> tuple[Figure, ...]:
    """Return the evidence table: whole server first, then each workload."""
    out: list[Figure] = []
    for arm in evidence.arms:
        for workload, name, found in _of_arm(evidence, arm, policy):
            figure = Figure(
                name=name, arm=arm.name, workload=workload, estimate=found, kind=evidence.kind
            )
            out.append(figure)
    return tuple(out)


def _of_arm(
    evidence: Evidence, arm: Arm, policy: Policy
) -> Iterator[tuple[str | None, str, Estimate]]:
    """Yield each figure of an arm with its workload (None: the whole server) and its name."""
    for name, found in _of_server(evidence, arm, policy):
        yield None, name, found
    for each in evidence.observations:
        if each.arm == arm.name:
            for name, found in _of_workload(each, policy):
                yield each.workload, name, found


def _of_server(evidence: Evidence, arm: Arm, policy: Policy) -> Iterator[tuple[str, Estimate]]:
    yield from _fields(arm, UNITS_OF_FACTS, method="read from the server")
    yield from _throughput(evidence, arm, policy)
    for name, telemetry in evidence.server:
        if name == arm.name:
            yield from _telemetry(telemetry)


def _of_workload(seen: Observation, policy: Policy) -> Iterator[tuple[str, Estimate]]:
    calls = seen.calls
    if calls:
        yield from _latencies(calls)
        slo = policy.slo(seen.workload)
        if slo is not None:
            yield "within_slo", _share_within_slo(calls, slo)
    if seen.telemetry is not None:
        yield from _telemetry(seen.telemetry)


def _share_within_slo(calls: Calls, slo: ServiceLimits) -> Estimate:
    """Return the share of turns within the service level, with Wilson's interval.

    The interval counts turns by what they are worth where those of a block resemble each other.
    """
    block = group_numbers(calls.block)
    blocks = int(block.max()) + 1
    within = _is_within_slo(calls, slo)
    share = float(within.mean())
    method = f"{blocks} blocks, turns within the service level"
    if blocks < LEAST_BLOCKS:
        method = f"{method}, too few for an interval"
        return _counted(share, unit="share", method=method, n=blocks)
    turns = max(1, round(_independent_turns(within, block, blocks)))
    return share_estimate(share, trials=turns, n=blocks, method=method)


def share_estimate(share: float, *, trials: int, n: int, method: str) -> Estimate:
    """Return a share with Wilson's interval, as of *trials* independent ones.

    *n* counts what the share is of. The interval holds the share where `round` moved it.
    """
    low, high = wilson(round(share * trials), trials, level=LEVEL)
    return Estimate(
        value=share,
        low=min(low, share),
        high=max(high, share),
        n=n,
        unit="share",
        method=method,
        level=LEVEL,
    )


def _independent_turns(within: Floats, block: Ints, blocks: int) -> float:
    """Return the number of independent turns that would tell the share as well as these do.

    Where all turns are alike, each block counts as one observation.
    """
    variance_in_blocks = cluster_variance(within, block)
    if variance_in_blocks <= 0:
        return float(blocks)
    share = float(within.mean())
    variance_if_independent = share * (1 - share) / within.size
    return within.size * min(1.0, variance_if_independent / variance_in_blocks)
