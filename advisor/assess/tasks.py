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

from advisor.assess.figures import (
    LEAST_BLOCKS,
    LEVEL,
    is_under_load,
    rate,
    rates_by_block,
    share_estimate,
)
from advisor.estimate import Estimate, present
from advisor.evidence import Bools, Calls, Evidence, Floats, Ints, OwnCalls
from advisor.statistics import paired
from advisor.statistics.groups import group_ends, group_numbers
from advisor.statistics.paired import PairTable, session_numbers
from advisor.statistics.quantiles import quantile
from advisor.statistics.spread import student_reach
from advisor.verdict import TaskFigures

WHOLE = 0.95  # share of the sessions seen that were played from end to end, and are then measured
MISSING = 0.05  # share of a task's turns that may lie at places that nothing was seen of
LEAST_TURNS = 20  # at one place, or it shares the mean of its neighbours
HOUR_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlayedTasks:
    """Hold the tasks of one class on one arm: a value each, and each turn's task."""

    task_of: Ints  # of each turn; -1: its session is no task
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
        if not self.is_whole.size:
            return False
        return bool(self.is_whole.mean() >= WHOLE)


def played_tasks(calls: Calls) -> PlayedTasks | None:
    """Return the tasks of one class on one arm; None where it is not known what ends a task.

    A session that another one spawned has no `turns_left`, and is no task.
    """
    left = calls.turns_left
    if left is None or not np.isfinite(left).any():
        return None
    session_of = session_numbers(calls)
    turns = np.bincount(session_of)
    is_task = np.bincount(session_of, weights=np.isfinite(left)) > 0
    # By what a turn has left, its session ends with this one.
    end_turn = np.nan_to_num(calls.turn + left, nan=-1.0)
    _, last_turn = group_ends(session_of, end_turn, end_turn)
    is_whole = is_task & (turns == last_turn + 1)
    has_failed = np.bincount(session_of, weights=~calls.ok) > 0
    took_ms = np.bincount(session_of, weights=calls.turn_ms)
    first_row = np.unique(session_of, return_index=True)[1]
    first_of_task = first_row[is_task]
    # Each task gets a number, and other sessions get none.
    number_of = np.full_like(turns, -1)
    number_of[is_task] = np.arange(first_of_task.size)
    return PlayedTasks(
        task_of=number_of[session_of],
        is_whole=is_whole[is_task],
        is_done=(is_whole & ~has_failed)[is_task],
        took_ms=took_ms[is_task].astype(np.float64),
        turns=turns[is_task],
        block=calls.block[first_of_task],
        session=calls.session[first_of_task],
        right=_are_right(calls, session_of)[is_task],
    )


def _are_right(calls: Calls, session_of: Ints) -> Floats:
    """Return 1 for each session whose checked answers all passed, 0 for others, NaN unchecked."""
    right = calls.right
    if right is None:
        right = np.full(len(calls), np.nan)
    checked = np.bincount(session_of, weights=np.isfinite(right))
    passed = np.bincount(session_of, weights=np.nan_to_num(right))
    return np.where(checked > 0, passed == checked, np.nan)


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
        block = group_numbers(self.block)
        cells = (block, self.place)
        total = np.zeros((block.max() + 1, self.weights.size))
        seen = np.zeros_like(total)
        np.add.at(total, cells, self.values)
        np.add.at(seen, cells, 1.0)
        whole = total.sum(axis=0)
        count = seen.sum(axis=0)
        means = whole / count
        # A place that one block alone has seen keeps its mean where that block is left out.
        others = count - seen
        means_of_others = (whole - total) / np.maximum(others, 1.0)
        means_without = np.where(others > 0, means_of_others, means)
        return _jackknifed(float(self.weights @ means), means_without @ self.weights)


def _jackknifed(value: float, without: Floats) -> Estimate:
    """Return a time with Student's interval of its logarithm, from its values *without* a block."""
    n = without.size
    found = Estimate(value=value, low=None, high=None, n=n, unit="ms", method="blocks")
    if n < LEAST_BLOCKS:
        return replace(found, method="blocks, too few for an interval")
    if (without <= 0).any():  # clocks that say so
        return replace(found, method="blocks, no time at all")
    logs = np.log(without)
    squares = float(((logs - logs.mean()) ** 2).sum())
    error = math.sqrt((n - 1) / n * squares)
    factor = math.exp(student_reach(LEVEL, n - 1) * error)
    return replace(found, low=value / factor, high=value * factor, level=LEVEL)


def _whole_terms(played: PlayedTasks) -> _Terms | None:
    """Return the terms over whole tasks, which are all at one place; None where none was done."""
    is_timed = played.is_done & np.isfinite(played.took_ms)
    if not is_timed.any():
        return None
    values = played.took_ms[is_timed]
    return _Terms(
        values=values,
        place=np.zeros(values.size, dtype=np.int64),
        weights=np.ones(1),
        block=played.block[is_timed],
    )


def _cut_terms(calls: Calls, own: OwnCalls) -> _Terms | None:
    """Return the terms over places; None where too few of a task's turns were seen."""
    left = calls.turns_left
    assert left is not None, "tasks were seen"
    is_timed = calls.ok & np.isfinite(left) & np.isfinite(calls.turn_ms)
    places = _places(left[is_timed].astype(np.int64), own)
    if places is None:
        return None
    return _Terms(
        values=calls.turn_ms[is_timed],
        place=places.of_turn,
        weights=places.weights,
        block=calls.block[is_timed],
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Places:
    """Hold the place of each turn, and the turns that a task has at each place, on average."""

    of_turn: Ints
    weights: Floats

    def turn_weights(self) -> Floats:
        """Return what each turn weighs, so that the turns of a place weigh as much as it does."""
        turns = np.bincount(self.of_turn)
        return self.weights[self.of_turn] / turns[self.of_turn]


def _places(left: Ints, own: OwnCalls) -> _Places | None:
    """Return the places of turns that have so many turns *left*; None where too few were seen."""
    longest = int(own.task_turns.max(initial=0))
    if left.size < LEAST_TURNS or not longest:
        return None
    has_turn = own.task_turns[:, None] > np.arange(longest)
    expected = has_turn.mean(axis=0)
    left = np.minimum(left, longest - 1)
    seen = np.bincount(left)
    unseen = expected[seen.size :]
    if unseen.sum() > MISSING * expected.sum():
        return None
    group_of = _groups(np.pad(seen, (0, unseen.size)))
    weights = np.bincount(group_of, weights=expected)
    return _Places(of_turn=group_of[left], weights=weights.astype(np.float64))


def _groups(counts: Ints) -> Ints:
    """Return the group of each place, where `LEAST_TURNS` turns make a group.

    The last places join the group before them if they are too few for one of their own.
    """
    groups = np.zeros(counts.size, dtype=np.int64)
    group = held = 0
    for place, count in enumerate(counts):
        if held >= LEAST_TURNS and counts[place:].sum() >= LEAST_TURNS:
            group += 1
            held = 0
        groups[place] = group
        held += int(count)
    return groups


def _together(parts: Sequence[_Terms], shares: Sequence[float]) -> _Terms:
    """Return the terms of a mix of classes, each with its share of the tasks."""
    places = []
    weights = []
    first = 0
    for each, share in zip(parts, shares, strict=True):
        places.append(each.place + first)
        weights.append(share * each.weights)
        first += each.weights.size
    return _Terms(
        values=np.concatenate([each.values for each in parts]),
        place=np.concatenate(places),
        weights=np.concatenate(weights),
        block=np.concatenate([each.block for each in parts]),
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
        played = self.played
        if not played.are_whole:
            tasks_per_call = self.own.tasks / self.own.calls
            return self.calls.ok.astype(np.float64) * tasks_per_call
        part_of = np.where(played.is_done, 1.0 / played.turns, 0.0)
        is_of_task = played.task_of >= 0
        worth = np.where(is_of_task, part_of[played.task_of], 0.0)
        return worth.astype(np.float64)


def _classes(evidence: Evidence, arm: str) -> Iterator[_Class]:
    """Yield the classes of which tasks were played on *arm*; a sweep has no tasks."""
    trace = {each.workload: each for each in evidence.trace if each.tasks}
    for name, calls in evidence.calls_of(arm).items():
        played = played_tasks(calls)
        own = trace.get(name)
        if played is not None and own is not None:
            terms = _whole_terms(played) if played.are_whole else _cut_terms(calls, own)
            yield _Class(workload=name, calls=calls, own=own, played=played, terms=terms)


def task_figures(evidence: Evidence) -> tuple[TaskFigures, ...]:
    """Return the tasks of every arm: of the whole server first, then of each class."""
    out: list[TaskFigures] = []
    for arm in evidence.arms:
        classes = list(_classes(evidence, arm.name))
        if not classes:
            continue
        knows_all = len(classes) == len(evidence.calls_of(arm.name))
        if knows_all:
            out.append(_figures(evidence, arm.name, None, classes))
        if len(classes) > 1:
            out += [_figures(evidence, arm.name, each.workload, [each]) for each in classes]
    return tuple(out)


def _figures(
    evidence: Evidence, arm: str, workload: str | None, classes: Sequence[_Class]
) -> TaskFigures:
    """Return the figures of the tasks of some classes, as far as they are known."""
    are_whole = all(each.played.are_whole for each in classes)
    tool_s = _tool_s(classes)
    found = TaskFigures(
        arm=arm,
        workload=workload,
        are_whole=are_whole,
        tasks=sum(int(each.played.is_whole.sum()) for each in classes),
        done=sum(int(each.played.is_done.sum()) for each in classes),
        tool_s=tool_s,
        ungraded=_ungraded(evidence, arm, classes, are_whole=are_whole),
    )
    terms = present(each.terms for each in classes)
    if len(terms) < len(classes):
        return replace(found, unknown=_unknown(classes))
    latency = _together(terms, _shares(classes)).mean()
    found = replace(
        found,
        latency_ms=latency,
        per_user_hour=_per_user_hour(latency, tool_s),
        p95_ms=_p95(classes[0].played) if are_whole and len(classes) == 1 else None,
        success=None if found.ungraded else _success(classes),
    )
    return _with_costs(evidence, found, classes)


def _p95(played: PlayedTasks) -> Estimate | None:
    """Return the 95th percentile of the latency of whole tasks; one not done is the slowest."""
    took_ms = np.where(played.is_done, played.took_ms, np.inf)
    return quantile(took_ms, played.session, 0.95, unit="ms")


def _shares(classes: Sequence[_Class]) -> list[float]:
    """Return the share of each class in the tasks of the mix."""
    tasks = [each.own.tasks for each in classes]
    whole = sum(tasks)
    return [count / whole for count in tasks]


def _tool_s(classes: Sequence[_Class]) -> float:
    """Return what tools take of a task of the mix, on average."""
    shares = _shares(classes)
    return sum(share * each.own.tool_s for share, each in zip(shares, classes, strict=True))


def _per_user_hour(latency: Estimate, tool_s: float) -> Estimate | None:
    """Return the tasks an hour of a user whose next task begins when the last one is done.

    There is no such number where a task takes no time, as on a clock of coarse ticks.
    """
    tools_ms = 1e3 * tool_s
    busy = latency.transformed(lambda time_ms: time_ms + tools_ms)
    if busy.value <= 0:
        return None
    return busy.inverse(1e3 * HOUR_S, unit="tasks/h")


def _with_costs(evidence: Evidence, found: TaskFigures, classes: Sequence[_Class]) -> TaskFigures:
    """Return the figures with what a GPU does in an hour, and what a task costs."""
    calls = [each.calls for each in classes]
    # The cost of a class alone cannot be told from that of the others on its server.
    if found.workload is not None or not is_under_load(calls):
        return found
    worth = [each.worth for each in classes]
    per_s = rate(rates_by_block(calls, worth), unit="tasks/s", method="blocks")
    if per_s is None or per_s.value <= 0:
        return found
    gpus = evidence.gpus(found.arm) * evidence.deployment.replicas
    hours_of_gpu = HOUR_S / gpus
    per_gpu_hour = per_s.transformed(lambda rate: hours_of_gpu * rate)
    found = replace(found, per_gpu_hour=replace(per_gpu_hour, unit="tasks/h/GPU"))
    usd_per_gpu_hour = evidence.deployment.gpu.usd_per_hour
    if usd_per_gpu_hour is None:
        return found
    usd = per_s.inverse(usd_per_gpu_hour * gpus / HOUR_S, unit="USD/task")
    if found.success is None or found.success.value <= 0:
        return replace(found, usd=usd)
    usd_successful = usd.over(found.success, unit="USD/successful task")
    return replace(found, usd=usd, usd_successful=usd_successful)


# --- success ---


def _ungraded(evidence: Evidence, arm: str, classes: Sequence[_Class], *, are_whole: bool) -> str:
    """Say why the success of tasks is not graded; empty where it is."""
    is_checked = any(np.isfinite(each.played.right).any() for each in classes)
    if not is_checked:
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
    tasks = int(graded.size)
    method = "tasks done, all checks passed"
    return share_estimate(float(graded.mean()), trials=tasks, n=tasks, method=method)


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
    same = _same_turns_of_tasks(reference, arm, own)
    if same is None:
        return None
    theirs_ms = reference.turn_ms[same.left]
    mine_ms = arm.turn_ms[same.right]
    is_timed = paired.are_timed(theirs_ms, mine_ms)
    left = same.left[is_timed]
    right = same.right[is_timed]
    weights = same.weights[is_timed]
    table = paired.pair_table(reference, arm, "turn_ms", rows=(left, right))
    if table is None:
        return None
    return paired.table_of_totals(
        table, reference.pair[left], weights * theirs_ms[is_timed], weights * mine_ms[is_timed]
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _SameTurns:
    """Hold the rows of the same turns on the reference and the arm, and what each weighs."""

    left: Ints
    right: Ints
    weights: Floats


def _same_turns_of_tasks(reference: Calls, arm: Calls, own: OwnCalls | None) -> _SameTurns | None:
    """Return the turns of tasks that both sides did, or of cut tasks; None where unknown."""
    theirs = played_tasks(reference)
    mine = played_tasks(arm)
    if theirs is None or mine is None:
        return None
    left, right = paired.same_turns(reference, arm)
    if theirs.are_whole and mine.are_whole:
        task = theirs.task_of[left]
        both_done = theirs.is_done[task] & mine.is_done[mine.task_of[right]]
        counts = (task >= 0) & both_done
        return _SameTurns(left=left[counts], right=right[counts], weights=np.ones(counts.sum()))
    if own is None or reference.turns_left is None:
        return None
    turns_left = reference.turns_left[left]
    counts = np.isfinite(turns_left)
    places = _places(turns_left[counts].astype(np.int64), own)
    if places is None:
        return None
    return _SameTurns(left=left[counts], right=right[counts], weights=places.turn_weights())
