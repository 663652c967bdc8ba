"""Where a replay sends recorded words, replies show how often
each arm does what was done then: a sign, never a verdict.

A reply that differs from the recorded one is not wrong, and greedy replies of
equal servers differ too. So what an arm follows less often than the reference
says where to ask; only graded answers decide.
"""

from advisor.case import Case
from advisor.evidence import Arm
from advisor.statistics import accuracy
from advisor.steps import Questions
from advisor.verdict import Finding

# most traces carry no recorded words, and lack nothing by that
NEEDS = frozenset({"evidence.challengers"})
LEVEL = 0.05  # two-sided


def check(case: Case, arm: Arm) -> Finding | None:
    """Return how often the replies of an arm and of the reference are the recorded ones."""
    found = next((each for each in case.evidence.followed if each.arm == arm.name), None)
    if found is None or found.reference_scores is None or found.arm_scores is None:
        return None
    base = case.evidence.reference
    made, theirs = found.both + found.arm_only, found.both + found.reference_only
    counts = (
        f"{arm.name} replied as recorded in {made:,} of {found.items:,} turns, {base} in {theirs:,}"
    )
    flips = f"{found.reference_only:,} lost and {found.arm_only:,} won"
    spread = accuracy.mean_difference(found.reference_scores, found.arm_scores, found.clusters)
    if spread is None:
        return Finding(
            kind="informs",
            message=f"{counts} ({flips}). Fewer than three sessions say nothing more.",
            leg="safe",
        )
    difference = spread.estimate(
        unit="share",
        method="replies graded by recorded ones, sessions as clusters",
        level=1 - LEVEL,
    )
    if not difference.is_below(0.0):
        same = "That does not show that it is as accurate: only graded answers do."
        return Finding(
            kind="informs",
            message=f"{counts} ({flips}): no certain loss. {same}",
            estimates=(difference,),
            leg="safe",
        )
    return Finding(
        kind="informs",
        context_tokens=found.context_tokens,
        message=f"{counts} ({flips}): a certain loss. A changed reply is not a wrong one: only "
        "graded questions at these lengths show what it costs.",
        estimates=(difference,),
        next_step=Questions(lengths=(round(found.context_tokens),)),
        leg="safe",
        screening=True,
    )
