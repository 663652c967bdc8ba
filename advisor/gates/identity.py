"""The server has to run what the arm says: a cache that silently kept its dtype is no FP8 arm."""

from __future__ import annotations

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "identity"
SAME = {
    "fp8": "fp8_e4m3",  # vLLM reads fp8 as fp8_e4m3
    "bf16": "bfloat16",
    "fp16": "float16",
}


def canonical(dtype: str) -> str:
    """Return the one name of a KV dtype that has several."""
    return SAME.get(dtype, dtype)


def check(evidence: Evidence, policy: Policy) -> tuple[Gate, ...]:
    """Return one gate an arm."""
    del policy  # a wrong dtype is wrong at every threshold
    gates = []
    for arm in evidence.arms:
        if arm.observed_dtype is None:
            gates.append(Gate(name=NAME, status="not observed", arm=arm.name, message="the server's KV dtype was not read"))
            continue
        wanted = arm.expected_dtype
        # `auto` follows the checkpoint, so any answer fits it; the known-issue rule looks at surprises.
        good = wanted in (None, "auto") or canonical(str(wanted)) == canonical(arm.observed_dtype)
        gates.append(
            Gate(
                name=NAME,
                status="pass" if good else "fail",
                arm=arm.name,
                message=f"KV dtype {arm.observed_dtype}" + ("" if good else f" where {wanted} was asked for"),
                spoils=() if good else ("ttft", "itl", "turn", "hits", "accuracy", "capacity"),
            )
        )
    return tuple(gates)
