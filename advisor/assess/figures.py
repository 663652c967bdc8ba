"""Tabulate what was measured, arm by arm, each figure with its interval or its count.

Latencies, throughput, goodput, hits, cost and energy.
"""

from collections.abc import Iterator, Mapping
from math import exp

import numpy as np
import scipy

from advisor.estimate import Estimate
from advisor.evidence import Arm, Calls, Evidence, Floats, Observation, Telemetry, present
from advisor.policy import Metric, Policy, ServiceLimits
from advisor.statistics.quantiles import quantile, wilson
from advisor.statistics.resampling import cluster_variance
from advisor.verdict import Figure

QUANTILES = ((0.5, "p50"), (0.95, "p95"))
LEVEL = 0.95
LEAST_BLOCKS = 4  # with fewer an interval says how few they are, not how the server does
MOST_TAIL = 0.5  # share of turns in the drain tail above which no throughput is stated
LATENCIES: tuple[Metric, ...] = ("ttft_ms", "tpot_ms", "turn_ms")


def rate(values: Floats, *, unit: str, method: str) -> Estimate | None:
    """Return the mean rate over independent blocks; None with fewer than two.

    From four blocks on with Student's interval, on a log scale: no rate lies below zero.
    """
    n, mean = values.size, float(values.mean()) if values.size else 0.0
    if n < LEAST_BLOCKS or mean <= 0:
        return (
            None
            if n < 2
            else _counted(mean, unit=unit, method=f"{method}, too few for an interval", n=n)
        )
    reach = (
        float(scipy.special.stdtrit(n - 1, 0.5 + LEVEL / 2))
        * float(values.std(ddof=1))
        / n**0.5
        / mean
    )
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
    return Estimate(value=value, low=None, high=None, n=n, unit=unit, method=method)


def _within(calls: Calls, slo: ServiceLimits) -> Floats:
    """Return 1 for each turn within the service level, 0 for others; failed turns are not."""
    good = calls.ok.copy()
    for limit, column in (
        (slo.ttft_ms, calls.ttft_ms),
        (slo.tpot_ms, calls.tpot_ms),
        (slo.turn_ms, calls.turn_ms),
    ):
        if limit is not None:
            good &= ~(column > limit)
    return good.astype(np.float64)


def by_block(calls: list[Calls], weights: list[Floats]) -> Floats:
    """Return the sum of *weights* per second of each block, its drain tail left out."""
    loaded = np.concatenate(
        [np.ones(len(each), dtype=bool) if each.tail is None else ~each.tail for each in calls]
    )
    block = np.concatenate([each.block for each in calls])[loaded]
    start = np.concatenate([each.start_s for each in calls])
    end = start + np.nan_to_num(np.concatenate([each.turn_ms for each in calls])) / 1e3
    names, index = np.unique(block, return_inverse=True)
    first, last = np.full(names.size, np.inf), np.full(names.size, -np.inf)
    np.minimum.at(first, index, start[loaded])
    np.maximum.at(last, index, end[loaded])
    total = np.bincount(index, weights=np.concatenate(weights)[loaded], minlength=names.size)
    span = last - first
    rate: Floats = np.divide(total[span > 0], span[span > 0], dtype=np.float64)
    return rate


def _latencies(calls: Calls) -> Iterator[tuple[str, Estimate]]:
    for metric in LATENCIES:
        for q, name in QUANTILES:
            found = quantile(calls.lasting(metric), calls.session, q, unit="ms")
            if found is not None:
                yield f"{metric}.{name}", found
    yield (
        "dropped_share",
        _counted(1 - float(calls.ok.mean()), unit="share", method="counted turns", n=len(calls)),
    )


def under_load(calls: list[Calls]) -> bool:
    """Say whether most turns were released before their block started to drain.

    Otherwise a rate says how sessions end, not what a server does.
    """
    tail = sum(int(each.tail.sum()) for each in calls if each.tail is not None)
    return tail <= MOST_TAIL * sum(len(each) for each in calls)


def output_rate(calls: list[Calls]) -> Estimate | None:
    """Return the output tokens of turns that succeeded, per second of their blocks."""
    tokens = [np.where(each.ok, np.nan_to_num(each.output_tokens), 0.0) for each in calls]
    return rate(by_block(calls, tokens), unit="tokens/s", method="blocks")


def _throughput(evidence: Evidence, arm: Arm, policy: Policy) -> Iterator[tuple[str, Estimate]]:
    observed = evidence.calls_of(arm.name)
    calls = list(observed.values())
    if not calls or not under_load(calls):
        return
    tokens = output_rate(calls)
    turns = by_block(calls, [each.ok.astype(np.float64) for each in calls])
    requests = rate(turns, unit="requests/s", method="blocks")
    good = _goodput_rate(observed, policy)
    if good is not None:
        yield "goodput_per_s", good
    if requests is not None:
        yield "requests_per_s", requests
    if tokens is not None:
        yield "output_tokens_per_s", tokens
        yield from _costs(evidence, arm, tokens, requests)


def _goodput_rate(observed: Mapping[str, Calls], policy: Policy) -> Estimate | None:
    """Return the rate of turns within the service level; None where a class has none."""
    calls, slos = list(observed.values()), [policy.slo(name) for name in observed]
    known = present(slos)
    if len(known) < len(slos):
        return None
    within = [_within(each, slo) for each, slo in zip(calls, known, strict=True)]
    method = "blocks, turns within the service level"
    return rate(by_block(calls, within), unit="requests/s", method=method)


def _costs(
    evidence: Evidence, arm: Arm, tokens: Estimate, requests: Estimate | None
) -> Iterator[tuple[str, Estimate]]:
    """Yield what tokens and turns cost in money and energy, where a rate surely exceeds 0."""
    price = evidence.deployment.gpu.usd_per_hour
    gpus = evidence.gpus(arm.name) * evidence.deployment.replicas
    if price is not None and tokens.is_above(0.0):
        yield "usd_per_mtok", tokens.inverse(price * gpus / 3600 * 1e6, unit="USD/1M output tokens")
    if price is not None and requests is not None and requests.is_above(0.0):
        yield "usd_per_turn", requests.inverse(price * gpus / 3600, unit="USD/turn")
    watts = next((figures.watts for name, figures in evidence.server if name == arm.name), None)
    if watts is not None and tokens.is_above(0.0):
        yield "joule_per_token", tokens.inverse(watts, unit="J/output token")


def _telemetry(figures: Telemetry) -> Iterator[tuple[str, Estimate]]:
    units = {
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
    for name, unit in units.items():
        value = getattr(figures, name)
        if value is not None:
            yield name, _counted(value, unit=unit, method="server's own samples")
    for phase in figures.phases:
        yield (
            f"phase_ms.{phase.name}",
            _counted(phase.mean_ms, unit="ms", method="server's own histograms", n=phase.count),
        )


def _facts(arm: Arm) -> Iterator[tuple[str, Estimate]]:
    for name, unit in (
        ("pool_tokens", "tokens"),
        ("page_bytes", "bytes"),
        ("max_concurrency", "requests"),
    ):
        value = getattr(arm, name)
        if value is not None:
            yield name, _counted(value, unit=unit, method="read from the server")


def figures(evidence: Evidence, policy: Policy) -> tuple[Figure, ...]:
    """Return the evidence table: whole server first, then each workload."""
    out: list[Figure] = []
    for arm in evidence.arms:
        server = [*_facts(arm), *_throughput(evidence, arm, policy)]
        for name, telemetry in evidence.server:
            if name == arm.name:
                server.extend(_telemetry(telemetry))
        out.extend(
            Figure(name=name, arm=arm.name, workload=None, estimate=found, kind=evidence.kind)
            for name, found in server
        )
        for each in evidence.observations:
            if each.arm != arm.name:
                continue
            out.extend(
                Figure(
                    name=name,
                    arm=arm.name,
                    workload=each.workload,
                    estimate=value,
                    kind=evidence.kind,
                )
                for name, value in _of_workload(each, policy)
            )
    return tuple(out)


def _of_workload(seen: Observation, policy: Policy) -> Iterator[tuple[str, Estimate]]:
    if seen.calls is not None and len(seen.calls):
        yield from _latencies(seen.calls)
        yield from _goodput(seen.calls, policy.slo(seen.workload))
    if seen.telemetry is not None:
        yield from _telemetry(seen.telemetry)


def _goodput(calls: Calls, slo: ServiceLimits | None) -> Iterator[tuple[str, Estimate]]:
    """Yield the share of turns within the service level, with Wilson's interval.

    The interval counts turns by what they are worth where those of a block resemble each other.
    """
    if slo is None:
        return
    names, index = np.unique(calls.block, return_inverse=True)
    within, blocks = _within(calls, slo), names.size
    share, method = float(within.mean()), f"{blocks} blocks, turns within the service level"
    if blocks < LEAST_BLOCKS:
        yield (
            "within_slo",
            _counted(share, unit="share", method=f"{method}, too few for an interval", n=blocks),
        )
        return
    # Where all turns are alike, each block counts as one observation.
    alone, together = share * (1 - share) / within.size, cluster_variance(within, index)
    worth = within.size * min(1.0, alone / together) if together > 0 else float(blocks)
    turns = max(1, round(worth))
    low, high = wilson(round(share * turns), turns, level=LEVEL)
    low, high = min(low, share), max(high, share)
    yield (
        "within_slo",
        Estimate(
            value=share, low=low, high=high, n=blocks, unit="share", method=method, level=LEVEL
        ),
    )
