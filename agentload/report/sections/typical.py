"""Give the latencies of the arms behind a paired change, over the turns that the change is of.

A change is the mean log ratio of the turns that ended on both sides, so what stands next to it is
the geometric mean of these turns: the two combine, as medians do not.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from advisor.assess.reach import shares
from advisor.evidence import Calls
from advisor.statistics.paired import MIN_PAIRS, same_turns
from agentload.report.sections.view import View

Metric: TypeAlias = Literal["turn_ms", "ttft_ms", "tpot_ms"]
METRICS: Final[tuple[tuple[Metric, str], ...]] = (
    ("turn_ms", "turn latency"),
    ("ttft_ms", "time to first token"),
    ("tpot_ms", "time per output token"),
)
Logs: TypeAlias = Mapping[Metric, tuple[float, float]]
"""Mean log of a latency on the reference and on an arm, over the same turns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Typical:
    """Hold what the same turns take on every arm, as geometric means in ms."""

    reference: float
    arms: Mapping[str, float]


def typical(view: View, workload: str | None) -> Mapping[Metric, Typical]:
    """Return what the turns of a class, or of the mix, take on every arm that was compared."""
    arms = sorted(view.others, key=lambda arm: arm != view.focus)
    logs = {arm: _logs(view, arm, workload) for arm in arms}
    found = ((metric, _typical(view, metric, workload, logs)) for metric, _ in METRICS)
    return {metric: each for metric, each in found if each is not None}


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
    reference = float(np.exp(next(iter(known.values()))[0]))
    arms = {}
    for arm, (before, after) in known.items():
        change = view.change(metric, arm, workload)
        if change is not None:
            seen, balanced = float(np.exp(after - before)), 1 + change.relative.value
            arms[arm] = reference * (seen if change.relative.is_bound else balanced)
    return Typical(reference=reference, arms=arms) if arms else None


def _logs(view: View, arm: str, workload: str | None) -> Logs:
    """Return the mean logs of a class, or of the mix, whose classes weigh as in its changes."""
    if workload is not None:
        return _class_logs(view, arm, workload)
    weights = dict(shares(view.evidence))
    of_classes = [(weights[name], _class_logs(view, arm, name)) for name in view.workloads]
    mixed: dict[Metric, tuple[float, float]] = {}
    for metric, _ in METRICS:
        played = [(share, logs[metric]) for share, logs in of_classes if share and metric in logs]
        if played:
            portions, means = zip(*played, strict=True)
            before, after = np.average(np.array(means), axis=0, weights=np.array(portions))
            mixed[metric] = (float(before), float(after))
    return mixed


def _class_logs(view: View, arm: str, workload: str) -> Logs:
    ours = view.evidence.calls(workload, view.reference)
    theirs = view.evidence.calls(workload, arm)
    if ours is None or theirs is None:
        return {}
    left, right = same_turns(ours, theirs)
    logs: dict[Metric, tuple[float, float]] = {}
    for metric, _ in METRICS:
        both = np.stack([getattr(ours, metric)[left], getattr(theirs, metric)[right]])
        known = np.isfinite(both).all(axis=0) & (both > 0).all(axis=0)
        pairs, index = np.unique(ours.pair[left][known], return_inverse=True)
        if pairs.size >= MIN_PAIRS:
            before, after = (
                float((np.bincount(index, side) / np.bincount(index)).mean())
                for side in np.log(both[:, known])
            )
            logs[metric] = (before, after)
    return logs


def alone(calls: Calls, metric: Metric) -> float | None:
    """Return the geometric mean of the turns that ended on one arm; None where none did."""
    values = getattr(calls, metric)[calls.ok]
    known = values[np.isfinite(values) & (values > 0)]
    return float(np.exp(np.log(known).mean())) if known.size else None
