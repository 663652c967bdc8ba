"""Give the latencies of the arms behind a paired change, over the turns that the change is of.

A change is the mean log ratio of the turns that ended on both sides, so what stands next to it is
the geometric mean of these turns: the two combine, as medians do not.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import numpy as np

from advisor.assess.reach import shares
from advisor.evidence import Calls, Floats, Ints
from advisor.statistics.paired import MIN_PAIRS, same_turns
from agentload.model.record import Record
from agentload.report.sections.view import View

Metric: TypeAlias = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[tuple[tuple[Metric, str], ...]] = (
    ("turn_ms", "turn latency"),
    ("ttft_ms", "time to first token"),
    ("tpot_ms", "time per output token"),
)
Means: TypeAlias = tuple[float, float]
"""Mean log of a latency on the reference and on an arm, over the same turns."""
Logs: TypeAlias = Mapping[Metric, Means]


class Typical(Record):
    """Hold what the same turns take on every arm, as geometric means in ms."""

    reference: float
    arms: Mapping[str, float]


def typical(view: View, workload: str | None) -> Mapping[Metric, Typical]:
    """Return what the turns of a class, or of the mix, take on every arm that was compared."""
    logs = {arm: _logs(view, arm, workload) for arm in view.focus_first}
    found = {}
    for metric, _ in METRICS:
        times = _typical(view, metric, workload, logs)
        if times is not None:
            found[metric] = times
    return found


def _typical(
    view: View, metric: Metric, workload: str | None, logs: Mapping[str, Logs]
) -> Typical | None:
    """Return one latency: of the reference by the turns that it shares with the first arm.

    What these turns take on each arm follows from its change, in which the order of the blocks and
    the machines are balanced. Of a change that is only a bound it is what was seen.
    """
    known = {arm: means[metric] for arm, means in logs.items() if metric in means}
    if not known:
        return None
    before_of_first, _ = next(iter(known.values()))
    reference = float(np.exp(before_of_first))
    arms = {}
    for arm, (before, after) in known.items():
        change = view.change(metric, arm, workload)
        if change is None:
            continue
        times = 1 + change.relative.value
        if change.relative.is_bound:
            times = float(np.exp(after - before))
        arms[arm] = reference * times
    return Typical(reference=reference, arms=arms) if arms else None


def _logs(view: View, arm: str, workload: str | None) -> Logs:
    """Return the mean logs of a class, or of the mix, whose classes weigh as in its changes."""
    if workload is not None:
        return _class_logs(view, arm, workload)
    weights = dict(shares(view.evidence))
    of_classes = [(weights[name], _class_logs(view, arm, name)) for name in view.workloads]
    mixed: dict[Metric, Means] = {}
    for metric, _ in METRICS:
        portions, means = [], []
        for share, logs in of_classes:
            if share and metric in logs:
                portions.append(share)
                means.append(logs[metric])
        if means:
            before, after = np.average(np.array(means), axis=0, weights=np.array(portions))
            mixed[metric] = (float(before), float(after))
    return mixed


def _class_logs(view: View, arm: str, workload: str) -> Logs:
    ours = view.evidence.calls(workload, view.reference)
    theirs = view.evidence.calls(workload, arm)
    if ours is None or theirs is None:
        return {}
    logs: dict[Metric, Means] = {}
    for metric, _ in METRICS:
        times, pair = shared_times(ours, theirs, metric)
        pairs, index = np.unique(pair, return_inverse=True)
        if pairs.size >= MIN_PAIRS:
            counts = np.bincount(index)
            before, after = (np.bincount(index, side) / counts for side in np.log(times))
            logs[metric] = (float(before.mean()), float(after.mean()))
    return logs


def shared_times(ours: Calls, theirs: Calls, metric: Metric) -> tuple[Floats, Ints]:
    """Return the times of the turns that ended on both arms, and their block pairs.

    A row holds the times of an arm.
    """
    left, right = same_turns(ours, theirs)
    times = np.stack([getattr(ours, metric)[left], getattr(theirs, metric)[right]])
    is_known = np.isfinite(times).all(axis=0) & (times > 0).all(axis=0)
    return times[:, is_known], ours.pair[left][is_known]


def alone(calls: Calls, metric: Metric) -> float | None:
    """Return the geometric mean of the turns that ended on one arm; None where none did."""
    values = getattr(calls, metric)[calls.ok]
    known = values[np.isfinite(values) & (values > 0)]
    if not known.size:
        return None
    return float(np.exp(np.log(known).mean()))
