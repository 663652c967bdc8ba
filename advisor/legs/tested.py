"""One leg before its neighbours are known, and what Holm makes of it beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from advisor.statistics import planning
from advisor.verdict import Leg, Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Hold a leg with the p-values of the claim that speaks for the arm and of the one that speaks against it."""

    leg: Leg
    p_for: float | None = None
    p_against: float | None = None
    if_unclear: tuple[Need, ...] = ()  # what settles it, should its claim not survive


def _held(tested: Tested, p: float, adjusted: float, level: float) -> Tested:
    leg = replace(tested.leg, p=p, p_adjusted=adjusted)
    if adjusted > level:
        leg = replace(leg, state="unclear", needs=tested.if_unclear)
    return replace(tested, leg=leg)


def after_holm(legs: tuple[Tested, ...], *, level: float) -> tuple[Leg, ...]:
    """Return the legs with p-values adjusted over the claims for the arm, and over those against it; *level* is one-sided."""
    out = list(legs)
    for side, state in (("p_for", "yes"), ("p_against", "no")):
        claims = [(index, p) for index, each in enumerate(legs) if (p := getattr(each, side)) is not None]
        for (index, p), adjusted in zip(claims, planning.adjusted([p for _, p in claims]), strict=True):
            if out[index].leg.state == state:
                out[index] = _held(out[index], p, adjusted, level)
    return tuple(each.leg for each in out)
