"""The KV pool has to be as large as its pages allow: if not,
something else took the memory and capacity is not the dtype's.
"""

from collections.abc import Iterator

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "pool size"
TOLERANCE = 0.10  # CUDA graphs and activation peaks differ between kernels


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm whose pool is known both ways."""
    del policy  # the page formula is not negotiable
    for arm in evidence.arms:
        if arm.pool_tokens is None or not arm.expected_pool_tokens:
            continue
        ratio = arm.pool_tokens / arm.expected_pool_tokens
        yield Gate(
            name=NAME,
            arm=arm.name,
            message=f"pool of {arm.pool_tokens:,.0f} tokens, {ratio:.0%} of what its pages allow",
            observed=ratio,
            limit=1 + TOLERANCE if ratio > 1 else 1 - TOLERANCE,
            spoils=("capacity",),
        ).judged(good=abs(ratio - 1) <= TOLERANCE)
