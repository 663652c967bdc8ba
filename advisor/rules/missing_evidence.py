"""A verdict needs pairs and answers: what is missing, in calls and minutes."""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.evidence import Arm
from advisor.legs import questions
from advisor.legs.speed import claim, more_pairs
from advisor.statistics.paired import MIN_PAIRS
from advisor.steps import MorePairs
from advisor.verdict import Finding, Need

NEEDS = frozenset({"evidence.workloads"})

FIRST_PAIRS = 12  # a first run: enough to know its own scatter within a third


def _speed(case: Case, arm: str, workload: str) -> Finding | None:
    speed = case.comparison(arm, workload)
    if speed is None:
        need = Need(
            what=f"block pairs of {workload} on {arm}",
            pairs=FIRST_PAIRS,
            step=MorePairs(pairs=FIRST_PAIRS),
        )
        message = f"Fewer than {MIN_PAIRS} block pairs of {workload} were played on {arm}."
        return _finding(workload, message, need)
    relative = speed.change.relative
    margin = case.policy.min_change
    if claim(relative, margin=margin) != "unclear":
        return None
    need = more_pairs(case, speed)
    count = need.what
    if need.pairs is not None:
        count = words.quantity(need.pairs, "more pair")
    calls = ""
    if need.calls is not None:
        calls = f", {words.quantity(need.calls, 'call')}"
    message = (
        f"Turn latency of {workload} on {arm}, {words.change(relative)}, is undecided "
        f"at a margin of {margin:.0%}: "
        f"{count}{calls}{words.cost(need.minutes, need.usd)}."
    )
    return _finding(workload, message, need)


def _finding(workload: str, message: str, need: Need) -> Finding:
    return Finding(
        kind="opposes",
        workload=workload,
        message=message,
        next_step=need.step,
        leg="pays",
        need=need,
    )


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield one finding a workload whose speed is
    undecided, and one a quantised arm without answers.
    """
    found = (_speed(case, arm.name, workload.name) for workload in case.evidence.workloads)
    yield from (each for each in found if each is not None)
    if is_quantised(arm) and case.accuracy_of(arm.name, None) is None:
        need = questions.first(case, arm.name, next(iter(case.weighty()), None))
        told = (
            f"Accuracy is untested on {arm.name}: about {need.pairs or 0:,} paired "
            "questions at the lengths of each class"
            f"{words.cost(need.minutes, need.usd)}, settle a margin of "
            f"{100 * case.policy.accuracy_margin:.0f} pp."
        )
        yield Finding(kind="opposes", message=told, next_step=need.step, leg="safe", need=need)
