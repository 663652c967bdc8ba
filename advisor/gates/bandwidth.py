"""No step reads the KV cache faster than memory delivers: an
ITL slope above 100% of peak bandwidth is a broken measurement.
"""

from collections.abc import Iterator
from dataclasses import replace

from advisor.assess.lines import itl_lines
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "memory bandwidth"
UNKNOWN = (
    "page bytes or peak bandwidth unknown: set `gpu` and `config` in the arms file to enable "
    "this check"
)


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate a sweep and batch size."""
    del policy  # physics is not negotiable
    peak = evidence.deployment.gpu.hbm_tb_s
    for line in itl_lines(evidence):
        gate = Gate(name=NAME, arm=line.arm, message=UNKNOWN)
        bandwidth = line.bandwidth_tb_s
        if evidence.arm(line.arm).kv_bytes_per_token is None or peak is None:
            yield gate
        elif bandwidth is None:
            yield replace(
                gate,
                status="pass",
                message="the slope is not above zero, so the peak cannot be checked",
            )
        else:
            limit = peak * evidence.deployment.tensor_parallel
            reads = (
                f"the slope reads the KV cache at {bandwidth.value:.2f} TB/s, "
                f"{bandwidth.value / limit:.0%} of the peak"
            )
            found = replace(
                gate,
                message=reads,
                observed=bandwidth.value,
                limit=limit,
                unit="TB/s",
                spoils=("decode sweep",),
            )
            yield found.judged(
                good=not bandwidth.is_above(limit),
                but=": pages are smaller than stated, or lengths are not what was asked",
            )
