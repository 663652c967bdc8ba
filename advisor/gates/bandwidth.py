"""No step reads the KV cache faster than memory delivers: an ITL slope above 100 % of peak bandwidth is a broken measurement."""

from __future__ import annotations

import numpy as np

from advisor.evidence import Evidence, Sweep
from advisor.policy import Policy
from advisor.statistics.line import itl_line
from advisor.verdict import Gate

NAME = "memory bandwidth"


def _gate(evidence: Evidence, sweep: Sweep, users: int) -> Gate | None:
    arm, peak = evidence.arm(sweep.arm), evidence.deployment.gpu.hbm_tb_s
    if arm.kv_bytes_per_token is None or peak is None:
        return Gate(
            name=NAME,
            status="not observed",
            arm=arm.name,
            message="page bytes or peak bandwidth unknown: name `gpu` and `config` in the arms file",
        )
    rows = sweep.users == users
    found = itl_line(
        arm.name,
        users=users,
        pair=sweep.pair[rows],
        batch_tokens=users * sweep.context_tokens[rows],
        itl_ms=sweep.itl_ms[rows],
        kv_bytes_per_token=arm.kv_bytes_per_token,
    )
    if found is None:
        return None
    limit = peak * evidence.deployment.tensor_parallel
    bandwidth = found.bandwidth_tb_s
    if bandwidth is None:
        return Gate(name=NAME, status="pass", arm=arm.name, message="the slope is not above zero: nothing to hold against the peak")
    share = bandwidth.value / limit
    impossible = bandwidth.low is not None and bandwidth.low > limit
    reads = f"the slope reads the KV cache at {bandwidth.value:.2f} TB/s, {share:.0%} of the peak"
    return Gate(
        name=NAME,
        status="fail" if impossible else "pass",
        arm=arm.name,
        message=f"{reads}: pages are smaller than stated, or lengths are not what was asked" if impossible else reads,
        observed=bandwidth.value,
        limit=limit,
        unit="TB/s",
        spoils=("decode sweep",) if impossible else (),
    )


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate a sweep and batch size."""
    del policy  # physics is not negotiable
    found = (_gate(evidence, sweep, int(users)) for sweep in evidence.sweeps for users in np.unique(sweep.users))
    return tuple(gate for gate in found if gate is not None)
