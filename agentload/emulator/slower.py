"""The same arm on a slower machine: two cards of one type differ by a few percent."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Final

from agentload.model.profile import ArmProfile, StepTime

_NO_TIMES: Final = frozenset({"batch8_attention", "known_to_batch"})


def slowed(arm: ArmProfile, factor: float) -> ArmProfile:
    """Return the arm with every part of a step *factor* times as long."""
    if arm.step is None or factor == 1:
        return arm
    times = {each.name: getattr(arm.step, each.name) for each in fields(StepTime) if each.name not in _NO_TIMES}
    step = replace(arm.step, **{name: value * factor for name, value in times.items() if value is not None})
    drafting = None if arm.speculation is None else replace(arm.speculation, draft_ms=arm.speculation.draft_ms * factor)
    return replace(arm, step=step, speculation=drafting)
