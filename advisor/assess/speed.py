"""Compare latencies of every arm with the reference, by workload and for the whole mix.

An A/A control is the same comparison between two copies of one configuration. On one server the
copies show what the place in the order adds, which is subtracted; with a server each, they show
what one start differs from the next by, which informs the width and nothing else.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.assess.tasks import task_table
from advisor.estimate import Estimate, present
from advisor.evidence import Calls, Evidence, Ints, OwnCalls
from advisor.policy import Compared, Metric, Policy
from advisor.results import Control, SpeedComparison, surest
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
    if evidence.starts is None or not policy.start_spread:
        return policy.start_spread
    return evidence.starts.spread


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
    share_of = dict(shares)
    found: dict[tuple[str | None, Metric], list[Control]] = defaultdict(list)
    for metric in metrics:
        copies = _copies(evidence, metric)
        for each in copies:
            found[each.workload, metric] += _control([each], each.table, position)
        for mix in _mixes(copies):
            mixed = paired.mixture((each.table, share_of.get(each.workload, 0.0)) for each in mix)
            found[None, metric] += _control(mix, mixed, position)
    return {scope: tuple(each) for scope, each in found.items() if each}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Copies:
    """Hold the pairs of two copies of one configuration, and whether a start lies between them."""

    workload: str
    table: PairTable
    across: bool


def _copies(evidence: Evidence, metric: Metric) -> list[_Copies]:
    out = []
    for each in evidence.aa:
        table = paired.pair_table(each.first, each.second, metric)
        if table is not None:
            across = each.across_starts or each.across_machines
            out.append(_Copies(workload=each.workload, table=table, across=across))
    return out


def _mixes(copies: Sequence[_Copies]) -> list[list[_Copies]]:
    """Group the first control of every workload, the second of every workload, and so on."""
    mixes: dict[int, list[_Copies]] = defaultdict(list)
    seen = Counter[str]()
    for each in copies:
        mixes[seen[each.workload]].append(each)
        seen[each.workload] += 1
    return list(mixes.values())


def _control(copies: Sequence[_Copies], table: PairTable | None, position: float) -> list[Control]:
    """Return what the *table* of all these copies shows; nothing where its pairs are too few."""
    if table is None or len(table) < paired.MIN_PAIRS:
        return []
    pairs = paired.pairs_of(table)
    spread = starts.inside(pairs)
    # More than a place in the order adds: whatever it is, it may be between the arms as well.
    least = abs(spread.value) - 2 * spread.se
    is_odd = least > NO_PLACE * position
    has_starts = is_odd or any(each.across for each in copies)
    return [Control(spread=spread, draws=starts.start_draws(pairs) if has_starts else ())]


def controls_of(found: Controls, metric: Metric, workload: str | None) -> tuple[Control, ...]:
    """Return the controls of *workload*; those of the mix for one without its own."""
    own = found.get((workload, metric))
    of_mix = found.get((None, metric), ())
    return own or of_mix


def controlled_change(
    table: PairTable, scale: float, known: Sequence[Control] = (), *, position: float = 0.0
) -> Spread | None:
    """Return the change that *table* shows, with what controls say of starts and order."""
    draws = tuple(draw for each in known for draw in each.draws)
    spread = paired.change(table, scale=scale, draws=draws)
    here = surest(each for each in known if not each.draws)
    if spread is None or here is None or position == 0:
        return spread
    # A normal prior around no effect of the place: what is not trusted is shrunk to none.
    trusted = position**2 / (position**2 + here.se**2)
    return spread.shifted(trusted * here.value, here.se * math.sqrt(trusted))


def floor_of(control: Spread) -> float:
    """Return the largest relative change that a control leaves possible between equal sides."""
    low, high = control.interval()
    return max(abs(math.expm1(low)), abs(math.expm1(high)))


def _minutes_per_pair(evidence: Evidence) -> float:
    """Return the minutes that one more pair of the run takes.

    The blocks of all arms and of the control count, gaps between them do not.
    """
    observed = present(each.calls for each in evidence.observations)
    played = [each for each in observed if len(each)]
    if not played:
        return 0.0
    played += [each.second for each in evidence.aa if len(each.second)]
    start = np.concatenate([each.start_s for each in played])
    end = np.concatenate([each.end_s for each in played])
    block = np.concatenate([each.block for each in played])
    index = block - block.min()  # positions in time: nearly dense, so nothing has to be sorted
    blocks = index.max() + 1
    first = np.full(blocks, np.inf)
    last = np.full(blocks, -np.inf)
    np.fmin.at(first, index, start)  # a turn that was never sent has no start
    np.fmax.at(last, index, end)
    span = last - first
    pairs = np.unique(np.concatenate([each.pair for each in played])).size
    total_s = float(span[np.isfinite(span)].sum())
    return total_s / 60 / pairs


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
    position = policy.position_spread
    spread = controlled_change(table, scale, known, position=position)
    if spread is None:
        return None
    drawn = paired.pairs_of(table)
    method = OF_TASKS if metric == "task_ms" else METHOD
    level = 1 - 2 * planning.look_level(evidence.looks, policy.alpha)

    def relative(found: Spread) -> Estimate:
        return found.relative(unit="relative", method=method, level=level)

    doubted = None
    if drawn.starts < starts.OWN_STARTS and metric in ("turn_ms", "task_ms"):
        doubted = controlled_change(table, 2 * scale, known, position=position)
    quartiles = np.quantile(table.value, (0.25, 0.75))
    first_quartile, third_quartile = np.expm1(quartiles).tolist()
    control = surest(known)
    pairs = len(table)
    calls = int(table.calls.sum())
    is_own = workload is not None
    change = Change(
        metric=metric,
        arm=arm,
        workload=workload,
        relative=relative(spread),
        pairs=pairs,
        calls=calls,
        floor=None if control is None else floor_of(control),
        by_pair=tuple(np.expm1(table.value).tolist()) if is_own else (),
        pair_ids=tuple(table.pair.tolist()) if is_own else (),
    )
    return SpeedComparison(
        change=change,
        spread=spread,
        calls_per_pair=calls / max(pairs, 1),
        minutes_per_pair=minutes,
        mildest=(first_quartile, third_quartile),
        starts=drawn.starts,
        in_turn=starts.in_turn(drawn),
        scatter=starts.scatter(drawn, scale=scale),
        doubted=None if doubted is None else relative(doubted),
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
        if table is None or len(table) < paired.MIN_PAIRS:
            return None
        return table


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
    tables: dict[str | None, PairTable | None] = {}
    weighed = []
    for each in matched:
        table = each.table(metric)
        tables[each.workload] = table
        weighed.append((table, shares[each.workload]))
    tables[None] = paired.mixture(weighed)
    return {scope: table for scope, table in tables.items() if table is not None}


def speeds(
    evidence: Evidence, shares: tuple[tuple[str, float], ...], policy: Policy
) -> tuple[SpeedComparison, ...]:
    """Return every comparison that the evidence allows."""
    known = controls(evidence, shares, METRICS, position=policy.position_spread)
    minutes = _minutes_per_pair(evidence)
    out: list[SpeedComparison | None] = []
    for arm in evidence.challengers:
        matched = tuple(_matched(evidence, arm.name))
        for metric in COMPARED:
            # Controls of turns are those of the tasks that they add up to.
            of_turn: Metric = "turn_ms" if metric == "task_ms" else metric
            for scope, table in _tables(matched, metric, dict(shares)).items():
                found = _speed(
                    metric,
                    arm.name,
                    scope,
                    table,
                    evidence=evidence,
                    policy=policy,
                    minutes=minutes,
                    known=controls_of(known, of_turn, scope),
                )
                out.append(found)
    return tuple(present(out))


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
    classes = []
    for name, share in shares:
        sides = evidence.sides(name, second, against=first)
        if sides is not None:
            classes.append((paired.pair_table(*sides, "turn_ms"), share))
    mixed = paired.mixture(classes)
    if mixed is None:
        return None
    return controlled_change(mixed, start_scale(evidence, policy))
