"""Figures from another GPU do not carry over: Hopper is not Blackwell, and H100 is not H200.

Same kernel, faster memory: the FP8 decode ratio at batch 8 goes
from 0.53 on H100 to 0.68 on H200 (head_dim 128, 32 heads over 8).
"""

from advisor.case import Case
from advisor.rules import KERNELS
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.priors"})


def check(case: Case) -> Finding | None:
    """Return the priors that were taken on another GPU, in one finding."""
    here = case.evidence.deployment.gpu.name
    elsewhere = sorted(
        {prior.gpu for prior in case.evidence.priors if prior.gpu is not None and prior.gpu != here}
    )
    if not elsewhere:
        return None
    count = sum(prior.gpu in elsewhere for prior in case.evidence.priors)
    return Finding(
        kind="informs",
        message=(
            f"{count} published figures shown next to yours come from "
            f"{', '.join(elsewhere)}, not from {here}: they decide nothing here."
        ),
        source=KERNELS,
        prior=True,
    )
