"""No cache hit where none is possible: salted blocks share nothing,
none beats one without bounds, and none hits more than was asked.
"""

from collections.abc import Iterator
from dataclasses import replace

from advisor.evidence import Evidence, Telemetry
from advisor.policy import Policy
from advisor.verdict import Gate

NAME = "cache hits"
TOLERANCE = 0.01  # a block boundary more or less


def check(evidence: Evidence, policy: Policy) -> Iterator[Gate]:
    """Yield one gate an arm and workload with hit figures."""
    del policy  # arithmetic is not negotiable
    seen: list[tuple[str, str | None, Telemetry]] = [
        (arm, None, figures) for arm, figures in evidence.server
    ]
    seen += [
        (each.arm, each.workload, each.telemetry)
        for each in evidence.observations
        if each.telemetry is not None
    ]
    for arm, workload, figures in seen:
        hits, rate, ideal = figures.impossible_hits, figures.hit_rate, figures.ideal_hit_rate
        gate = Gate(
            name=NAME,
            arm=arm,
            workload=workload,
            message="no cache hits between isolated runs",
            spoils=("hits", "ttft", "turn", "capacity"),
        )
        if hits:
            told = (
                f"{hits:,.0f} prompt tokens hit the cache where the salt rules that out: blocks "
                "share a salt"
            )
            yield replace(gate, message=told, observed=hits, limit=0.0, unit="tokens").judged(
                good=False
            )
        elif rate is not None and rate > 1:
            told = (
                f"the server counts {rate:.0%} of its prompt tokens as cached, and no more than "
                "all can be: its hit rate is not usable"
            )
            yield replace(gate, message=told, observed=rate, limit=1.0, spoils=("hits",)).judged(
                good=False
            )
        elif rate is not None and ideal is not None:
            told = f"hit rate {rate:.0%}, an unlimited cache would reach {ideal:.0%}"
            found = replace(gate, message=told, observed=rate, limit=ideal)
            yield found.judged(
                good=rate <= ideal + TOLERANCE, but=": prompts repeat that the trace keeps apart"
            )
        elif hits is not None:
            yield replace(gate, observed=0.0, limit=0.0, unit="tokens").judged(good=True)
