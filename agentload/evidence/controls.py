"""A/A controls: an arm played twice under two names, so that what differs between equals is known."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import polars as pl

from advisor.evidence import AaControl
from agentload.evidence import observations

SUFFIX: Final = "@aa"


def control_of(arm: str) -> str:
    """Name the second copy of an arm."""
    return arm + SUFFIX


def is_control(arm: str) -> bool:
    """Tell whether an arm is the second copy of another."""
    return arm.endswith(SUFFIX)


def controls(counted: pl.DataFrame, machines: Sequence[str]) -> tuple[AaControl, ...]:
    """Return the calls of each control beside those of the arm that it copies."""
    groups = counted.partition_by("workload", "arm", as_dict=True)
    return tuple(
        AaControl(
            workload=workload,
            first=observations.calls(groups[workload, arm.removesuffix(SUFFIX)], machines),
            second=observations.calls(groups[workload, arm], machines),
            across_machines=_on(groups[workload, arm.removesuffix(SUFFIX)]) != _on(groups[workload, arm]),
        )
        for workload, arm in sorted(groups)
        if is_control(arm) and (workload, arm.removesuffix(SUFFIX)) in groups
    )


def _on(rows: pl.DataFrame) -> set[str | None]:
    """Return the machines that carried these calls."""
    return set(rows["machine"].unique())
