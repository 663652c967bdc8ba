"""The server has to run what the arm says: a cache that silently kept its dtype is no FP8 arm."""

from __future__ import annotations

from advisor.dtypes import canonical
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "identity"


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
        # A server that nobody told keeps the 16 bits of its weights; where the checkpoint says otherwise, vLLM names that dtype.
        good = good or (arm.observed_dtype == "auto" and canonical(str(wanted)) in ("bfloat16", "float16"))
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
