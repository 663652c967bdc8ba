"""A GPU that is slowed by heat, a brake or clocks
that were set for it is measured in the arm's place.
"""

from collections.abc import Iterator

from advisor.evidence import Evidence, Telemetry
from advisor.policy import Policy
from advisor.verdict import TIMES, Gate

NAME = "throttled"
MOST = 0.05
"""Share of the time: below it medians and paired means hardly move."""
SLOWER = 0.10
"""Of the fastest arm's clock: nothing but a limit of power,
which is the arm's own doing, moves clocks under load that far.
"""


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm whose GPUs tell, or one for all that
    they do not; the power limit is how a GPU is meant to work.
    """
    del policy  # heat is no matter of taste
    if evidence.kind != "measured":
        return
    seen = [
        (arm, figures, share)
        for arm, figures in evidence.server
        if (share := figures.throttled_share) is not None
    ]
    for arm, figures, share in seen:
        capped = (
            f", at the power limit for {figures.power_capped_share:.0%}"
            if figures.power_capped_share
            else ""
        )
        told = f"throttled (thermal or power brake) for {share:.1%} of the time{capped}"
        told = f"GPUs were {told}" if share <= MOST else f"a GPU was {told}"
        found = Gate(
            name=NAME, arm=arm, message=told, observed=share, limit=MOST, unit="share", spoils=TIMES
        )
        yield found.judged(good=share <= MOST, but=": its cooling was measured, not the arm")
    yield from _clocks(
        [
            (arm, figures, clock)
            for arm, figures in evidence.server
            if (clock := figures.clock_mhz) is not None
        ]
    )
    if not seen:
        yield Gate(
            name=NAME, message="GPU throttling unknown: set `gpu_metrics` to a DCGM exporter"
        )


def _clocks(known: list[tuple[str, Telemetry, float]]) -> Iterator[Gate]:
    """Yield a failure for each arm whose GPU ran slower than
    another arm's while neither heat nor power slowed it.
    """
    fastest = max((clock for _, _, clock in known), default=0.0)
    for arm, figures, clock in known:
        slower = 1 - clock / fastest
        if (
            slower > SLOWER
            and max(figures.throttled_share or 0.0, figures.power_capped_share or 0.0) <= MOST
        ):
            told = (
                f"a GPU ran at {clock:,.0f} MHz, another arm's at {fastest:,.0f}, and nothing "
                "slowed it: its clocks were set, not the arm's"
            )
            yield Gate(
                name=NAME,
                status="fail",
                arm=arm,
                message=told,
                observed=clock,
                limit=(1 - SLOWER) * fastest,
                unit="MHz",
                spoils=TIMES,
            )
