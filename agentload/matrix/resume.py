"""Go on with a model: what its run began with, and whether that is what the file says now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from agentload.matrix.described import LeftOut
from agentload.matrix.origin import origin, other
from agentload.matrix.parts import Part
from agentload.matrix.past import begun
from agentload.matrix.state import State, read_state
from agentload.model.trace import Trace

LATE: Final = "its model's run began without it: another --out measures it"
CHANGED: Final = "the file is not what its run began with"


def resumed(part: Part, traces: Mapping[str, Trace]) -> tuple[Part, State]:
    """Return a model with the arms that its run has, and what still holds of what was done.

    Before the run begins nothing does: what kept a server from starting is often mended where no file tells of it.
    """
    places = part.planned.places
    before = begun(places.database(part.name))
    if before is None:
        return part, State()
    state = read_state(places.state(part.name))
    faults = {arm: fault for arm, fault in state.faults.items() if arm in part.wanted}
    late = [arm for arm in part.planned.arms if arm not in before.arms]
    out = tuple(LeftOut(model=part.name, config=arm, why=LATE) for arm in late if arm not in faults)
    left = part.without(late, traces)
    return replace(left, left_out=(*left.left_out, *out)), replace(state, faults=faults)


def changed(part: Part, state: State) -> str | None:
    """Say what of a model is not what its run began with; None before it has, or where all is."""
    if not part.planned.arms or begun(part.planned.places.database(part.name)) is None:
        return None
    names = other(state.origin, origin(part))
    return f"{CHANGED} ({', '.join(names)}): another --out measures it" if names else None
