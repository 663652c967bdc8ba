"""Keep the arm apart from the machine it ran on: two GPUs of one type differ by as much as a small gain."""

from __future__ import annotations

from advisor.case import Case
from advisor.dtypes import canonical
from advisor.steps import Swap

FEWEST = 6  # pairs, three a half: with fewer, the machine cannot be taken out of the difference


def confounded(case: Case, arm: str) -> bool:
    """Say whether *arm* and the reference ran on different machines and never changed places."""
    deployment = case.evidence.deployment
    mine, theirs = case.evidence.arm(arm).machine, case.evidence.arm(case.evidence.reference).machine
    return len(deployment.machines) > 1 and not deployment.swapped and (mine is None or theirs is None or mine != theirs)


def allowance(case: Case, arm: str) -> float:
    """Return the relative change that a difference between machines may explain; a control across machines puts it into the noise floor."""
    if not confounded(case, arm) or any(control.across_machines for control in case.evidence.aa):
        return 0.0
    return case.policy.machine_spread


def same_numbers(case: Case, arm: str) -> bool:
    """Say whether *arm* reads and writes the same KV values with the same kernel as the reference, so that answers cannot change."""
    mine, theirs = case.evidence.arm(arm), case.evidence.arm(case.evidence.reference)
    if mine.observed_dtype is None or theirs.observed_dtype is None or mine.kernel is None:
        return False
    return canonical(mine.observed_dtype) == canonical(theirs.observed_dtype) and mine.kernel == theirs.kernel


def swap(pairs: int) -> Swap:
    """Return a replay of at least so many pairs in which the arms change machines half way."""
    return Swap(pairs=max(FEWEST, pairs + pairs % 2))
