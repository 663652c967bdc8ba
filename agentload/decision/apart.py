"""Compare an arm that takes shorter contexts than others by itself.

Sessions are played as far as all arms of a run take them, so one arm with a short window would cut
everybody's. It is compared with the reference alone, up to its own window, in a run of its own that
has its share of the budget; the others are decided on all that they take afterwards, within what is
left. The ledger of the decision's run keeps what came of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentload.endpoints.read import only
from agentload.errors import AgentloadError, PlanError
from agentload.study.change import extended
from agentload.study.kinds import Decide
from agentload.study.parts import Virtual

LEAST_S: Final = 60.0
"""Of a budget that others have used up: the first pair is played all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """State what came of an arm that was compared by itself."""

    arm: str
    reference: str
    window: int
    run: str
    """In which it was compared."""
    minutes: float
    is_decided: bool
    headline: str | None
    """None where nothing could be decided."""

    def said(self) -> str:
        """Say up to where the arm was compared, and what followed."""
        followed = self.headline or "nothing was decided"
        return (
            f"{self.arm} takes contexts up to {self.window:,} tokens, so it was compared "
            f"with {self.reference} alone, "
            f"up to there (run {self.run}): {followed}"
        )


class NarrowError(AgentloadError):
    """An arm takes shorter contexts than others: it is compared by itself."""

    def __init__(self, arm: str, window: int) -> None:
        super().__init__(f"{arm} takes contexts up to {window:,} tokens, others longer ones")
        self.arm = arm
        self.window = window


def narrowest(
    arms: Sequence[str], windows: Mapping[str, int], *, reference: str, longest: int
) -> tuple[str, int] | None:
    """Return the arm that takes least of a trace with this *longest*
    context, and its window; None where no other arm takes more.

    Raises PlanError where the reference takes less than
    another arm: nothing could be compared beyond its window.
    """
    taken = {arm: min(longest, windows.get(arm, longest)) for arm in arms}
    others = [arm for arm in arms if arm != reference]
    widest = max(others, key=taken.__getitem__)
    if len(arms) == 2:
        return None
    if taken[reference] < taken[widest]:
        raise PlanError(
            f"{reference}, the reference, takes contexts up to {taken[reference]:,} tokens, "
            f"and {widest} longer ones",
            hint=f"--max-context {taken[reference]} decides on what it takes, --reference "
            f"{widest} on all of the trace",
        )
    least = min(others, key=taken.__getitem__)
    return (least, taken[least]) if taken[least] < taken[widest] else None


def of_arms(study: Decide, arms: Sequence[str]) -> Decide:
    """Return the decision between some of its arms."""
    if isinstance(study.servers, Virtual):
        return extended(study, arms=tuple(arms))
    return extended(study, endpoints=only(study.servers.endpoints, arms))


def without(study: Decide, arms: Sequence[str], apart: Sequence[Apart]) -> Decide:
    """Return the decision between the arms that were not compared
    by themselves, within what those have left of the budget.
    """
    if not apart:
        return study
    gone = {each.arm for each in apart}
    left_s = study.budget_s - 60 * sum(each.minutes for each in apart)
    return extended(
        of_arms(study, [arm for arm in arms if arm not in gone]), budget_s=max(LEAST_S, left_s)
    )
