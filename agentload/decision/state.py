"""State what a decision is doing, for whoever draws it."""

import math
from collections.abc import Iterator

from advisor.judge import NOT_LATENCY
from advisor.verdict import ArmVerdict
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.ledger import LedgerEntry
from agentload.decision.look import Look
from agentload.model.record import Record
from agentload.verdict.looks import SpeedInterval


class AskedLook(Record):
    """Name the question that is being asked, its price, and how long ago it began."""

    look: Look
    price: LookPrice
    minutes: float


class DecisionState(Record):
    """State what was asked, what is being asked, what is spent, and how the arms compare."""

    asked: tuple[LedgerEntry, ...]
    asking: AskedLook | None
    spent_minutes: float
    budget_minutes: float
    intervals: tuple[SpeedInterval, ...]
    searches_capacity: bool
    """Whether capacity is part of the answer."""


def speed_intervals(known: Known) -> Iterator[SpeedInterval]:
    """Yield how each challenger's latency compares with the reference's, where that is known."""
    undecided = {each.arm for each in known.undecided}
    for verdict in known.challengers:
        interval = speed_interval(verdict, pairs=known.pairs, is_open=verdict.arm in undecided)
        if interval is not None:
            yield interval


def speed_interval(verdict: ArmVerdict, *, pairs: int, is_open: bool) -> SpeedInterval | None:
    """Return the change of latency behind a verdict; None where GPUs or agents decide it."""
    change, margin = verdict.pays.estimate, verdict.pays.margin
    if change is None or margin is None or change.method in NOT_LATENCY:
        return None
    return SpeedInterval(
        arm=verdict.arm,
        pairs=pairs,
        value=change.value,
        low=-math.inf if change.low is None else change.low,
        high=math.inf if change.high is None else change.high,
        margin=margin,
        is_open=is_open,
    )
