"""What a decision asks next: the cheapest question that can still change it, and nothing once it is made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from advisor.steps import Questions
from advisor.verdict import ArmVerdict, Decision

Criterion: TypeAlias = Literal["speed", "step times", "capacity", "accuracy"]
"""Step times are none of their own: what they are fitted to says where capacity is worth measuring."""

PAIRS: Final = (4, 5, 6, 8, 10, 12, 16, 20, 26, 34, 46, 64)
"""Block pairs in all, look by look."""
ITEMS: Final = (30, 120, 160, 220, 300, 400, 520, 680, 880, 1160, 1550)
"""Paired questions in all, look by look; the first tell whether the reference can answer at all."""
REPEATS: Final = 3
"""Plays of the grid of step times, at most."""
LENGTHS: Final = (8192, 32768)
"""Where nothing tells how long contexts get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a run holds, and what follows from it."""

    decision: Decision
    pairs: int = 0
    items: int = 0
    lengths: tuple[int, ...] = ()
    """At which questions were asked."""
    is_searched: bool = False
    step_times: int = 0
    """Plays of the grid that are wanted before capacity is measured."""

    @property
    def challengers(self) -> tuple[ArmVerdict, ...]:
        """Return the verdicts of the arms that could take the place of the one in use."""
        return tuple(each for each in self.decision.server if each.arm != self.decision.reference)

    @property
    def open(self) -> tuple[ArmVerdict, ...]:
        """Return the verdicts that are no decision yet."""
        return tuple(each for each in self.challengers if each.verdict == "test further")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One question: so many pairs in all, so many items in all at these lengths, so many plays of a grid, or one search."""

    criterion: Criterion
    amount: int
    lengths: tuple[int, ...] = ()


def following(known: Known | None, *, capacity: bool) -> Stage | None:
    """Return what is asked next; None where the decision is made, or no question is left that could make it.

    Speed comes first, and is looked at often: a clear loss ends it all. *capacity* is searched where the user named a service level or a
    peak, once. Accuracy is the dearest, so it is asked only of what pays.
    """
    if known is None:
        return Stage(criterion="speed", amount=PAIRS[0])
    if not known.open:
        return None
    return next(_stages(known, is_searching=capacity and not known.is_searched), None)


def _stages(known: Known, *, is_searching: bool) -> Iterator[Stage]:
    """Yield what could settle an open verdict, the first thing first."""
    plays = known.step_times
    capacity = Stage(criterion="step times", amount=plays) if plays else Stage(criterion="capacity", amount=1)
    paying = [each for each in known.open if _pays(each)]
    if any(each.safe.state in ("unclear", "untested") for each in paying) and (items := _next(ITEMS, known.items)) is not None:
        if is_searching:  # it is part of the answer, and an arm that loses there need not be asked
            yield capacity
        yield Stage(criterion="accuracy", amount=items, lengths=known.lengths or lengths(known.decision))
    if any(each.pays.state in ("unclear", "untested") for each in known.open):
        # A look at few pairs says little: the load that they carry is asked for once, as soon as speed alone has not settled it.
        if is_searching and known.pairs >= PAIRS[2]:
            yield capacity
        if (pairs := _next(PAIRS, known.pairs)) is not None:
            yield Stage(criterion="speed", amount=pairs)
    if is_searching:
        yield capacity


def _pays(verdict: ArmVerdict) -> bool:
    return verdict.pays.state == "yes" or (verdict.capacity is not None and verdict.capacity.state == "yes")


def _next(looks: tuple[int, ...], so_far: int) -> int | None:
    return next((look for look in looks if look > so_far), None)


def lengths(decision: Decision) -> tuple[int, ...]:
    """Return the lengths at which questions are worth asking: those that the user's contexts have."""
    asked = [need.step for verdict in decision.server for need in (*verdict.needs, *verdict.safe.needs)]
    return next((step.lengths for step in asked if isinstance(step, Questions) and step.lengths), LENGTHS)
