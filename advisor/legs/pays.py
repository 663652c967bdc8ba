"""Does the arm pay? Faster turns or more agents per GPU, and neither bought with the other."""

from __future__ import annotations

from dataclasses import replace

from advisor.case import Room
from advisor.verdict import Leg


def pays_leg(speed: Leg, capacity: Leg, room: Room) -> Leg:
    """Return the leg that speed and capacity give together; the reason names what decided."""
    is_open = capacity.state == "unclear" or (capacity.state == "untested" and room.state == "binds")
    match speed.state, capacity.state:
        case "yes", "no":
            return replace(speed, state="unclear", reason=f"{speed.reason}, but {capacity.reason}: the service level has to choose")
        case "no", "yes":
            return replace(speed, state="unclear", reason=f"{speed.reason}, but {capacity.reason}: the service level has to choose")
        case "no", _ if is_open:
            # A larger pool may be worth more than its slower turns where the pool is what limits.
            return replace(speed, state="unclear", reason=f"{speed.reason}; capacity not settled: {capacity.reason}", needs=capacity.needs)
        case "yes" | "no", _:
            return speed
        case _, "yes":
            return replace(capacity, name="pays", reason=f"{capacity.reason}; {speed.reason}", needs=())
        case "equal", "equal":
            return replace(speed, reason=f"{speed.reason}; {capacity.reason}")
        case "equal", "no":
            return replace(capacity, name="pays", reason=f"{capacity.reason}; {speed.reason}")
        case "equal", _:
            return replace(speed, state="unclear", reason=f"{speed.reason}; capacity not settled: {capacity.reason}", needs=capacity.needs)
        case _, _:
            return speed
