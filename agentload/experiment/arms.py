"""The arms of a profile that have a latency and so can be played."""

from __future__ import annotations

from collections.abc import Sequence

from agentload.builtin import find
from agentload.emulator.profile import parse
from agentload.errors import ProfileError
from agentload.model.profile import ArmProfile


def arms_of(profile: str, names: Sequence[str] = ()) -> tuple[ArmProfile, ...]:
    """Return the arms called *names*, or all, in the profile's order. Raises ProfileError naming those that exist."""
    deployment = parse(find("profiles", profile).read_text(encoding="utf-8"), name=profile)
    playable = {arm.name: arm for arm in deployment.arms if arm.step is not None}
    if not playable:
        raise ProfileError(
            f"profile {deployment.name} has no arm with a latency", hint="only its accuracy was published; agentload profile list"
        )
    missing = next((name for name in names if name not in playable), None)
    if missing is not None:
        raise ProfileError(f"profile {deployment.name} has no arm '{missing}' with a latency", hint=f"it has: {', '.join(playable)}")
    return tuple(arm for name, arm in playable.items() if not names or name in names)
