"""Compare latencies of every arm with the reference, by workload and for the whole mix.

An A/A control is the same comparison between two copies of one configuration. On one server the
copies show what the place in the order adds, which is subtracted; with a server each, they show
what one start differs from the next by, which informs the width and nothing else.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.assess.tasks import task_table
from advisor.case import Control, SpeedComparison
from advisor.evidence import Calls, Evidence, Ints, OwnCalls
from advisor.policy import Compared, Metric, Policy
from advisor.statistics import paired, planning, starts
from advisor.statistics.paired import PairTable, same_turns
from advisor.statistics.spread import Spread
from advisor.verdict import Change

METRICS: tuple[Metric, ...] = ("turn_ms", "ttft_ms", "tpot_ms")
COMPARED: tuple[Compared, ...] = (*METRICS, "task_ms")
METHOD = "mean log ratio of the same turns, starts of the servers included, over"
OF_TASKS = "log ratio of the time of the same tasks, starts of the servers included, over"
# `position` is a standard deviation: a control further off than this many shows something else
NO_PLACE = 3
_SIDES = math.sqrt(2)  # a ratio has a start on each of its sides


Controls = dict[tuple[str | None, Metric], tuple[Control, ...]]


def start_spread(evidence: Evidence, policy: Policy) -> float:
    """Return what a start adds to one arm's latencies, in log units.

    By the history of starts, else as the policy assumes; 0 where the policy says 0.
    """
    return (
        policy.start_spread
        if evidence.starts is None or not policy.start_spread
        else evidence.starts.spread
    )


def start_scale(evidence: Evidence, policy: Policy) -> float:
    """Return the scale of what a start adds to a log ratio."""
    return _SIDES * start_spread(evidence, policy)


def controls(
    evidence: Evidence,
    shares: tuple[tuple[str, float], ...],
    metrics: tuple[Metric, ...],
    *,
    position: float,
) -> Controls:
    """Return what the controls of each workload showed, and those of the mix (None).

    The mix weighs classes as it does for the arms.
    """
    found: dict[tuple[str | None, Metric], list[Control]] = defaultdict(list)
    for metric in metrics:
        mixes: dict[int, dict[str, tuple[PairTable, bool]]] = defaultdict(dict)
        seen: dict[str, int] = defaultdict(int)
        for each in evidence.aa:
            table = paired.pair_table(each.first, each.second, metric)
            if table is None:
                continue
            across = each.across_starts or each.across_machines
            mixes[seen[each.workload]][each.workload] = (table, across)
            seen[each.workload] += 1
            found[each.workload, metric] += _control(table, across=across, position=position)
        for tables in mixes.values():
            mixed = paired.mixture(
                tuple(table for table, _ in tables.values()),
                tuple(dict(shares).get(name, 0.0) for name in tables),
            )
            if mixed is not None:
                found[None, metric] += _control(
                    mixed, across=any(across for _, across in tables.values()), position=position
                )
    return {scope: tuple(each) for scope, each in found.items()}


def _control(table: PairTable, *, across: bool, position: float) -> list[Control]:
    if len(table) < paired.MIN_PAIRS:
        return []
    pairs = paired.pairs_of(table)
    spread = starts.inside(pairs)
    # More than a place in the order adds: whatever it is, it may be between the arms as well.
    odd = abs(spread.value) - 2 * spread.se > NO_PLACE * position
    return [Control(spread=spread, draws=starts.start_draws(pairs) if across or odd else ())]


def controls_of(found: Controls, metric: Metric, workload: str | None) -> tuple[Control, ...]:
    """Return the controls of *workload*; those of the mix for one without its own."""
    return found.get((workload, metric)) or found.get((None, metric), ())


def controlled_change(
    table: PairTable, scale: float, known: Sequence[Control] = (), *, position: float = 0.0
) -> Spread | None:
    """Return the change that *table* shows, with what controls say of starts and order."""
    spread = paired.change(
        table, scale=scale, draws=tuple(draw for each in known for draw in each.draws)
    )
    here = min(
        (each.spread for each in known if not each.draws), key=lambda each: each.se, default=None
    )
    if spread is None or here is None or position == 0:
        return spread
    trusted = position**2 / (position**2 + here.se**2)  # the rest is shrunk to none
    return spread.shifted(trusted * here.value, here.se * math.sqrt(trusted))


def floor_of(control: Spread) -> float:
    """Return the largest relative change that a control leaves possible between equal sides."""
    return max(abs(math.expm1(end)) for end in control.interval())


def _minutes_per_pair(evidence: Evidence) -> float:
    """Return the minutes that one more pair of the run takes.

    The blocks of all arms and of the control count, gaps between them do not.
    """
    sides = [
        each.calls for each in evidence.observations if each.calls is not None and len(each.calls)
    ]
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
    metric: Compared,
    arm: str,
    workload: str | None,
    table: PairTable,
    *,
    evidence: Evidence,
    policy: Policy,
    minutes: float,
    known: tuple[Control, ...],
) -> SpeedComparison | None:
    scale = start_scale(evidence, policy)
    spread = controlled_change(table, scale, known, position=policy.position_spread)
    if spread is None:
        return None
    mildest = np.expm1(np.quantile(table.value, (0.25, 0.75)))
    pairs, calls, own = len(table), int(table.calls.sum()), workload is not None
    drawn = paired.pairs_of(table)
    few = drawn.starts < starts.OWN_STARTS and metric in ("turn_ms", "task_ms")
    method = OF_TASKS if metric == "task_ms" else METHOD
    doubted = (
        controlled_change(table, 2 * scale, known, position=policy.position_spread) if few else None
    )
    control = min((each.spread for each in known), key=lambda each: each.se, default=None)
    level = 1 - 2 * planning.look_level(evidence.looks, policy.alpha)
    change = Change(
        metric=metric,
        arm=arm,
        workload=workload,
        relative=spread.relative(unit="relative", method=method, level=level),
        pairs=pairs,
        calls=calls,
        floor=None if control is None else floor_of(control),
        by_pair=tuple(np.expm1(table.value).tolist()) if own else (),
        pair_ids=tuple(table.pair.tolist()) if own else (),
    )
    return SpeedComparison(
        change=change,
        spread=spread,
        calls_per_pair=calls / max(pairs, 1),
        minutes_per_pair=minutes,
        mildest=(float(mildest[0]), float(mildest[1])),
        starts=drawn.starts,
        in_turn=starts.in_turn(drawn),
        scatter=starts.scatter(drawn, scale=scale),
        doubted=None
        if doubted is None
        else doubted.relative(unit="relative", method=method, level=level),
        controls=known,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Matched:
    """Hold the calls of one class on both arms, and the rows of the turns that ended on both."""

    workload: str
    reference: Calls
    calls: Calls
    rows: tuple[Ints, Ints]
    own: OwnCalls | None

    def table(self, metric: Compared) -> PairTable | None:
        """Return the pairs of *metric*; None where they are too few."""
        if metric == "task_ms":
            table = task_table(self.reference, self.calls, self.own)
        else:
            table = paired.pair_table(self.reference, self.calls, metric, rows=self.rows)
        return table if table is not None and len(table) >= paired.MIN_PAIRS else None


def _matched(evidence: Evidence, arm: str) -> Iterator[_Matched]:
    own = {each.workload: each for each in evidence.trace}
    for each in evidence.workloads:
        sides = evidence.sides(each.name, arm)
        if sides is not None:
            yield _Matched(
                workload=each.name,
                reference=sides[0],
                calls=sides[1],
                rows=same_turns(*sides),
                own=own.get(each.name),
            )


def _tables(
    matched: Sequence[_Matched], metric: Compared, shares: Mapping[str, float]
) -> dict[str | None, PairTable]:
    """Return the pairs of each class that has enough of them, and those of the mix (None)."""
    tables: dict[str | None, PairTable] = {}
    weights = []
    for each in matched:
        table = each.table(metric)
        if table is not None:
            tables[each.workload] = table
            weights.append(shares[each.workload])
    mixed = paired.mixture(tuple(tables.values()), tuple(weights))
    return tables if mixed is None else {**tables, None: mixed}


def speeds(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], policy: Policy
) -> tuple[SpeedComparison, ...]:
    """Return every comparison that the evidence allows."""
    known, minutes = (
        controls(evidence, shares, METRICS, position=policy.position_spread),
        _minutes_per_pair(evidence),
    )
    out: list[SpeedComparison | None] = []
    for arm in evidence.challengers:
        matched = tuple(_matched(evidence, arm.name))
        for metric in COMPARED:
            for scope, table in _tables(matched, metric, dict(shares)).items():
                # Controls of turns are those of the tasks that they add up to.
                of_turn: Metric = "turn_ms" if metric == "task_ms" else metric
                told = controls_of(known, of_turn, scope)
                out.append(
                    _speed(
                        metric,
                        arm.name,
                        scope,
                        table,
                        evidence=evidence,
                        policy=policy,
                        minutes=minutes,
                        known=told,
                    )
                )
    return tuple(each for each in out if each is not None)


def between(
    evidence: Evidence,
    first: str,
    second: str,
    shares: tuple[tuple[str, float], ...],
    policy: Policy,
) -> Spread | None:
    """Return the change in turn time of the mix from *first* to *second*.

    It is taken on the turns that both finished.
    """
    tables, weights = [], []
    for name, share in shares:
        sides = evidence.sides(name, second, against=first)
        table = None if sides is None else paired.pair_table(*sides, "turn_ms")
        if table is not None:
            tables.append(table)
            weights.append(share)
    mixed = paired.mixture(tuple(tables), tuple(weights))
    return None if mixed is None else controlled_change(mixed, start_scale(evidence, policy))
