"""State what a decision is doing, for whoever draws it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from advisor.judge import MEASURES
from advisor.verdict import ArmVerdict
from agentload.decision.forecast import LookPrice
from agentload.decision.known import Known
from agentload.decision.ledger import LedgerEntry
from agentload.decision.look import Look
from agentload.verdict.looks import SpeedInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedLook:
    """Name the question that is being asked, its price, and how long ago it began."""

    look: Look
    price: LookPrice
    minutes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionState:
    """State what was asked, what is being asked, what is spent, and how the arms compare."""

    asked: tuple[LedgerEntry, ...]
    asking: AskedLook | None
    spent_minutes: float
    budget_minutes: float
    intervals: tuple[SpeedInterval, ...]
    searches_capacity: bool
    """Whether capacity is part of the answer."""


def speed_intervals(known: Known) -> Iterator[SpeedInterval]:
    """Yield how turns of each challenger compare with the reference's, where that is known."""
    undecided = {each.arm for each in known.open}
    for verdict in known.challengers:
        found = speed_interval(verdict, pairs=known.pairs, is_open=verdict.arm in undecided)
        if found is not None:
            yield found


def speed_interval(verdict: ArmVerdict, *, pairs: int, is_open: bool) -> SpeedInterval | None:
    """Return the change of turn latency behind a verdict; None where GPUs or agents decide it."""
    found, margin = verdict.pays.estimate, verdict.pays.margin
    if found is None or margin is None or found.method in MEASURES:
        return None
    return SpeedInterval(
        arm=verdict.arm,
        pairs=pairs,
        value=found.value,
        low=-math.inf if found.low is None else found.low,
        high=math.inf if found.high is None else found.high,
        margin=margin,
        is_open=is_open,
    )
