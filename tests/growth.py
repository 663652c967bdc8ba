"""How much longer work takes that is larger: a machine may be slow, and busy at any time."""

from collections.abc import Callable
from time import process_time


def least_cpu_s(work: Callable[[], object], *, times: int = 3) -> float:
    """Return the least CPU time that some work took, and no less than a clock can tell."""
    took = []
    for _ in range(times):
        began_s = process_time()
        work()
        took.append(process_time() - began_s)
    return max(min(took), 0.001)
