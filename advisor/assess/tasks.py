"""Say how long a task takes, how many a GPU does in an hour, and what one costs.

Theory of operation
-------------------
A task is a session that no other one spawned, up to the last answer of its last turn. Its latency
is the sum of its turns' latencies. The waits between them are left out, whoever waits: users and
tools take their time whatever serves the model, so that they would only hide what a server changes.
What the trace's tools take is added where a figure is about the user's hour.

Whole tasks. Where nearly all sessions were played from their first turn to their last, each task
has a latency of its own. A task is done if all of its turns ended cleanly.

Cut tasks. A window begins and ends in the middle of sessions, so hardly a task is whole in it, and
those that are whole are short. The mean is then estimated: turns are counted from the end of their
session, the trace says which share of tasks has a turn at each of these places, and the expected
times are added up over the places. A place that few turns were seen of shares the mean of its
neighbours. Where the places that were seen leave out more than `MISSING` of a task's turns, nothing
is said.

Rates and costs follow from those of turns: a turn of a task with n turns is worth 1/n of a task.
So tasks that a block cuts count in part, and a task costs what its turns cost.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from advisor.assess.figures import LEAST_BLOCKS, LEVEL, by_block, rate, under_load
from advisor.estimate import Estimate
from advisor.evidence import Bools, Calls, Evidence, Floats, Ints, OwnCalls
from advisor.statistics import paired
from advisor.statistics.paired import PairTable, session_numbers
from advisor.statistics.quantiles import quantile, wilson
from advisor.verdict import TaskFigures

WHOLE = 0.95  # share of the sessions seen that were played from end to end, and are then measured
MISSING = 0.05  # share of a task's turns that may lie at places that nothing was seen of
LEAST_TURNS = 20  # at one place, or it shares the mean of its neighbours
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedTasks:
    """Hold the tasks of one class on one arm: a value each, and each turn's task."""

    task_of: Ints  # of each turn
    is_whole: Bools  # played from the first turn to the last
    is_done: Bools  # whole, and every turn ended cleanly
    took_ms: Floats
    turns: Ints
    block: Ints
    session: Ints
    right: Floats  # 1: all checks passed, 0: not; NaN: nothing was checked

    @property
    def are_whole(self) -> bool:
        """Say whether so few tasks were cut that the others speak for all."""
        return bool(self.is_whole.size and self.is_whole.mean() >= WHOLE)


def played_tasks(calls: Calls) -> PlayedTasks | None:
    """Return the tasks of one class on one arm; None where it is not known what ends a task."""
    left = calls.turns_left
    if left is None or not np.isfinite(left).any():
        return None
    task_of = session_numbers(calls)
    count = int(task_of.max()) + 1
    is_own = np.bincount(task_of, weights=np.isfinite(left), minlength=count) > 0
    turns = np.bincount(task_of, minlength=count).astype(np.int64)
    until = np.full(count, -1.0)
    np.maximum.at(until, task_of, np.nan_to_num(calls.turn + left, nan=-1.0))
    is_whole = is_own & (turns == until + 1)
    failed = np.bincount(task_of, weights=~calls.ok, minlength=count) > 0
    checks = np.full(calls.turn.size, np.nan) if calls.right is None else calls.right
    is_checked = np.isfinite(checks)
    checked = np.bincount(task_of, weights=is_checked, minlength=count)
    passed = np.bincount(task_of, weights=np.where(is_checked, checks, 0.0), minlength=count)
    took_ms = np.bincount(task_of, weights=calls.turn_ms, minlength=count).astype(np.float64)
    first = np.unique(task_of, return_index=True)[1]
    kept = np.flatnonzero(is_own)
    names = np.full(count, -1, dtype=np.int64)
    names[kept] = np.arange(kept.size)
    return PlayedTasks(
        task_of=names[task_of],
        is_whole=is_whole[kept],
        is_done=(is_whole & ~failed)[kept],
        took_ms=took_ms[kept],
        turns=turns[kept],
        block=calls.block[first][kept],
        session=calls.session[first][kept],
        right=np.where(checked > 0, passed == checked, np.nan)[kept],
    )


# --- latency ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Terms:
    """Hold what a mean task latency is the sum of: means of values at places, each weighted."""

    values: Floats
    place: Ints
    weights: Floats  # of each place
    block: Ints

    def mean(self) -> Estimate:
        """Return the sum of the weighted means, with a jackknife interval over the blocks."""
        names, block = np.unique(self.block, return_inverse=True)
        shape = (names.size, self.weights.size)
        total, seen = np.zeros(shape), np.zeros(shape)
        np.add.at(total, (block, self.place), self.values)
        np.add.at(seen, (block, self.place), 1.0)
        whole, count = total.sum(axis=0), seen.sum(axis=0)
        value = float(self.weights @ (whole / count))
        others = count - seen  # a place that one block alone has seen keeps its mean
        without = np.where(others > 0, (whole - total) / np.maximum(others, 1.0), whole / count)
        means_ms = without @ self.weights
        n = names.size
        found = Estimate(value=value, low=None, high=None, n=n, unit="ms", method="blocks")
        if n < LEAST_BLOCKS:
            return replace(found, method="blocks, too few for an interval")
        if (means_ms <= 0).any():  # clocks that say so
            return replace(found, method="blocks, no time at all")
        logs = np.log(means_ms)
        error = math.sqrt((n - 1) / n * float(((logs - logs.mean()) ** 2).sum()))
        reach = math.exp(float(scipy.special.stdtrit(n - 1, 0.5 + LEVEL / 2)) * error)
        return replace(found, low=value / reach, high=value * reach, level=LEVEL)


def _whole_terms(played: PlayedTasks) -> _Terms | None:
    done = played.is_done & np.isfinite(played.took_ms)
    if not done.any():
        return None
    return _Terms(
        values=played.took_ms[done],
        place=np.zeros(int(done.sum()), dtype=np.int64),
        weights=np.ones(1),
        block=played.block[done],
    )


def _cut_terms(calls: Calls, own: OwnCalls) -> _Terms | None:
    """Return the terms over places; None where too few of a task's turns were seen."""
    left = calls.turns_left
    assert left is not None, "tasks were seen"
    seen = calls.ok & np.isfinite(left) & np.isfinite(calls.turn_ms)
    places = _places(left[seen].astype(np.int64), own)
    if places is None:
        return None
    of_turn, weights = places
    return _Terms(
        values=calls.turn_ms[seen], place=of_turn, weights=weights, block=calls.block[seen]
    )


def _places(left: Ints, own: OwnCalls) -> tuple[Ints, Floats] | None:
    """Return the place of each turn, and the turns that a task has at each place, on average."""
    longest = int(own.task_turns.max()) if own.task_turns.size else 0
    if left.size < LEAST_TURNS or not longest:
        return None
    expected = np.array([float((own.task_turns > place).mean()) for place in range(longest)])
    left = np.minimum(left, longest - 1)
    if expected[int(left.max()) + 1 :].sum() > MISSING * expected.sum():
        return None
    counts = np.bincount(left, minlength=longest)
    # A place ends where enough turns were seen; the last ones join the place before them.
    groups = np.zeros(longest, dtype=np.int64)
    group = held = 0
    for place, count in enumerate(counts):
        if held >= LEAST_TURNS and counts[place:].sum() >= LEAST_TURNS:
            group, held = group + 1, 0
        groups[place] = group
        held += int(count)
    return groups[left], np.bincount(groups, weights=expected).astype(np.float64)


def _together(parts: Sequence[tuple[_Terms, float]]) -> _Terms:
    """Return the terms of a mix of classes, each with its share of the tasks."""
    firsts = np.cumsum([0, *(terms.weights.size for terms, _ in parts)])
    return _Terms(
        values=np.concatenate([terms.values for terms, _ in parts]),
        place=np.concatenate(
            [terms.place + first for (terms, _), first in zip(parts, firsts, strict=False)]
        ),
        weights=np.concatenate([share * terms.weights for terms, share in parts]),
        block=np.concatenate([terms.block for terms, _ in parts]),
    )


# --- one class on one arm ---


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Class:
    """Hold the tasks of one class on one arm, with what the trace says of them."""

    workload: str
    calls: Calls
    own: OwnCalls
    played: PlayedTasks
    terms: _Terms | None

    @property
    def worth(self) -> Floats:
        """Return which part of a task each turn is that ended cleanly."""
        if self.played.are_whole:
            part = np.where(self.played.is_done, 1.0 / self.played.turns, 0.0)
            worth = np.where(self.played.task_of >= 0, part[self.played.task_of], 0.0)
            return worth.astype(np.float64)
        return self.calls.ok.astype(np.float64) * (self.own.tasks / self.own.calls)


def _classes(evidence: Evidence, arm: str) -> Iterator[_Class]:
    trace = {each.workload: each for each in evidence.trace}
    for name, calls in evidence.calls_of(arm).items():
        played, own = played_tasks(calls), trace.get(name)
        if played is None or own is None or not own.tasks:  # a sweep has no tasks
            continue
        terms = _whole_terms(played) if played.are_whole else _cut_terms(calls, own)
        yield _Class(workload=name, calls=calls, own=own, played=played, terms=terms)


def task_figures(evidence: Evidence) -> tuple[TaskFigures, ...]:
    """Return the tasks of every arm: of the whole server first, then of each class."""
    out: list[TaskFigures] = []
    for arm in evidence.arms:
        classes = list(_classes(evidence, arm.name))
        if not classes:
            continue
        if len(classes) == len(evidence.calls_of(arm.name)):
            out.append(_of(evidence, arm.name, None, classes))
        if len(classes) > 1:
            out += [_of(evidence, arm.name, each.workload, [each]) for each in classes]
    return tuple(out)


def _of(
    evidence: Evidence, arm: str, workload: str | None, classes: Sequence[_Class]
) -> TaskFigures:
    are_whole = all(each.played.are_whole for each in classes)
    found = TaskFigures(
        arm=arm,
        workload=workload,
        are_whole=are_whole,
        tasks=sum(int(each.played.is_whole.sum()) for each in classes),
        done=sum(int(each.played.is_done.sum()) for each in classes),
        tool_s=_shared(classes, [each.own.tool_s for each in classes]),
        ungraded=_ungraded(evidence, arm, classes, are_whole=are_whole),
    )
    terms = [each.terms for each in classes]
    known = [each for each in terms if each is not None]
    if len(known) < len(terms):
        return replace(found, unknown=_unknown(classes))
    shares = _shares(classes)
    latency = _together(list(zip(known, shares, strict=True))).mean()
    found = replace(found, latency_ms=latency, per_user_hour=_per_user(latency, found.tool_s))
    if are_whole and len(classes) == 1:
        took = np.where(classes[0].played.is_done, classes[0].played.took_ms, np.inf)
        p95 = quantile(took, classes[0].played.session, 0.95, unit="ms")
        found = replace(found, p95_ms=p95)
    success = None if found.ungraded else _success(classes)
    return _with_costs(evidence, replace(found, success=success), classes)


def _shares(classes: Sequence[_Class]) -> list[float]:
    """Return the share of each class in the tasks of the mix."""
    whole = sum(each.own.tasks for each in classes)
    return [each.own.tasks / whole for each in classes]


def _shared(classes: Sequence[_Class], values: Sequence[float]) -> float:
    return sum(share * value for share, value in zip(_shares(classes), values, strict=True))


def _per_user(latency: Estimate, tool_s: float) -> Estimate | None:
    """Return the tasks an hour of a user whose next task begins when the last one is done.

    There is no such number where a task takes no time, as on a clock of coarse ticks.
    """
    if latency.value + 1e3 * tool_s <= 0:
        return None
    ends = (None if end is None else end + 1e3 * tool_s for end in (latency.low, latency.high))
    low, high = ends
    busy = replace(latency, value=latency.value + 1e3 * tool_s, low=low, high=high)
    return busy.inverse(1e3 * HOUR_S, unit="tasks/h")


def _with_costs(evidence: Evidence, found: TaskFigures, classes: Sequence[_Class]) -> TaskFigures:
    """Return the figures with what a GPU does in an hour, and what a task costs."""
    calls = [each.calls for each in classes]
    # The cost of a class alone cannot be told from that of the others on its server.
    if found.workload is not None or not under_load(calls):
        return found
    per_s = rate(by_block(calls, [each.worth for each in classes]), unit="tasks/s", method="blocks")
    if per_s is None or per_s.value <= 0:
        return found
    gpus = evidence.gpus(found.arm) * evidence.deployment.replicas
    found = replace(found, per_gpu_hour=_times(per_s, HOUR_S / gpus, "tasks/h/GPU"))
    price = evidence.deployment.gpu.usd_per_hour
    if price is None:
        return found
    usd = per_s.inverse(price * gpus / HOUR_S, unit="USD/task")
    if found.success is None or found.success.value <= 0:
        return replace(found, usd=usd)
    return replace(found, usd=usd, usd_successful=_quotient(usd, found.success))


def _times(found: Estimate, factor: float, unit: str) -> Estimate:
    low, high = (None if end is None else factor * end for end in (found.low, found.high))
    return replace(found, value=factor * found.value, low=low, high=high, unit=unit)


def _quotient(usd: Estimate, share: Estimate) -> Estimate:
    """Return the cost over the share, with an interval from those of both on the log scale."""
    value = usd.value / share.value

    def apart(*ends: tuple[float | None, float]) -> float | None:
        logs = [math.log(high / low) for high, low in ends if high and low]
        return math.exp(math.hypot(*logs)) if len(logs) == len(ends) else None

    up = apart((usd.high, usd.value), (share.value, share.low or 0.0))
    down = apart((usd.value, usd.low or 0.0), (share.high, share.value))
    return replace(
        usd,
        value=value,
        low=None if down is None else value / down,
        high=None if up is None else value * up,
        unit="USD/successful task",
    )


# --- success ---


def _ungraded(evidence: Evidence, arm: str, classes: Sequence[_Class], *, are_whole: bool) -> str:
    """Say why the success of tasks is not graded; empty where it is."""
    if not any(np.isfinite(each.played.right).any() for each in classes):
        return "the trace checks no answer"
    if arm not in evidence.free_lengths:
        return "output lengths are forced, so answers do not end where the model ends them"
    return "" if are_whole else "windows cut tasks: whole sessions are graded"


def _success(classes: Sequence[_Class]) -> Estimate | None:
    """Return the share of the tasks done whose checks all passed, with Wilson's interval."""
    right = np.concatenate([each.played.right[each.played.is_done] for each in classes])
    graded = right[np.isfinite(right)]
    if not graded.size:
        return None
    value = float(graded.mean())
    low, high = wilson(int(graded.sum()), graded.size, level=LEVEL)
    return Estimate(
        value=value,
        low=min(value, low),
        high=max(value, high),
        n=int(graded.size),
        unit="share",
        method="tasks done, all checks passed",
        level=LEVEL,
    )


def _unknown(classes: Sequence[_Class]) -> str:
    """Say why no latency of a task is known, and what would bring it."""
    cut = next(each for each in classes if each.terms is None)
    if cut.played.are_whole:
        return f"no task of {cut.workload} was done: every one has a turn that failed"
    return (
        f"the turns of {cut.workload} that were played leave out the end of its longer tasks: play "
        "whole sessions (replay without --windows and --duration), or more and longer windows"
    )


# --- one arm against another ---


def task_table(reference: Calls, arm: Calls, own: OwnCalls | None) -> PairTable | None:
    """Return the pairs with the log ratio of the time of the same tasks on both arms.

    Of cut tasks, with that of the same turns, each weighted as its place counts in a task.
    """
    theirs, mine = played_tasks(reference), played_tasks(arm)
    if theirs is None or mine is None:
        return None
    left, right = paired.same_turns(reference, arm)
    if theirs.are_whole and mine.are_whole:
        both = (
            (theirs.task_of[left] >= 0)
            & theirs.is_done[theirs.task_of[left]]
            & mine.is_done[mine.task_of[right]]
        )
        left, right = left[both], right[both]
        weights = np.ones(left.size)
    else:
        if own is None or reference.turns_left is None:
            return None
        places = reference.turns_left[left]
        is_own = np.isfinite(places)
        left, right = left[is_own], right[is_own]
        found = _places(places[is_own].astype(np.int64), own)
        if found is None:
            return None
        weights = found[1][found[0]] / np.bincount(found[0])[found[0]]
    took = reference.turn_ms[left], arm.turn_ms[right]
    is_timed = (took[0] > 0) & (took[1] > 0) & np.isfinite(took[0] + took[1])
    left, right = left[is_timed], right[is_timed]
    table = paired.pair_table(reference, arm, "turn_ms", rows=(left, right))
    if table is None:
        return None
    pair = np.searchsorted(table.pair, reference.pair[left])
    theirs_ms, mine_ms = (
        np.bincount(pair, weights=weights[is_timed] * times[is_timed]) for times in took
    )
    return replace(table, value=np.log(mine_ms / theirs_ms))
