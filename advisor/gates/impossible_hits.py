"""No cache hits where it cannot.

Salted blocks share nothing, no cache beats one without bounds, and none hits more than was asked.
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
    for arm, workload, figures in _figures(evidence):
        hits = figures.impossible_hits
        rate = figures.hit_rate
        ideal = figures.ideal_hit_rate
        gate = Gate(
            name=NAME,
            arm=arm,
            workload=workload,
            message="no cache hits between isolated runs",
            spoils=("hits", "ttft", "turn", "capacity"),
        )
        if hits:
            message = (
                f"{hits:,.0f} prompt tokens hit the cache where the salt rules that out: blocks "
                "share a salt"
            )
            shared = replace(gate, message=message, observed=hits, limit=0.0, unit="tokens")
            yield shared.judged(good=False)
        elif rate is not None and rate > 1:
            message = (
                f"the server counts {rate:.0%} of its prompt tokens as cached, and no more than "
                "all can be: its hit rate is not usable"
            )
            beyond = replace(gate, message=message, observed=rate, limit=1.0, spoils=("hits",))
            yield beyond.judged(good=False)
        elif rate is not None and ideal is not None:
            message = f"hit rate {rate:.0%}, an unlimited cache would reach {ideal:.0%}"
            found = replace(gate, message=message, observed=rate, limit=ideal)
            yield found.judged(
                good=rate <= ideal + TOLERANCE, but=": prompts repeat that the trace keeps apart"
            )
        elif hits is not None:
            yield replace(gate, observed=0.0, limit=0.0, unit="tokens").judged(good=True)


def _figures(evidence: Evidence) -> Iterator[tuple[str, str | None, Telemetry]]:
    """Yield what each server reported: of all its calls, then of each workload's."""
    for arm, figures in evidence.server:
        yield arm, None, figures
    for each in evidence.observations:
        if each.telemetry is not None:
            yield each.arm, each.workload, each.telemetry
