"""Where calls are answered 429, the pace that was measured is a limiter's, not the server's."""

from collections.abc import Iterator

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "limiter"
MOST = 0.01
"""Share of calls: below it quantiles up to p99 are the server's own."""


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm that was limited at all."""
    del policy  # one call in a hundred moves p99, whatever the policy
    for health in evidence.health:
        share = health.limited_share
        if share:
            message = f"{share:.1%} of the attempts were answered 429"
            found = Gate(
                name=NAME,
                arm=health.arm,
                message=message,
                observed=share,
                limit=MOST,
                unit="share",
                spoils=TIMES,
            )
            yield found.judged(
                good=share <= MOST,
                but=": the rate limiter dominated this run; raise its limit, or lower the load",
            )
