"""Nobody else may use the servers during the run: foreign
requests take time that no arm can be charged for.
"""

from collections.abc import Iterator

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "foreign requests"


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm (or one for the run) where foreign requests were counted."""
    for health in evidence.health:
        if health.foreign_requests is None:
            continue
        ours = sum(
            len(each.calls)
            for each in evidence.observations
            if each.calls is not None and health.arm in (None, each.arm)
        )
        share = health.foreign_requests / max(1, ours + health.foreign_requests)
        yield Gate(
            name=NAME,
            arm=health.arm,
            message=f"{health.foreign_requests:,} foreign requests, {share:.1%} of all",
            observed=share,
            limit=policy.max_foreign_share,
            spoils=("ttft", "itl", "turn", "hits", "capacity"),
        ).judged(good=share <= policy.max_foreign_share, but=": take the server out of rotation")
