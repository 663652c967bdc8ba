"""Part of the load is longer than anything that
was asked: garbage there would not have been seen.
"""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.legs import questions
from advisor.verdict import Finding

NEEDS = frozenset({"reach.beyond_share"})


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding a quantised arm and scope with calls beyond its longest bucket."""
    for reach in case.reach:
        found = case.accuracy_of(reach.arm, reach.workload)
        if (
            not reach.beyond_share
            or found is None
            or not is_quantised(case.evidence.arm(reach.arm))
        ):
            continue
        need = questions.longer(case, found)
        yield Finding(
            kind="opposes" if reach.beyond_share > case.policy.max_untested_share else "informs",
            arm=reach.arm,
            workload=reach.workload,
            message=(
                f"{reach.beyond_share:.1%} of the calls of {words.scope(reach.workload)} "
                f"are longer than {words.length(found.asked_to)} (up to "
                f"{words.length(reach.longest or 0.0)}), where no answer was checked. Keep those "
                f"calls on {case.evidence.reference}, cap their length, or ask questions there."
            ),
            next_step=need.step,
            leg="safe",
            need=need,
        )
