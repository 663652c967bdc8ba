"""Draw how a run goes while it goes."""

from __future__ import annotations

from typing import Final

from agentload.report.charts.spec import Axis, Plot, Series
from agentload.report.labels import SLOTS
from agentload.ui.progress import Progress

IN_SECONDS: Final = 300.0


def chart(progress: Progress) -> Plot | None:
    """Return time to first token over the run so far; None before there is something to draw."""
    latest_s = max((second for arm in progress.arms for second, _ in arm.marks), default=0.0)
    unit, size = ("seconds", 1.0) if latest_s < IN_SECONDS else ("minutes", 60.0)
    series = tuple(
        Series(
            label=arm.arm,
            slot=place % SLOTS,
            mark="points",
            xs=tuple(second / size for second, _ in arm.marks),
            ys=tuple(ttft_ms for _, ttft_ms in arm.marks),
        )
        for place, arm in enumerate(progress.arms)
        if arm.marks
    )
    if sum(len(each.xs) for each in series) < 2:
        return None
    return Plot(
        name="so-far",
        title="Time to first token so far",
        caption="Each mark is a call, at the instant of its first token; of a long run, evenly chosen ones.",
        x=Axis(label=f"{unit} since the leg began", quantity="count"),
        y=Axis(label="ms", quantity="ms", low=0.0),
        series=series,
    )
