"""What is asked next: the cheapest question that can still change the decision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.estimate import Estimate
from advisor.steps import CapacitySearch, MorePairs, Questions, Restarts, Step, Swap
from advisor.verdict import ArmVerdict, Change, Choice, Decision, Leg, LegState, Need, Word
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import DRAWS, FIRST, ITEMS, LENGTHS, PAIRS, Look
from agentload.decision.sequence import lengths, next_looks, settling_look

CHOICE = Choice(
    arm="bf16",
    verdict="test further",
    canary=False,
    headline="",
    runner_up=None,
    why_it_lost=None,
    split_pools="",
)


LEDGER = Ledger(database=Path("x.duckdb"), run="r")
QUESTIONS = Need(what="", step=Questions(lengths=LENGTHS, items=600))


def verdict(
    arm: str = "fp8",
    word: Word = "test further",
    *,
    pays: LegState = "unclear",
    safe: LegState = "untested",
    capacity: LegState | None = None,
    step: Step | None = None,
) -> ArmVerdict:
    """Return a verdict whose speed is settled by more pairs
    where it is unclear, unless another *step* is named.
    """
    settles = (Need(what="", step=step or MorePairs(pairs=8)),) if pays == "unclear" else ()
    return ArmVerdict(
        arm=arm,
        workload=None,
        verdict=word,
        pays=Leg(name="pays", state=pays, reason="", needs=settles),
        safe=Leg(name="safe", state=safe, reason=""),
        capacity=None if capacity is None else Leg(name="capacity", state=capacity, reason=""),
        reason="",
    )


def early(pairs: int) -> Known:
    """Return what is known while a run holds too little."""
    return Known(ledger=LEDGER, pairs=pairs)


def known(
    *verdicts: ArmVerdict,
    pairs: int = 4,
    items: int = 0,
    asked: tuple[int, ...] = (),
    draws: int = 0,
) -> Known:
    nothing: tuple[()] = ()
    decision = Decision(
        run="r",
        kind="measured",
        model="m",
        gpu="g",
        version=None,
        reference="bf16",
        choice=CHOICE,
        server=verdicts,
        classes=nothing,
        gates=nothing,
        findings=nothing,
        skipped=nothing,
        figures=nothing,
        changes=nothing,
        itl=nothing,
        ttft=nothing,
        break_even=nothing,
        accuracy=nothing,
        capacity=nothing,
        needs=nothing,
        caveats=nothing,
        flips=nothing,
    )
    return Known(
        ledger=LEDGER, decision=decision, pairs=pairs, items=items, lengths=asked, draws_asked=draws
    )


def test_whether_a_level_is_met_at_all_is_asked_as_soon_as_there_is_a_run_to_keep_it() -> None:
    def wanted(now: Known) -> list[str]:
        return [each.criterion for each in next_looks(now, capacity=True, level=True)]

    assert wanted(early(0)) == ["speed"]
    assert wanted(early(FIRST)) == ["service level", "speed"]
    assert wanted(known(verdict(), pairs=PAIRS[0]))[0] == "service level"
    assert wanted(known(verdict(word="avoid"), pairs=FIRST)) == []


def test_capacity_that_can_decide_is_measured_before_speed_is_refined() -> None:
    trials = CapacitySearch(limits=None, trial_s=60.0)
    unknown = verdict(pays="untested", capacity="untested")
    needs = (Need(what="", step=trials),)
    by_gpus = replace(unknown, pays=replace(unknown.pays, needs=needs))
    assert next_of(known(by_gpus), capacity=True) == ("capacity", DRAWS[0])
    paying = replace(by_gpus, pays=replace(by_gpus.pays, state="yes"))
    assert next_of(known(paying, draws=DRAWS[0]), capacity=True) == ("accuracy", ITEMS[0])


def next_of(now: Known, *, capacity: bool = False) -> tuple[str, int] | None:
    look = next(next_looks(now, capacity=capacity), None)
    return None if look is None else (look.criterion, look.amount)


def test_speed_is_asked_first() -> None:
    assert [*next_looks(early(0), capacity=True)] == [Look(criterion="speed", amount=FIRST)], (
        "a version with a known bug needs no more"
    )
    assert [*next_looks(early(FIRST), capacity=True)] == [Look(criterion="speed", amount=PAIRS[0])]


@pytest.mark.parametrize("word", ["use", "avoid", "no difference", "calibrate"])
def test_nothing_is_asked_once_every_arm_is_decided(word: Word) -> None:
    assert next_of(known(verdict(word=word)), capacity=True) is None
    assert next_of(known(verdict(word=word), verdict("skip", pays="unclear"))) is not None


def test_more_pairs_are_played_look_by_look_until_there_are_no_more_looks() -> None:
    looks = [next_of(known(verdict(), pairs=pairs)) for pairs in (4, 7, 46, 64)]
    assert looks == [("speed", 5), ("speed", 8), ("speed", 64), None]


def test_answers_are_asked_only_of_what_pays() -> None:
    assert next_of(known(verdict(pays="yes"))) == ("accuracy", ITEMS[0])
    assert next_of(known(verdict(pays="unclear", capacity="yes"))) == ("accuracy", ITEMS[0])
    assert next_of(known(verdict(pays="unclear"), verdict("skip", pays="yes"))) == (
        "accuracy",
        ITEMS[0],
    )
    assert next_of(known(verdict(pays="equal"))) is None


def test_more_answers_are_asked_at_the_lengths_of_those_before_until_there_are_no_more_looks() -> (
    None
):
    paying = verdict(pays="yes", safe="unclear")
    look = next(next_looks(known(paying, items=130, asked=(4096,)), capacity=False))
    assert look == Look(criterion="accuracy", amount=160, lengths=(4096,))
    assert next_of(known(paying, items=ITEMS[-1])) is None
    needs = replace(paying, needs=(Need(what="", step=Questions(lengths=(8192,), items=900)),))
    look = next(next_looks(known(needs, items=30, asked=(8192, 16384)), capacity=False))
    assert look == Look(criterion="accuracy", amount=120, lengths=(8192,)), (
        "the longest is asked once, and decides nothing"
    )


def test_capacity_is_measured_before_the_dear_questions_and_again_only_while_it_is_what_is_open() -> (
    None
):
    paying, equal = verdict(pays="yes"), verdict(pays="untested", capacity="unclear")
    assert next_of(known(paying), capacity=True) == ("capacity", DRAWS[0])
    assert next_of(known(paying, draws=DRAWS[0]), capacity=True) == ("accuracy", ITEMS[0])
    assert next_of(known(verdict(), pairs=PAIRS[0]), capacity=True) == ("speed", PAIRS[1])
    assert next_of(known(verdict(), pairs=PAIRS[2]), capacity=True) == ("capacity", DRAWS[0])
    assert next_of(known(verdict(), pairs=PAIRS[2], draws=DRAWS[0]), capacity=True) == (
        "speed",
        PAIRS[3],
    )
    assert [next_of(known(equal, draws=draws), capacity=True) for draws in DRAWS] == [
        ("capacity", 6),
        ("capacity", 12),
        None,
    ]
    assert (
        next_of(known(verdict(pays="untested", capacity="equal"), draws=DRAWS[0]), capacity=True)
        is None
    )
    assert (
        next_of(known(verdict(pays="untested", capacity="untested"), draws=DRAWS[0]), capacity=True)
        is None
    ), "a check failed"
    assert next_of(known(verdict(capacity="equal"), pairs=PAIRS[2]), capacity=True) == (
        "speed",
        PAIRS[3],
    ), "pools of one size"


def test_what_settles_an_arm_is_the_look_that_its_needs_reach() -> None:
    few, many = (
        Look(criterion="speed", amount=5),
        Look(criterion="accuracy", amount=120, lengths=LENGTHS),
    )
    assert settling_look(known(verdict(step=MorePairs(pairs=18))), few) == replace(few, amount=20)
    assert settling_look(known(verdict(step=MorePairs(pairs=900))), few) == replace(
        few, amount=PAIRS[-1]
    ), "no look goes further"
    assert settling_look(known(verdict(step=Restarts(restarts=30))), few) == few, (
        "what more pairs do not settle"
    )
    asked = replace(
        verdict(pays="yes"),
        safe=Leg(name="safe", state="unclear", reason="", needs=(replace(QUESTIONS, pairs=600),)),
    )
    assert settling_look(known(asked), many) == replace(many, amount=680)
    assert settling_look(known(asked), Look(criterion="capacity", amount=6)) == Look(
        criterion="capacity", amount=6
    )


def test_more_pairs_are_not_played_where_they_settle_nothing() -> None:
    # What is open takes other starts, or a client that
    # keeps up: the same pairs again would end the same way.
    assert next_of(known(verdict(step=Restarts(restarts=8)), pairs=12)) == ("speed", 16), (
        "a few more may show that nothing changed"
    )
    assert next_of(known(verdict(step=Restarts(restarts=8)), pairs=16)) is None
    assert next_of(known(verdict(pays="untested"))) is None
    assert next_of(known(verdict(pays="untested")), capacity=True) == ("capacity", DRAWS[0])


def measured(value: float, low: float | None, high: float | None, *, margin: float = 0.03) -> Leg:
    found = Estimate(value=value, low=low, high=high, n=6, unit="relative", method="", level=0.9926)
    return Leg(name="pays", state="unclear", reason="", estimate=found, margin=margin)


@pytest.mark.parametrize(
    ("step", "change", "asked"),
    [
        (
            MorePairs(pairs=30),
            (0.0, -0.13, 0.13),
            True,
        ),  # of 64 pairs, a quarter of the width is left
        (MorePairs(pairs=30), (-0.033, -0.06, -0.006), True),
        (MorePairs(pairs=30), (0.0, -1.0, 1e17), True),
        (
            Restarts(restarts=8),
            (0.0, -0.10, 0.10),
            True,
        ),  # one start alone leaves 5.5%, and two margins are 5.9%
        (Restarts(restarts=8), (-0.06, -0.15, 0.03), False),
        (Restarts(restarts=8), (-0.11, -0.19, -0.02), True),
        (Swap(pairs=8), (0.01, -0.09, 0.11), True),
    ],
)
def test_pairs_are_played_while_their_last_look_may_settle_speed(
    step: Step, change: tuple[float, float, float], *, asked: bool
) -> None:
    leg = replace(measured(*change), needs=(Need(what="", step=step),))
    now = known(replace(verdict(), pays=leg), pairs=PAIRS[2])
    assert (next_of(now) == ("speed", PAIRS[3])) is asked


@pytest.mark.parametrize(
    ("bound", "seen", "asked"),
    [
        (
            -0.01,
            (-0.30, -0.02, -0.33, -0.28, -0.31, -0.29),
            True,
        ),  # at least 1% less so far, and most pairs have far more
        (
            -0.02,
            (-0.04, -0.022, -0.035, -0.025, -0.03, -0.021),
            False,
        ),  # a quarter of the pairs stays below the margin
        (0.02, (0.04, 0.022, 0.035, 0.025, 0.03, 0.021), False),
        (0.02, (0.20, 0.05, 0.21, 0.19, 0.2, 0.22), True),
        (-0.02, (), True),
    ],
)
def test_pairs_are_played_while_a_bound_may_still_pass_the_margin(
    bound: float, seen: tuple[float, ...], *, asked: bool
) -> None:
    ends = (None, bound) if bound < 0 else (bound, None)
    leg = replace(measured(bound, *ends), needs=(Need(what="", step=MorePairs(pairs=30)),))
    assert leg.estimate is not None
    assert leg.estimate.is_bound
    change = Change(
        metric="turn_ms",
        arm="fp8",
        workload="chat",
        relative=leg.estimate,
        pairs=6,
        calls=100,
        by_pair=seen,
    )
    now = known(replace(verdict(), pays=leg), pairs=PAIRS[2])
    assert now.decision is not None
    now = replace(now, decision=replace(now.decision, changes=(change,)))
    assert (next_of(now) == ("speed", PAIRS[3])) is asked


@pytest.mark.parametrize(
    ("ratio", "asked"),
    [
        ((0.08, -0.15, 0.37), False),
        ((0.12, -0.15, 0.50), False),
        ((0.30, 0.01, 0.67), True),
        ((-0.27, -0.44, -0.04), True),
        # At most so many: no gain any more where that is
        # within the margin, and open where it is beyond.
        ((0.05, None, 0.08), False),
        ((0.05, None, 0.50), True),
        ((-0.05, -0.08, None), False),
        # At least so many: only a gain can be shown, as it can of an interval with both ends.
        ((0.30, 0.01, None), True),
        ((0.02, -0.03, None), False),
    ],
)
def test_trials_are_made_while_their_last_look_may_settle_capacity(
    ratio: tuple[float, float | None, float | None], *, asked: bool
) -> None:
    equal = replace(verdict(pays="untested"), capacity=measured(*ratio, margin=0.10))
    assert (next_of(known(equal, draws=DRAWS[0]), capacity=True) == ("capacity", DRAWS[1])) is asked


def test_more_agents_settle_nothing_while_turns_may_be_longer_or_answers_are_what_is_open() -> None:
    more, far_more = (
        measured(*ratio, margin=0.10) for ratio in ((0.25, 0.0, 0.56), (0.9, 0.15, 2.2))
    )
    longer, shorter = (
        replace(measured(*change), needs=(Need(what="", step=Restarts(restarts=8)),))
        for change in ((0.0, -0.1, 0.1), (-0.05, -0.12, 0.02))
    )
    for pays, asked in (
        (longer, None),
        (shorter, ("capacity", 6)),
        (replace(longer, state="yes", needs=()), None),
    ):
        now = known(
            replace(verdict(), pays=pays, capacity=more), pairs=64, items=ITEMS[-1], draws=DRAWS[0]
        )
        assert next_of(now, capacity=True) == asked
    now = known(replace(verdict(), pays=longer, capacity=far_more), pairs=64, draws=DRAWS[0])
    assert next_of(now, capacity=True) == ("capacity", 6), (
        "they are likely to be shown, and a reason to ask for answers"
    )


def test_what_does_not_fit_into_a_budget_leaves_room_for_what_does() -> None:
    now = known(verdict(pays="yes"))
    wanted = next_looks(replace(now, grid_plays_wanted=2), capacity=True)
    assert [look.criterion for look in wanted] == ["step times", "capacity", "accuracy"]


def test_what_is_cheap_is_asked_after_the_first_pair_and_before_speed_is_refined() -> None:
    cheap = (Look(criterion="canary", amount=36), Look(criterion="screen", amount=1))
    assert [*next_looks(early(0), capacity=True, cheap=cheap)] == [
        Look(criterion="speed", amount=FIRST)
    ]
    first = [*next_looks(early(FIRST), capacity=True, cheap=cheap)]
    assert first == [*cheap, Look(criterion="speed", amount=PAIRS[0])]
    assert next_of(known(verdict(word="avoid"))) is None
    assert "canary" not in [
        each.criterion for each in next_looks(known(verdict()), capacity=True, cheap=cheap)
    ]


def decision_of(each: ArmVerdict) -> Decision:
    found = known(each).decision
    assert found is not None
    return found


def test_questions_are_asked_at_the_lengths_that_the_advisor_wants() -> None:
    wants = Need(what="", step=Questions(lengths=(16384, 32768)))
    other = Need(what="", step=MorePairs(pairs=8))
    assert lengths(decision_of(replace(verdict(), needs=(other, wants)))) == (16384, 32768)
    assert lengths(decision_of(verdict())) == LENGTHS
    asked = decision_of(replace(verdict(), needs=(other, wants)))
    assert lengths(asked, asked=(16384, 65536)) == (16384,)
    assert lengths(asked, asked=(4096,)) == (4096,)


@pytest.mark.parametrize(
    ("change", "items", "asked"),
    [
        ((0.0, -0.045, 0.045), 300, True),
        ((-0.03, -0.06, 0.0), 300, True),  # at the margin, a little luck may still tell
        ((-0.03, -0.05, -0.01), 1160, False),
        ((-0.03, -0.09, 0.03), 160, True),  # few questions say little
        ((-0.01, -0.035, 0.015), 1160, True),
    ],
)
def test_questions_are_asked_while_the_last_look_may_tell(
    change: tuple[float, float, float], items: int, *, asked: bool
) -> None:
    value, low, high = change
    found = Estimate(value=value, low=low, high=high, n=items, unit="share", method="", level=0.991)
    safe = Leg(name="safe", state="unclear", reason="", estimate=found, margin=0.03)
    now = known(replace(verdict(pays="yes"), safe=safe), items=items)
    assert (next_of(now) is not None) is asked


def test_questions_that_the_reference_could_not_answer_are_not_asked_again() -> None:
    spoiled = verdict(pays="yes", safe="untested")
    assert next_of(known(spoiled)) == ("accuracy", ITEMS[0]), "nothing was asked yet"
    assert next_of(known(spoiled, items=ITEMS[0])) is None
    elsewhere = replace(spoiled, safe=replace(spoiled.safe, needs=(QUESTIONS,)))
    assert next_of(known(elsewhere, items=ITEMS[0])) == ("accuracy", ITEMS[1])
