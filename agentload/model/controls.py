"""How other copies of an arm are called: a control, which shows what
equal servers differ by, and replicas, which pairs take turns on.
"""

from typing import Final

CONTROL: Final = "@aa"
"""What follows an arm's name in that of its control."""
SAME: Final = "are the same configuration by all they say: this is an A/A test"
"""What a run says of two arms that nothing tells apart, behind their names."""


_REPLICA: Final = "replica "


def replica(number: int) -> str:
    """Name a replica of any arm, in the place of a
    machine: whatever its machine adds is part of it.
    """
    return f"{_REPLICA}{number}"


def is_replica(machine: str | None) -> bool:
    """Tell whether a machine's name is that of a replica."""
    return machine is not None and machine.startswith(_REPLICA)


def control_of(arm: str) -> str:
    """Name the second copy of an arm."""
    return arm + CONTROL


def is_control(arm: str) -> bool:
    """Tell whether an arm is the second copy of another."""
    return arm.endswith(CONTROL)


def original(control: str) -> str:
    """Name the arm that a control is the second copy of."""
    return control.removesuffix(CONTROL)
