"""The line that windows are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentload.layout.line import Timed, line_of_arrivals, line_of_turns
from agentload.layout.timeline import lasts_s, timeline
from agentload.model.plan import Load
from agentload.model.trace import Session, Turn
from tests.layout.family_draws import LOAD, drawn_families


def timed(families: Iterable[Sequence[Session]], load: Load) -> list[Timed]:
    return [(each, timeline(each, load)) for each in families]


def waiting(name: str, *waits_s: float) -> Session:
    """Return a session whose answers take a second each."""
    turns = tuple(Turn(add=(), output=50, wait="tool", wait_s=each) for each in waits_s)
    return Session(session=name, workload="w", turns=turns, start_s=0.0)


def test_of_a_wait_longer_than_a_window_the_window_counts() -> None:
    line = line_of_turns(
        timed([[waiting("a", 0.0, 4.0)], [waiting("b", 0.0, 100.0)]], Load()), window_s=10.0
    )
    assert line.seconds == pytest.approx(1 + 4 + 1 + 1 + 10 + 1)
    # The second session begins at 6 s, its wait lasts from 7 s to 107 s.
    assert [line.at(each) for each in (0.5, 5.5, 7.0, 12.0, 17.5)] == pytest.approx(
        [0.5, 5.5, 7.0, 57.0, 107.5]
    )


def test_sub_agents_fill_the_wait_of_who_waits_for_them() -> None:
    parent = Session(
        session="p",
        workload="w",
        start_s=0.0,
        turns=(
            Turn(add=(), output=50, spawn=("c",)),
            Turn(add=(), output=50, wait="tool", wait_s=30.0),
        ),
    )
    child = Session(session="c", workload="w", start_s=None, turns=(Turn(add=(), output=1000),))
    assert line_of_turns(timed([[parent]], Load()), window_s=5.0).seconds == pytest.approx(7.0)
    assert line_of_turns(timed([[parent, child]], Load()), window_s=5.0).seconds == pytest.approx(
        1 + 20 + 5 + 1
    )


def test_of_arrivals_counts_what_has_a_call_behind_it() -> None:
    families = [[waiting("a", 0.0, 2.0)], [waiting("b", 0.0)]]
    line = line_of_arrivals(timed(families, Load()), [0.0, 3600.0], window_s=10.0)
    assert line.seconds == pytest.approx(13 + 10)
    assert [line.at(each) for each in (0.0, 12.0, 14.0)] == pytest.approx(
        [0.0, 2.0, 3600.0], abs=1e-5
    )


def test_a_family_that_has_ended_plays_no_sub_agent_from_then_on() -> None:
    parent = Session(
        session="p", workload="w", start_s=0.0, turns=(Turn(add=(), output=50, spawn=("c",)),)
    )
    child = Session(
        session="c",
        workload="w",
        start_s=None,
        turns=(Turn(add=(), output=50, wait="tool", wait_s=6.0),),
    )
    line = line_of_arrivals(timed([[parent, child]], Load()), [0.0], window_s=10.0)
    assert line.at(0.0) == pytest.approx(0.0, abs=1e-5)
    assert line.at(line.seconds) == 1.0


def test_a_line_of_nothing_has_no_time() -> None:
    line = line_of_turns(timed([[waiting("never")]], Load()), window_s=10.0)
    assert (line.seconds, line.at(0.0)) == (0.0, 0.0)


@settings(max_examples=30, deadline=None)
@given(
    families=st.lists(drawn_families(), min_size=1, max_size=3),
    window_s=st.sampled_from((1.0, 5.0, 1000.0)),
)
def test_a_line_runs_through_all_time_and_never_back(
    families: list[tuple[Session, ...]], window_s: float
) -> None:
    line = line_of_turns(timed(families, LOAD), window_s=window_s)
    whole_s = sum(lasts_s(each, timeline(each, LOAD)) for each in families)
    found = [line.at(line.seconds * step / 50) for step in range(51)]
    assert all(a <= b + 1e-9 for a, b in pairwise(found))
    assert found[0] >= 0
    assert found[-1] == pytest.approx(whole_s)
    if window_s == 1000.0:
        assert line.seconds == pytest.approx(whole_s)
