"""How the second copy of an arm is called, which shows what equal servers differ by."""

from typing import Final

_SUFFIX: Final = "@aa"
SAME: Final = "are the same configuration by all they say: this is an A/A test"
"""What a run says of two arms that nothing tells apart, behind their names."""


def control_of(arm: str) -> str:
    """Name the second copy of an arm."""
    return arm + _SUFFIX


def is_control(arm: str) -> bool:
    """Tell whether an arm is the second copy of another."""
    return arm.endswith(_SUFFIX)


def copied(control: str) -> str:
    """Name the arm that a control is the second copy of."""
    return control.removesuffix(_SUFFIX)
