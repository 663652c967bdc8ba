"""Tell what has changed about the servers of two runs; what moves with every start is no change."""

from __future__ import annotations

from collections.abc import Mapping

from agentload.endpoints import facts
from agentload.endpoints.facts import Facts


def changed(before: Mapping[str, Facts], after: Mapping[str, Facts]) -> tuple[str, ...]:
    """Name what changed on the arms that both know, such as `fp8: version 0.10.0 → 0.11.0`."""
    return tuple(sorted(f"{arm}: {each}" for arm in before.keys() & after.keys() for each in facts.changed(before[arm], after[arm])))
