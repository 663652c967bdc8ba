"""Compare latencies of every arm with the reference, by workload and for the whole mix.

The noise floor is the same estimate on sides that were the same configuration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from advisor.case import Speed
from advisor.evidence import Calls, Evidence, Ints
from advisor.statistics import paired
from advisor.statistics.paired import Metric, PairTable, same_turns
from advisor.statistics.resampling import Spread, noise_floor
from advisor.verdict import Change

METRICS: tuple[Metric, ...] = ("turn_ms", "ttft_ms", "tpot_ms")
_METHOD = "mean log ratio of the same turns, bootstrap over"
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


def _minutes_per_pair(evidence: Evidence) -> float:
    """Return what one more pair of the run takes: the blocks of all arms and of the control, gaps between them left out."""
    sides = [each.calls for each in evidence.observations if each.calls is not None and len(each.calls)]
    if not sides:
        return 0.0
    sides += [each.second for each in evidence.aa if len(each.second)]
    block = np.concatenate([each.block for each in sides])
    start = np.concatenate([each.start_s for each in sides])
    took = np.nan_to_num(np.concatenate([each.turn_ms for each in sides])) / 1e3
    index = block - block.min()  # positions in time: nearly dense, so nothing has to be sorted
    first, last = np.full(index.max() + 1, np.inf), np.full(index.max() + 1, -np.inf)
    np.fmin.at(first, index, start)  # a turn that was never sent has no start
    np.fmax.at(last, index, start + took)
    span, pairs = last - first, np.unique(np.concatenate([each.pair for each in sides])).size
    return float(span[np.isfinite(span)].sum()) / 60 / pairs


def _speed(
    metric: Metric, arm: str, workload: str | None, *, tables: Sequence[PairTable], spread: Spread, minutes: float, control: Spread | None
) -> Speed:
    """Return the comparison that *spread* is, of one workload's table, or of all that the mix has."""
    pairs, calls = np.unique(np.concatenate([each.pair for each in tables])).size, sum(int(each.calls.sum()) for each in tables)
    own = None if workload is None else tables[0]
    change = Change(
        metric=metric,
        arm=arm,
        workload=workload,
        relative=spread.relative(unit="relative", method=_METHOD),
        pairs=pairs,
        calls=calls,
        floor=None if control is None else noise_floor(control),
        by_pair=() if own is None else tuple(np.expm1(own.value).tolist()),
        pair_ids=() if own is None else tuple(own.pair.tolist()),
    )
    return Speed(change=change, spread=spread, calls_per_pair=calls / max(pairs, 1), minutes_per_pair=minutes, control=control)


def speeds(evidence: Evidence, shares: tuple[tuple[str, float], ...]) -> tuple[Speed, ...]:
    """Return every comparison that the evidence allows."""
    known, minutes = controls(evidence, shares, METRICS), _minutes_per_pair(evidence)
    out: list[Speed] = []
    for arm in evidence.challengers:
        matched: dict[str, tuple[Calls, Calls, tuple[Ints, Ints]]] = {}
        for workload in evidence.workloads:
            reference, calls = evidence.calls(workload.name, evidence.reference), evidence.calls(workload.name, arm.name)
            if reference is not None and calls is not None:
                matched[workload.name] = (reference, calls, same_turns(reference, calls))
        for metric in METRICS:
            tables: dict[str, PairTable] = {}
            found: list[tuple[str | None, list[PairTable], Spread | None]] = []
            for name, (reference, calls, rows) in matched.items():
                table = paired.pair_table(reference, calls, metric, rows=rows)
                spread = None if table is None else paired.change(table)
                if table is not None and spread is not None:
                    tables[name] = table
                    found.append((name, [table], spread))
            mixed = paired.mixed_change(tuple(tables.values()), tuple(dict(shares)[name] for name in tables))
            found.append((None, list(tables.values()), mixed))
            out.extend(
                _speed(metric, arm.name, scope, tables=own, spread=spread, minutes=minutes, control=control_of(known, metric, scope))
                for scope, own, spread in found
                if spread is not None
            )
    return tuple(out)


def between(evidence: Evidence, first: str, second: str, shares: tuple[tuple[str, float], ...]) -> Spread | None:
    """Return the change in turn time of the mix from *first* to *second*, taken on the turns that both finished."""
    tables, weights = [], []
    for name, share in shares:
        base, other = evidence.calls(name, first), evidence.calls(name, second)
        table = None if base is None or other is None else paired.pair_table(base, other, "turn_ms")
        if table is not None:
            tables.append(table)
            weights.append(share)
    return paired.mixed_change(tuple(tables), tuple(weights))
