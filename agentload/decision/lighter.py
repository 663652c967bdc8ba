"""Halve the load of a decision where this client cannot send it in time.

Pairs under another load are no pairs of the same plan. What was measured under the load that is
given up stays in the database as a run of its own, and the decision begins again in a run whose
name says the new load, within what is left of the budget. The ledger of each of the two names the
other (`decision.ledger`), so either can be resumed.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from agentload.errors import AgentloadError
from agentload.model.record import Record
from agentload.study.parts import Load

LEAST_RATE: Final = 0.01
"""Sessions a second below which a load is not halved: about one in two minutes."""


class LateError(AgentloadError):
    """Requests left late: what was measured is no evidence."""


class EasedLoad(Record):
    """State which load was given up, why, and which one is played in its place."""

    of: Literal["sessions", "rate_per_s"]
    before: float
    now: float
    why: str

    @property
    def suffix(self) -> str:
        """Ending of the name of a run under this load."""
        return f"-{self.now:g}-{'sessions' if self.of == 'sessions' else 'a-second'}"

    def said(self) -> str:
        """Say under which load was measured, and what that changes."""
        return (
            f"Measured with {_shown(self.of, self.now)}, since with {self.before:g} this "
            f"client could not keep up ({self.why}). Batches on the servers are smaller than "
            "planned, so figures hold for this load alone: what an arm gains or loses under a "
            "heavier one takes an idle machine."
        )


def half_of(load: Load, why: str) -> EasedLoad | None:
    """Return half of a load; None where there is no half."""
    if load.sessions is not None:
        halved = load.sessions // 2
        if not halved:
            return None
        return EasedLoad(of="sessions", before=load.sessions, now=halved, why=why)
    if load.rate_per_s is None or load.rate_per_s < LEAST_RATE:
        return None
    return EasedLoad(of="rate_per_s", before=load.rate_per_s, now=load.rate_per_s / 2, why=why)


def load_after(load: Load, steps: Sequence[EasedLoad]) -> Load:
    """Return what a load has become after these steps."""
    if not steps:
        return load
    match steps[-1]:
        case EasedLoad(of="sessions", now=now):
            return msgspec.structs.replace(load, sessions=round(now))
        case EasedLoad(now=now):
            return msgspec.structs.replace(load, rate_per_s=now)


def caveat(steps: Sequence[EasedLoad]) -> str | None:
    """Return the caveat of all steps together; None where there are none."""
    if not steps:
        return None
    whole = EasedLoad(of=steps[-1].of, before=steps[0].before, now=steps[-1].now, why=steps[0].why)
    return whole.said()


def next_try(step: EasedLoad) -> str:
    """Say what is tried next."""
    late = f"this client could not keep up with {_shown(step.of, step.before)}"
    return f"{late}: again with {step.now:g}; what was measured does not count"


def _shown(of: str, amount: float) -> str:
    if of != "sessions":
        return f"{amount:g} sessions a second"
    if amount == 1:
        return "1 session at once"
    return f"{amount:g} sessions at once"
