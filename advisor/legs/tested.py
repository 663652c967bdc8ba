"""One leg with the p-values behind it."""

from dataclasses import dataclass

from advisor.verdict import Leg, Need


@dataclass(frozen=True, slots=True, kw_only=True)
class Tested:
    """Hold a leg with the p-values of the claim that speaks for the arm and of the one that speaks against it."""

    leg: Leg
    p_for: float | None = None
    p_against: float | None = None
    if_unclear: tuple[Need, ...] = ()  # what settles it, should it be open
