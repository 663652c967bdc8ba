"""How long a replay takes is said before it begins: its trace's waits are most of it, and no name tells them."""

import pytest

from agentload.cli._dry import about, warning
from agentload.layout.cost import Cost


@pytest.mark.parametrize(
    ("minutes", "said"), [(0.2, "about 1 min"), (26.4, "about 26 min"), (119.0, "about 119 min"), (1095.0, "about 18 h")]
)
def test_long_durations_are_told_in_hours(minutes: float, said: str) -> None:
    assert about(minutes) == said


@pytest.mark.parametrize(("minutes", "is_told"), [(59.0, False), (60.0, True)])
def test_a_long_replay_is_told_with_what_makes_it_shorter(minutes: float, is_told: bool) -> None:  # noqa: FBT001  # a case
    told = warning(Cost(rounds=12, calls_by_arm={"a": 1}, prompt_tokens=1, output_tokens=1, minutes=minutes))
    assert (told is not None) == is_told
    assert told is None or told.startswith("this takes about 60 min; shorter with --wait-cap")
