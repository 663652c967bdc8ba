"""Arms that change machines half way: what a machine adds to one arm in the first half, it adds to the other in the second.

Two GPUs of one type differ by as much as a small gain, and no order in time can tell the two apart. With as many pairs before the change
as after it, the machine is a factor of its own, which the comparison takes out. A run that is given more pairs goes on where its servers
are: half of the new pairs before another change, half behind it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from agentload.errors import PlanError
from agentload.model.plan import Design

PAIRED = 2
"""Arms, and machines, that one change balances; more would need as many changes as there are machines."""


def check_swap(arms: Sequence[str], machines: Sequence[str], *, pairs: int, began: int, design: Design) -> None:
    """Raise PlanError unless the arms can change machines half way."""
    if len(arms) != PAIRED:
        raise PlanError(f"--swap exchanges two arms, got {len(arms)}: {', '.join(arms)}", hint="compare two at a time")
    if len(set(machines)) != PAIRED:
        named = ", ".join(machines) or "none"
        raise PlanError(
            f"--swap needs each arm on a machine of its own, got {named}",
            hint="'machine' in the arms file; docs/endpoints.md shows both ways",
        )
    if design == "sequential":
        raise PlanError("--swap goes with blocks that alternate or run side by side", hint="--design parallel --swap")
    if began % 2:
        raise PlanError(f"--swap needs as many pairs on each machine, got {began}", hint=f"--pairs {began + 1}")
    if pairs % began:
        said = f"--swap needs as many pairs on each machine, and began with {began}, got {pairs}"
        raise PlanError(said, hint=f"--pairs {pairs + began - pairs % began}")


def stays(pairs: int, began: int) -> tuple[range, ...]:
    """Return the pairs between two changes, of a run that *began* with so many pairs and is given more in whole multiples."""
    edges = (0, *range(began // 2, pairs, began), pairs)
    return tuple(range(*each) for each in pairwise(edges))


def placed(arms: Sequence[str], machines: Sequence[str], *, changes: int) -> dict[str, str]:
    """Say where each arm is after so many changes; nothing where nobody named machines."""
    return {arm: machines[(position + changes) % len(machines)] for position, arm in enumerate(arms)} if machines else {}
