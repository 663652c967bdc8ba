"""A server that is asked twice answers some questions in two ways; only what an arm changes beyond that is the arm's doing."""

from __future__ import annotations

from advisor import words
from advisor.case import Accuracy, Case
from advisor.steps import Questions
from advisor.verdict import Finding

NEEDS = frozenset({"same_answers"})


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm that was asked twice, and beside it what each challenger changed."""
    changed = {each.arm: each.discordance for each in case.accuracy if each.workload is None}
    beside = "".join(f"; {arm} changed {share:.1%}" for arm, share in changed.items())
    return tuple(_told(case, each, beside) for each in case.same_answers)


def _told(case: Case, control: Accuracy, beside: str) -> Finding:
    difference = control.estimate
    is_steady = not (difference.is_above(0.0) or difference.is_below(0.0))
    told = f"{control.arm} asked twice changed {control.discordance:.1%} of {difference.n:,} answers, {words.points(difference)}{beside}."
    return Finding(
        kind="informs" if is_steady else "opposes",
        # Every arm is held against the reference: what moves its answers is a doubt about each.
        arm=None if control.arm == case.evidence.reference and not is_steady else control.arm,
        message=told if is_steady else f"{told} Equal servers should lose as many as they win: something besides the arms moves answers.",
        estimates=(difference,),
        next_step=None if is_steady else _again(control),
        leg="safe",
    )


def _again(control: Accuracy) -> Questions:
    """Return as many questions more of the arm and of itself."""
    return Questions(lengths=tuple(round(each) for each in control.lengths), items=2 * control.items, aa=control.arm)
