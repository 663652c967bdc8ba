"""A server that is asked twice answers some questions in two
ways; only what an arm changes beyond that is the arm's doing.
"""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.steps import Questions
from advisor.verdict import Finding

NEEDS = frozenset({"same_answers"})


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding an arm that was asked twice, with what each challenger changed."""
    changed = {each.arm: each.discordance for each in case.accuracy if each.workload is None}
    beside = "".join(f"; {arm} changed {share:.1%}" for arm, share in changed.items())
    for control in case.same_answers:
        difference = control.estimate
        steady = not (difference.is_above(0.0) or difference.is_below(0.0))
        told = (
            f"Asked the same questions twice, {control.arm} changed {control.discordance:.1%} of "
            f"{difference.n:,} answers ({words.points(difference)}){beside}."
        )
        again = Questions(
            lengths=tuple(round(each) for each in control.lengths),
            items=2 * control.answers.questions,
            aa=control.arm,
        )
        yield Finding(
            kind="informs" if steady else "opposes",
            # Every arm is compared with the reference:
            # what moves its answers is a doubt about each.
            arm=None if control.arm == case.evidence.reference and not steady else control.arm,
            message=told
            if steady
            else (
                f"{told} Equal servers should lose as many as they win: something other than "
                "the arms changes answers."
            ),
            estimates=(difference,),
            next_step=None if steady else again,
            leg="safe",
        )
