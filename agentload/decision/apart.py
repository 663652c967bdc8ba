"""Compare an arm that takes shorter contexts than the others by itself.

Sessions are played as far as all arms of a run take them, so one arm with a short window would cut
everybody's. That arm is compared with the reference alone, up to its own window, in a run of its
own that has its share of the budget; the others are decided on all that they take afterwards,
within what is left. The ledger of the decision's run keeps the result.
"""

import math
from collections.abc import Mapping, Sequence

from agentload.decision.pair_load import least_s
from agentload.endpoints.read import only
from agentload.errors import AgentloadError, PlanError, UsageError
from agentload.model.record import Record
from agentload.study.change import extend
from agentload.study.kinds import Decide
from agentload.study.parts import Virtual


class Apart(Record):
    """State the result for an arm that was compared by itself."""

    arm: str
    reference: str
    window: int
    run: str
    """Run in which the arm was compared."""
    minutes: float
    is_decided: bool
    headline: str | None
    """Headline of the decision; None where nothing could be decided."""

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
    """Return the arm that takes least of a trace, and its window; None if others take no more.

    *longest* is the longest context of the trace. Two arms are never compared apart. Raises
    PlanError where the reference takes less than another arm: nothing could be compared beyond
    its window.
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
    if taken[least] < taken[widest]:
        return (least, taken[least])
    return None


class ApartComparison(Record):
    """Describe one arm to compare with the reference alone, in a run of its own."""

    narrow: NarrowError
    reference: str
    run: str
    minutes: float
    """Minutes of the budget that it has: as many as each of the other arms."""

    @property
    def announcement(self) -> str:
        """Announcement of what is compared, and within which time."""
        return (
            f"{self.narrow.message}: it is compared with {self.reference} alone first, within "
            f"{self.minutes:.0f} min"
        )

    def study(self, whole: Decide, arms: Sequence[str]) -> Decide:
        """Return the decision between the reference and the arm, in the order of the arms."""
        both = [arm for arm in arms if arm in (self.reference, self.narrow.arm)]
        return extend(_of_arms(whole, both), budget_s=60 * self.minutes, reference=self.reference)

    def ended(
        self, *, run: str, left_minutes: float, is_decided: bool, headline: str | None
    ) -> Apart:
        """Return the result."""
        return Apart(
            arm=self.narrow.arm,
            reference=self.reference,
            window=self.narrow.window,
            run=run,
            minutes=self.minutes - left_minutes,
            is_decided=is_decided,
            headline=headline,
        )

    def check_room(self, *, others: int, spent_minutes: float) -> None:
        """Raise UsageError where its minutes settle nothing.

        *others* arms share a budget of which *spent_minutes* are spent already.
        """
        if 60 * self.minutes >= least_s(2):
            return
        enough = math.ceil((least_s(2) * others / 60) + spent_minutes)
        raise UsageError(
            f"{self.narrow.message}: {self.minutes:.1f} min to compare it by itself settle nothing",
            hint=f"--budget {enough}m",
        )


def _of_arms(study: Decide, arms: Sequence[str]) -> Decide:
    """Return the decision between some of its arms."""
    if isinstance(study.servers, Virtual):
        return extend(study, arms=tuple(arms))
    return extend(study, endpoints=only(study.servers.endpoints, arms))


def without(study: Decide, arms: Sequence[str], apart: Sequence[Apart]) -> Decide:
    """Return the decision between the other arms, within what is left of the budget.

    Where nothing is left, pairs are laid out for the least that settles something; what is left
    decides which of them are asked.
    """
    if not apart:
        return study
    gone = {each.arm for each in apart}
    kept = [arm for arm in arms if arm not in gone]
    laid_s = max(least_s(len(kept)), left_s(study, apart))
    return extend(_of_arms(study, kept), budget_s=laid_s)


def left_s(study: Decide, apart: Sequence[Apart]) -> float:
    """Return the seconds that separate comparisons leave of the budget; below 0 if overspent."""
    return study.budget_s - 60 * sum(each.minutes for each in apart)
