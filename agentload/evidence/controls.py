"""A/A controls: an arm played twice under two names, so that what differs between equals is known."""

from collections.abc import Sequence

import polars as pl

from advisor.evidence import AaControl
from agentload.evidence import observations
from agentload.evidence.servers import Server
from agentload.model.controls import copied, is_control


def controls(counted: pl.DataFrame, machines: Sequence[str], servers: Sequence[Server]) -> tuple[AaControl, ...]:
    """Return the calls of each control beside those of the arm that it copies, and whether each had a server of its own."""
    began = {each.arm: each.facts.get("process_start_s") for each in servers}
    groups = counted.partition_by("workload", "arm", as_dict=True)
    return tuple(
        AaControl(
            workload=workload,
            first=observations.calls(groups[workload, copied(arm)], machines),
            second=observations.calls(groups[workload, arm], machines),
            across_machines=_on(groups[workload, copied(arm)]) != _on(groups[workload, arm]),
            across_starts=began.get(arm) != began.get(copied(arm)),
        )
        for workload, arm in sorted(groups)
        if is_control(arm) and (workload, copied(arm)) in groups
    )


def _on(rows: pl.DataFrame) -> set[str | None]:
    """Return the machines that carried these calls."""
    return set(rows["machine"].unique())
