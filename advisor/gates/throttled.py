"""A GPU that is slowed by heat or a brake is measured in the arm's place."""

from __future__ import annotations

from collections.abc import Iterator

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "throttled"
MOST = 0.05
"""Share of the time: below it medians and paired means hardly move."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm whose GPUs tell, or one for all that they do not; the power limit is how a GPU is meant to work."""
    del policy  # heat is no matter of taste
    if evidence.kind != "measured":
        return
    seen = [(arm, figures, share) for arm, figures in evidence.server if (share := figures.throttled_share) is not None]
    for arm, figures, share in seen:
        capped = f", at the power limit for {figures.power_capped_share:.0%}" if figures.power_capped_share else ""
        told = f"throttled (thermal or power brake) for {share:.1%} of the time{capped}"
        told = f"GPUs were {told}" if share <= MOST else f"a GPU was {told}"
        found = Gate(name=NAME, arm=arm, message=told, observed=share, limit=MOST, unit="share", spoils=TIMES)
        yield found.judged(good=share <= MOST, but=": its cooling was measured, not the arm")
    if not seen:
        yield Gate(name=NAME, message="GPU throttling unknown: set `gpu_metrics` to a DCGM exporter")
