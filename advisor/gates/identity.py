"""The server has to run what the arm says: a cache that silently kept its dtype is no FP8 arm."""

from collections.abc import Iterator

from advisor.dtypes import canonical
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Gate, Spoiled

NAME = "identity"


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm."""
    del policy  # a wrong dtype is wrong at every threshold
    spoils: tuple[Spoiled, ...] = ("ttft", "itl", "turn", "hits", "accuracy", "capacity")
    for arm in evidence.arms:
        if arm.twin:
            said = (
                f"the same configuration as {evidence.reference} by all that both say: a "
                "control, and no choice"
            )
            yield Gate(name=NAME, arm=arm.name, status="fail", message=said, spoils=spoils)
            continue
        if arm.observed_dtype is None:
            yield Gate(name=NAME, arm=arm.name, message="the server's KV dtype was not read")
            continue
        wanted = arm.expected_dtype
        # `auto` follows the checkpoint, so any answer fits
        # it; the known-issue rule looks at surprises.
        fits = wanted in (None, "auto") or canonical(str(wanted)) == canonical(arm.observed_dtype)
        # A server that nobody told keeps the 16 bits of its weights;
        # where the checkpoint says otherwise, vLLM names that dtype.
        is_default = arm.observed_dtype == "auto"
        keeps_16_bits = is_default and canonical(str(wanted)) in ("bfloat16", "float16")
        found = Gate(
            name=NAME, arm=arm.name, message=f"KV dtype {arm.observed_dtype}", spoils=spoils
        )
        yield found.judged(good=fits or keeps_16_bits, but=f" where dtype {wanted} was asked for")
