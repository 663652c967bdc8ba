"""What tasks take and cost on the sample deployment. Every figure is invented."""

from __future__ import annotations

from advisor.verdict import Change, HitCliff, TaskFigures
from tests.report.samples.measured import ARMS, TURN, estimate

CLIFF = HitCliff(
    arm="bf16", workload=None, agents=24, hit_rate=0.71, ideal_hit_rate=0.95, kept_at=18
)


def of_arm(arm: str) -> TaskFigures:
    """Return the tasks of an arm, which are faster by what the mix's turns are."""
    change = TURN.get((None, arm))
    times = 1 + (change[0] if change else 0.0)
    return TaskFigures(
        arm=arm,
        workload=None,
        are_whole=True,
        tasks=184,
        done=182,
        tool_s=21.0,
        latency_ms=estimate(74_300 * times, 3_100, unit="ms"),
        per_user_hour=estimate(3_600 / (74.3 * times + 21.0), 1.2, unit="tasks/h"),
        per_gpu_hour=estimate(312 / times, 17.0, unit="tasks/h/GPU"),
        usd=estimate(3.0 / 312 * times, 0.0005, unit="USD/task"),
        success=estimate(0.87, 0.05, unit="share"),
        usd_successful=estimate(3.0 / 312 * times / 0.87, 0.0008, unit="USD/successful task"),
        change=None
        if change is None
        else Change(
            metric="task_ms", arm=arm, workload=None, relative=estimate(*change), pairs=8, calls=288
        ),
    )


TASKS = tuple(map(of_arm, ARMS))
