"""A made-up deployment whose decision has something of everything a report can show.

Every figure in it is invented.
"""

from tests.report.samples.decided import decision, verdict, without_capacity
from tests.report.samples.measured import ARMS, calls, estimate, evidence
from tests.report.samples.told import facts

__all__ = [
    "ARMS",
    "calls",
    "decision",
    "estimate",
    "evidence",
    "facts",
    "verdict",
    "without_capacity",
]
