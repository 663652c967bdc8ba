"""The place in a pair adds much: an arm may leave the
other something, and then half of it is in the difference.

Least squares takes out what the second place adds to both arms alike. Carry-over from
one arm to the other only looks the same: what is taken out is then as large as what is
left in. |t| above 2.5 and half a margin flags one of 3% in nearly half of eight pairs.
"""

import math
from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm
from advisor.statistics import paired
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})

SURELY = 2.5  # standard errors
LARGE = 0.5  # margins


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield what the second place adds in each class where that is large and sure."""
    for workload in case.weighty():
        speed, sides = case.speed(arm.name, workload), case.evidence.sides(workload, arm.name)
        if speed is None or any(not each.draws for each in speed.controls):
            continue  # copies on one server told what a place adds to both
        table = None if sides is None else paired.pair_table(*sides, "turn_ms")
        found = None if table is None else paired.of_place(table)
        if found is None or abs(found.value) <= max(
            SURELY * found.se, LARGE * math.log1p(case.policy.min_change)
        ):
            continue
        added = math.expm1(2 * found.value)
        yield Finding(
            kind="opposes",
            workload=None if len(case.evidence.workloads) == 1 else workload,
            message=(
                f"Carry-over: where {arm.name} plays second in a pair, its turns of "
                f"{words.scope(workload)} take {abs(added):.1%} {'more' if added > 0 else 'less'} "
                f"time, compared with {case.evidence.reference}, than where it plays first. If "
                "only one arm leaves something behind (caches, heat), "
                f"{abs(math.expm1(found.value)):.1%} of the difference comes from that."
            ),
            flips="an A/A control, or a pause between the halves of a pair, after which places "
            "differ less",
            leg="validity",
        )
