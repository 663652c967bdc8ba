"""A claim that rests on what is assumed of starts: confirm
it behind a canary, or start both servers for every pair.
"""

from collections.abc import Iterator

from advisor import words
from advisor.case import Case
from advisor.evidence import Arm
from advisor.legs.speed import by_prior, is_confounded, restarts
from advisor.verdict import Finding

NEEDS = frozenset({"speeds"})


def check(case: Case, arm: Arm) -> Iterator[Finding]:
    """Yield one finding a scope whose claim twice the assumed
    spread of starts would undo, or that has one start a side.
    """
    for workload in case.scopes():
        speed = case.speed(arm.name, workload)
        # Arms that kept their machines are exchanged, not started again (machine_or_arm).
        if speed is None or is_confounded(case, arm.name) or not by_prior(case, speed):
            continue
        need = restarts(case, speed)
        enough = (
            ""
            if need.pairs is None
            else f" {words.quantity(need.pairs, 'block pair')}, each with starts of its own, "
            "need no such assumption."
        )
        yield Finding(
            kind="opposes",
            workload=workload,
            message=(
                f"Turn latency of {words.scope(workload)} on {arm.name} rests on "
                f"{words.quantity(speed.starts, 'start')} of each server. "
                f"What a start adds is assumed: {case.starts_told()}.{enough}"
            ),
            estimates=(speed.change.relative,),
            flips="another start of either server that differs by more",
            next_step=need.step,
            leg="validity",
            need=need,
        )
