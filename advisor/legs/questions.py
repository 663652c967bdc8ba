"""How many questions settle whether an arm is safe, and the command that asks them at the lengths they are wanted at."""

from __future__ import annotations

import math

from advisor import commands
from advisor.assess.reach import SLACK, own
from advisor.case import Accuracy, Case
from advisor.statistics.planning import PLANNED_DISCORDANCE, items_needed
from advisor.verdict import Need


def first(case: Case, arm: str, workload: str | None) -> Need:
    """Return the questions that settle *workload* where none were asked yet: enough at the lengths that count, as many at the longest."""
    found = case.reach_of(arm, workload)
    shortest = None if found.usual is None else found.usual[0] / SLACK
    lengths = commands.ladder(shortest, found.longest, window=case.evidence.deployment.max_model_len)
    items = items_needed(PLANNED_DISCORDANCE, case.policy.accuracy_margin)
    return _need(case, arm, math.ceil(items * len(lengths) / len(own(lengths, found.usual))), lengths)


def more(case: Case, found: Accuracy) -> Need:
    """Return the questions that settle what *found* leaves open: as many items in all, each worth what those asked are worth."""
    # Where none of n differs, three in n may still (the rule of three): agreement of a few is no proof for many.
    n = max(1, found.estimate.n)
    discordance, worth = max(found.discordance, 3 / n), n / found.items
    items = math.ceil(items_needed(discordance, case.policy.accuracy_margin) / worth)
    # Enough for nine truths of ten, and still open: it lies at the margin itself.
    items = items if items > found.items else 2 * found.items
    return _need(case, found.arm, items, found.lengths, already=found.items)


def longer(case: Case, found: Accuracy) -> Need:
    """Return the questions that reach the calls beyond what was asked."""
    margin = case.policy.accuracy_margin
    lengths = commands.ladder(
        found.asked_to, case.reach_of(found.arm, found.workload).longest, window=case.evidence.deployment.max_model_len
    )
    return _need(case, found.arm, items_needed(max(found.discordance, margin), margin), lengths)


def _need(case: Case, arm: str, items: int, lengths: tuple[float, ...], *, already: int = 0) -> Need:
    at = commands.listed(lengths)
    return Need(what=f"paired answers on {arm} at {at}", pairs=items - already, command=case.evaluation(items, lengths=at))
