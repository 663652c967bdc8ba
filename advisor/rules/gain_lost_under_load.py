"""The gain of a single request shrinks under load: weights of a
larger batch and waits for prefill dilute what cheaper reads save.
"""

import numpy as np

from advisor import words
from advisor.assess.reach import contexts
from advisor.case import Case
from advisor.evidence import Arm, WorkloadClass
from advisor.rules import LOAD
from advisor.verdict import Finding

NEEDS = frozenset({"itl", "speeds", "evidence.workloads.batch"})

WORTH_TELLING = 0.8  # share of the modelled gain that survives at most
LEAST_GAIN = 0.03  # modelled; below it a share means nothing


def check(case: Case, arm: Arm, workload: WorkloadClass) -> Finding | None:
    """Return that time per output token surely gains
    less than the lines of single requests promise.
    """
    base, line = case.itl_line(case.evidence.reference), case.itl_line(arm.name)
    speed, lengths = (
        case.speed(arm.name, workload.name, "tpot_ms"),
        contexts(case.evidence, workload.name),
    )
    if (
        base is None
        or line is None
        or speed is None
        or workload.batch is None
        or lengths is None
        or not lengths.size
    ):
        return None
    if speed.change.relative.is_bound:  # nobody knows how much it gains at most
        return None
    held = workload.batch * float(np.median(lengths))
    here, there = (
        each.intercept_ms.value + held * each.slope_ms_per_token.value for each in (line, base)
    )
    promised, most = 1 - here / there, -(speed.change.relative.low or 0.0)
    if promised < LEAST_GAIN or most > WORTH_TELLING * promised:
        return None
    return Finding(
        kind="informs",
        message=(
            f"Single requests promise {promised:.1%} less time per output token for the batches "
            f"of {workload.name} ({words.tokens(held)} KV tokens). Under load it "
            f"{words.moves(speed.change.relative)}: decide on that."
        ),
        estimates=(speed.change.relative,),
        source=LOAD,
        leg="pays",
    )
