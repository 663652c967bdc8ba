"""The time left: the plan's at the beginning, what was seen at the end."""

import os
import sys
import time
from dataclasses import replace

import pytest

from agentload.cli._audience import CallProgress, _lateness
from agentload.cli._print import notice, silence, transient
from agentload.layout.cost import cost
from agentload.layout.plan import Scheme, plan
from agentload.model.trace import Header, Segment, Session, Trace, Turn

TURN = Turn(add=(Segment(role="user", tokens=10, key="u"),), output=5)


@pytest.mark.parametrize(
    ("done", "elapsed_s", "left"),
    [(10, 10.0, "49 min"), (50, 1800.0, "30 min"), (99, 600.0, "6 s")],
)
def test_the_time_left_is_the_plans_at_first_and_what_was_seen_at_last(
    done: int, elapsed_s: float, left: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = Trace(
        header=Header(name="t"), sessions=(Session(session="s", workload="chat", turns=(TURN,)),)
    )
    expected = replace(
        cost(plan(trace, ["a"], run="r", scheme=Scheme(pairs=1))),
        calls_by_arm={"a": 100},
        minutes=60.0,
    )
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    progress = CallProgress(expected)
    progress._arms["a"].done = done
    monkeypatch.setattr(time, "monotonic", lambda: elapsed_s)
    assert progress.line().endswith(f"left {left}")


def test_a_plan_of_which_an_arm_did_more_draws_no_bar_and_knows_no_end() -> None:
    trace = Trace(
        header=Header(name="t"), sessions=(Session(session="s", workload="chat", turns=(TURN,)),)
    )
    expected = cost(plan(trace, ["a", "b"], run="r", scheme=Scheme(pairs=1)))
    progress = CallProgress(replace(expected, calls_by_arm={"a": 10, "b": 100}))
    progress._arms["a"].done = 12
    progress._arms["b"].done = 12
    assert progress.lines()[0] == "… left"
    assert progress.line().endswith("left …")


def test_what_is_drawn_is_taken_away_whole_after_a_terminal_became_narrower(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line of 60 columns takes two rows of 40 once the terminal has wrapped it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2)
    sizes = iter([(80, 24), (40, 24), (40, 24)])
    monkeypatch.setattr(os, "get_terminal_size", lambda _: next(sizes))
    transient("a" * 60, "b")
    transient("c" * 60)
    notice("said")
    first, second, third = ("a" * 60 + "\nb", "\r\x1b[2A\x1b[J" + "c" * 39, "\r\x1b[Jsaid\n")
    assert capsys.readouterr().err == first + second + third


def test_nothing_is_drawn_and_nothing_noticed_when_quiet_is_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with silence(is_quiet=True):
        transient("a")
        notice("b")
    assert capsys.readouterr().err == ""


def test_a_bar_says_how_much_is_done_and_a_row_what_each_arm_does() -> None:
    trace = Trace(
        header=Header(name="t"), sessions=(Session(session="s", workload="chat", turns=(TURN,)),)
    )
    progress = CallProgress(
        replace(
            cost(plan(trace, ["a"], run="r", scheme=Scheme(pairs=1))),
            calls_by_arm={"a": 100},
            minutes=60.0,
        )
    )
    progress._arms["a"].done = 50
    bar, head, row = progress.lines()
    assert bar.startswith("████████████░░░░░░░░░░░░  50% · ")
    assert head.split()[:3] == ["arm", "calls", "in"]
    assert row.split()[:3] == ["a", "50/100", "0"]


def test_a_row_says_how_late_requests_leave_and_whether_that_invalidates_the_timings() -> None:
    assert [_lateness(each) for each in (None, 0.04, 5.0, 8.6)] == [
        "–",
        "0.0 ms ✓",
        "5.0 ms ✓",
        "8.6 ms ✗",
    ]


def test_nothing_is_drawn_on_a_terminal_that_cannot_move_its_cursor(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    transient("a")
    notice("b")
    assert capsys.readouterr().err == "b\n"
