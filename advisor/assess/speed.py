"""Compare latencies of every arm with the reference, by workload and for the whole mix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.case import Speed
from advisor.evidence import Calls, Evidence, Ints
from advisor.statistics import paired
from advisor.statistics.floor import noise_floor
from advisor.statistics.matching import same_turns
from advisor.statistics.paired import Metric, PairTable
from advisor.statistics.resampling import Spread
from advisor.verdict import Change

METRICS: tuple[Metric, ...] = ("turn_ms", "ttft_ms", "tpot_ms")
_METHOD = "mean log ratio of the same turns, bootstrap over"


def floors(evidence: Evidence) -> dict[tuple[str, Metric], float]:
    """Return the noise floor of each controlled workload and metric."""
    found: dict[tuple[str, Metric], float] = {}
    for control in evidence.aa:
        for metric in METRICS:
            table = paired.pair_table(control.first, control.second, metric)
            spread = None if table is None else paired.change(table)
            if spread is not None:
                found[control.workload, metric] = max(noise_floor(spread), found.get((control.workload, metric), 0.0))
    return found


def _floor(known: dict[tuple[str, Metric], float], metric: Metric, workload: str | None) -> float | None:
    """Return the workload's own floor, else the largest of the run."""
    if workload is not None and (workload, metric) in known:
        return known[workload, metric]
    return max((value for (_, each), value in known.items() if each == metric), default=None)


def _minutes(calls: Calls) -> float:
    """Return the time this arm's side of the run took, gaps between blocks left out."""
    blocks, index = np.unique(calls.block, return_inverse=True)
    end = np.full(blocks.size, -np.inf)
    start = np.full(blocks.size, np.inf)
    np.maximum.at(end, index, calls.start_s + np.nan_to_num(calls.turn_ms) / 1e3)
    np.minimum.at(start, index, calls.start_s)
    return float(np.sum(end - start)) / 60


def _speed(change: Change, spread: Spread, minutes: float) -> Speed:
    pairs = max(change.pairs, 1)
    return Speed(change=change, spread=spread, calls_per_pair=change.calls / pairs, minutes_per_pair=minutes / pairs)


def _change(metric: Metric, arm: str, spread: Spread, *, workload: str | None, pairs: int, calls: int, floor: float | None) -> Change:
    relative = spread.relative(unit="relative", method=_METHOD)
    return Change(metric=metric, arm=arm, workload=workload, relative=relative, pairs=pairs, calls=calls, floor=floor)


def _by_workload(table: PairTable, change: Change) -> Change:
    by_pair = tuple(float(each) for each in np.expm1(table.value))
    return replace(change, by_pair=by_pair, pair_ids=tuple(int(each) for each in table.pair))


def speeds(evidence: Evidence, shares: tuple[tuple[str, float], ...]) -> tuple[Speed, ...]:
    """Return every comparison that the evidence allows."""
    known = floors(evidence)
    out: list[Speed] = []
    for arm in evidence.challengers:
        matched: dict[str, tuple[Calls, Calls, tuple[Ints, Ints]]] = {}
        for workload in evidence.workloads:
            reference, calls = evidence.calls(workload.name, evidence.reference), evidence.calls(workload.name, arm.name)
            if reference is not None and calls is not None:
                matched[workload.name] = (reference, calls, same_turns(reference, calls))
        time = {name: _minutes(reference) + _minutes(calls) for name, (reference, calls, _) in matched.items()}
        for metric in METRICS:
            tables = {}
            for name, (reference, calls, rows) in matched.items():
                table = paired.pair_table(reference, calls, metric, rows=rows)
                spread = None if table is None else paired.change(table)
                if table is None or spread is None:
                    continue
                tables[name] = table
                change = _change(
                    metric,
                    arm.name,
                    spread,
                    workload=name,
                    pairs=len(table),
                    calls=int(table.calls.sum()),
                    floor=_floor(known, metric, name),
                )
                out.append(_speed(_by_workload(table, change), spread, time[name]))
            mixed = paired.mixed_change(tuple(tables.values()), tuple(dict(shares)[name] for name in tables))
            if mixed is not None:
                change = _change(
                    metric,
                    arm.name,
                    mixed,
                    workload=None,
                    pairs=len(np.unique(np.concatenate([table.pair for table in tables.values()]))),
                    calls=sum(int(table.calls.sum()) for table in tables.values()),
                    floor=_floor(known, metric, None),
                )
                out.append(_speed(change, mixed, max(time.values())))
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
