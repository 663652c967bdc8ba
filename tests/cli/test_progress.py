"""The time left: the plan's at the beginning, what was seen at the end."""

import time
from dataclasses import replace

import pytest

from agentload.cli._progress import Progress
from agentload.layout.cost import cost
from agentload.layout.plan import plan
from agentload.model.trace import Header, Segment, Session, Trace, Turn

TURN = Turn(add=(Segment(role="user", tokens=10, key="u"),), output=5)


@pytest.mark.parametrize(("done", "elapsed_s", "left"), [(10, 10.0, "49 min"), (50, 1800.0, "30 min"), (99, 600.0, "6 s")])
def test_the_time_left_is_the_plans_at_first_and_what_was_seen_at_last(
    done: int, elapsed_s: float, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(header=Header(name="t"), sessions=(Session(session="s", workload="chat", turns=(TURN,)),))
    expected = replace(cost(plan(trace, ["a"], run="r", pairs=1)), calls_by_arm={"a": 100}, minutes=60.0)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    progress = Progress(expected)
    progress._arms["a"].latest.done = done
    monkeypatch.setattr(time, "monotonic", lambda: elapsed_s)
    assert progress.line().endswith(f"left {left}")
