from __future__ import annotations

from itertools import pairwise

from agentload.telemetry.refusals import LONGEST_S, Refusals


def test_a_page_that_stays_refused_is_asked_for_less_and_less_but_never_given_up() -> None:
    refusals = Refusals(first_s=10.0)
    asked: list[int] = []
    for second in range(2000):
        if refusals.is_due("page", second):
            asked.append(second)
            refusals.refused("page", second)
    waits = [after - before for before, after in pairwise(asked)]
    assert waits == [10, 20, 40, 80, 160, *[LONGEST_S] * 5]


def test_a_page_that_answers_again_says_for_how_long_it_was_refused_and_begins_anew() -> None:
    refusals = Refusals(first_s=10.0)
    assert refusals.answered("page", 5) is None
    refusals.refused("page", 10)
    refusals.refused("page", 20)
    assert (refusals.is_due("page", 30), refusals.is_due("other", 30)) == (False, True)
    assert refusals.answered("page", 41) == 31
    assert refusals.is_due("page", 41)
    refusals.refused("page", 50)
    assert refusals.is_due("page", 60)
