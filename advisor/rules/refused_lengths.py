"""The server takes shorter contexts than the reference's,
and the user's calls are longer: it would refuse them.

Few such calls bound what is said of the arm; with more, it does not serve this load.
"""

from advisor import words
from advisor.assess.coverage import refused
from advisor.case import Case
from advisor.evidence import Arm
from advisor.verdict import Finding

NEEDS = frozenset({"evidence.workloads"})


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that the arm refuses more of the calls than may be left untested."""
    found = refused(case.evidence, arm.name)
    if found is None or found.bound(case.policy) is None:
        return None
    return Finding(
        kind="blocks",
        message=(
            f"{arm.name} takes contexts up to {words.length(found.to)}: it refuses "
            f"{found.calls:.0%} of your calls, which "
            f"{case.evidence.reference} serves."
        ),
        flips=f"{arm.name} with a larger --max-model-len, or sessions that end before "
        f"{words.length(found.to)} (--max-context)",
        leg="pays",
        asks_for="avoid",
    )
