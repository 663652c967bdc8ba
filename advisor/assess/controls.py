"""Measure the noise floor of every workload and of the mix: the same estimate, on sides that were the same configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from advisor.evidence import Evidence
from advisor.statistics import paired
from advisor.statistics.floor import noise_floor
from advisor.statistics.paired import Metric, PairTable
from advisor.statistics.resampling import Spread

Controls = dict[tuple[str | None, Metric], Spread]


def controls(evidence: Evidence, shares: tuple[tuple[str, float], ...], metrics: tuple[Metric, ...]) -> Controls:
    """Return what the control of each workload, and of the mix (None), showed; of several controls the widest."""
    found: Controls = {}
    for metric in metrics:
        for workload, spread in _spreads(evidence, dict(shares), metric):
            known = found.get((workload, metric))
            if known is None or noise_floor(spread) > noise_floor(known):
                found[workload, metric] = spread
    return found


def _spreads(evidence: Evidence, shares: dict[str, float], metric: Metric) -> Iterator[tuple[str | None, Spread]]:
    """Yield each workload's spreads, then the mix's: classes of one control weighted as those of the arms are."""
    by_control: dict[int, dict[str, PairTable]] = defaultdict(dict)
    seen: dict[str, int] = defaultdict(int)
    for control in evidence.aa:
        table = paired.pair_table(control.first, control.second, metric)
        spread = None if table is None else paired.change(table)
        if table is None or spread is None:
            continue
        by_control[seen[control.workload]][control.workload] = table
        seen[control.workload] += 1
        yield control.workload, spread
    for tables in by_control.values():
        mixed = paired.mixed_change(tuple(tables.values()), tuple(shares.get(name, 0.0) for name in tables))
        if mixed is not None:
            yield None, mixed


def control_of(found: Controls, metric: Metric, workload: str | None) -> Spread | None:
    """Return the control of *workload*; one without its own may differ by as much as the widest of the run."""
    own = found.get((workload, metric))
    return own or max((spread for (_, each), spread in found.items() if each == metric), key=noise_floor, default=None)
