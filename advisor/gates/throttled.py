"""A GPU that heat, a brake or its clocks slow down is measured in the arm's place."""

from collections.abc import Iterator, Sequence

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
    """Yield one gate an arm whose GPUs report how they are slowed, or one where none does.

    The power limit is how a GPU is meant to work.
    """
    del policy  # heat is no matter of taste
    if evidence.kind != "measured":
        return
    known = [each for each in evidence.server if each[1].throttled_share is not None]
    for arm, figures in known:
        yield _throttled(arm, figures.throttled_share or 0.0, figures.power_capped_share)
    yield from _clocks(evidence.server)
    if not known:
        yield Gate(
            name=NAME, message="GPU throttling unknown: set `gpu_metrics` to a DCGM exporter"
        )


def _throttled(arm: str, share: float, capped_share: float | None) -> Gate:
    gpus = "GPUs were" if share <= MOST else "a GPU was"
    capped = f", at the power limit for {capped_share:.0%}" if capped_share else ""
    gate = Gate(
        name=NAME,
        arm=arm,
        message=f"{gpus} throttled (thermal or power brake) for {share:.1%} of the time{capped}",
        observed=share,
        limit=MOST,
        unit="share",
        spoils=TIMES,
    )
    return gate.judged(good=share <= MOST, but=": its cooling was measured, not the arm")


def _clocks(server: Sequence[tuple[str, Telemetry]]) -> Iterator[Gate]:
    """Yield a failure for each arm whose GPU ran slower than another's, and nothing slowed it."""
    fastest = max((figures.clock_mhz or 0.0 for _, figures in server), default=0.0)
    for arm, figures in server:
        clock = figures.clock_mhz
        slowed = max(figures.throttled_share or 0.0, figures.power_capped_share or 0.0)
        if clock is None or slowed > MOST or 1 - clock / fastest <= SLOWER:
            continue
        yield Gate(
            name=NAME,
            status="fail",
            arm=arm,
            message=f"a GPU ran at {clock:,.0f} MHz, another arm's at {fastest:,.0f}, and nothing "
            "slowed it: its clocks were set, not the arm's",
            observed=clock,
            limit=(1 - SLOWER) * fastest,
            unit="MHz",
            spoils=TIMES,
        )
