"""What the time of all turns does to a verdict on the typical turn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from advisor import results, words
from advisor.case import Case
from advisor.decide import assess
from advisor.estimate import Estimate
from advisor.evidence import Evidence
from advisor.legs.speed import START_MINUTES, restarts
from advisor.legs.whole_time import _kinds, _matched, _who, with_total
from advisor.policy import Policy
from advisor.verdict import Leg, LegState
from tests.advisor.cases import BF16, compared
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
WILD = Noise(call=0.1, wander=0.05, block=0.12)
CALM = {"pairs": 24, "noise": QUIET}


def typical(state: LegState) -> results.Tested:
    estimate = Estimate(value=0.0, low=-0.01, high=0.01, n=6, unit="relative", method="mean")
    return results.Tested(
        leg=Leg(name="pays", state=state, estimate=estimate, margin=0.03, reason="typical")
    )


def case_of(
    effect: float, policy: Policy | None = None, *, pairs: int = 24, noise: Noise = QUIET
) -> Case:
    return assess(compared(effect=effect, pairs=pairs, noise=noise), policy or Policy())


@pytest.mark.parametrize(
    ("state", "effect", "stays"),
    [
        ("yes", -0.10, True),
        ("yes", -0.01, False),
        ("yes", 0.10, False),
        ("no", 0.10, True),
        ("no", 0.05, True),
        ("no", 0.01, False),
        ("no", -0.10, False),
        ("equal", 0.0, True),
        ("equal", -0.05, False),
        ("equal", 0.05, False),
    ],
)
def test_a_total_that_surely_contradicts_leaves_speed_undecided(
    state: LegState,
    effect: float,
    stays: bool,  # noqa: FBT001  # a case
) -> None:
    before = typical(state)
    found = with_total(case_of(effect), "fp8", None, before)
    assert (found == before) == stays
    if not stays:
        assert (found.leg.state, found.leg.needs) == ("unclear", ())
        assert found.leg.reason.startswith(
            "the typical turn 0.0% [-1.0%, +1.0%], the time of all turns "
        )
        assert found.leg.reason.endswith(
            "set counts to turns or time in the policy to say which decides, or split"
        )


@pytest.mark.parametrize("state", ["yes", "equal"])
def test_a_total_that_is_not_known_well_enough_bears_nothing_out(state: LegState) -> None:
    found = with_total(case_of(0.0, pairs=8, noise=WILD), "fp8", None, typical(state))
    assert found.leg.state == "unclear"
    assert found.leg.reason.startswith("typical, but the time of all turns ")
    assert len(found.leg.needs) == 1


@pytest.mark.parametrize("counts", ["turns", "both"])
def test_what_is_open_or_counted_by_turns_is_left_as_it_is(counts: str) -> None:
    case = case_of(0.10, Policy(counts=counts))  # type: ignore[arg-type]  # of the table
    for state in ("unclear", "untested"):
        assert with_total(case, "fp8", None, typical(state)) == typical(state)
    assert (with_total(case, "fp8", None, typical("equal")) == typical("equal")) == (
        counts == "turns"
    )


@pytest.mark.parametrize(
    ("effect", "noise", "pairs", "state"),
    [
        (-0.10, QUIET, 24, "yes"),
        (0.10, QUIET, 24, "no"),
        (0.0, QUIET, 24, "equal"),
        (0.0, WILD, 8, "unclear"),
        (-0.045, QUIET, 24, "yes"),
    ],
)
def test_where_time_counts_the_total_alone_decides(
    effect: float, noise: Noise, pairs: int, state: str
) -> None:
    found = with_total(
        case_of(effect, Policy(counts="time"), pairs=pairs, noise=noise),
        "fp8",
        None,
        typical("unclear"),
    ).leg
    assert found.state == state
    assert found.estimate is not None
    assert (found.estimate.level, found.estimate.method.split(",")[0]) == (
        0.95,
        "log ratio of the time of all turns",
    )
    assert found.reason.startswith("time of all turns ")
    assert bool(found.needs) == (state == "unclear")


def _taking(evidence: Evidence, seconds: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Evidence:
    def timed(columns: object, arm: str) -> object:
        # calls
        return replace(columns, turn_ms=1e3 * seconds * (1.1 if arm == "fp8" else 1.0))  # type: ignore[type-var]

    return replace(
        evidence,
        observations=tuple(
            replace(each, calls=timed(each.calls, each.arm))  # type: ignore[arg-type]
            for each in evidence.observations
        ),
    )


def test_kinds_of_turn_are_the_shorter_and_the_longer_third() -> None:
    evidence = compared(**CALM, effect=0.0)  # type: ignore[arg-type]  # of the table
    calls = evidence.calls("chat", "bf16")
    assert calls is not None
    case = assess(
        _taking(evidence, np.tile([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], len(calls) // 6)), Policy()
    )
    matched = list(_matched(case, "fp8", None))
    classes, read, written, taken = _kinds(case, matched)
    assert [name for name, _ in classes] == ["chat"]
    assert [name.split()[0] for name, _ in (*read, *written)] == [
        "prompts",
        "prompts",
        "answers",
        "answers",
    ]
    (short, of_short), (long, of_long) = taken
    assert (short, long) == ("turns up to 2.8 s", "turns above 4.54 s")
    assert of_short is not None
    assert of_long is not None
    assert of_short.units == of_long.units == 24
    # A turn of exactly the end of a third is a short one:
    # all answers are of one length, and none is above it.
    assert [spread is None for _, spread in written] == [False, True]


def test_a_new_run_of_a_start_a_pair_costs_starts_of_all_arms() -> None:
    for arms in (2, 3):
        # of the table
        evidence = compared(**CALM, effect=0.0, restarts=1)  # type: ignore[arg-type]
        case = assess(
            replace(
                evidence,
                arms=(
                    *evidence.arms,
                    *(replace(BF16, name=f"other-{each}") for each in range(arms - 2)),
                ),
            ),
            Policy(),
        )
        speed = case.speed("fp8", None)
        assert speed is not None
        need = restarts(case, speed)
        assert need.pairs is not None
        assert need.minutes == pytest.approx(need.pairs * (speed.minutes_per_pair + 1.5 * arms))
        assert START_MINUTES == 1.5


def test_kinds_that_contradict_each_other_are_told_with_intervals_at_the_level_of_the_claim() -> (
    None
):
    case = case_of(-0.02)
    matched = list(_matched(case, "fp8", None))
    known = [
        (name, spread)
        for kinds in _kinds(case, matched)
        for name, spread in kinds
        if spread is not None
    ]
    for level in (0.025, 0.0005):
        said = {
            (
                f"{name} "
                f"{words.change(spread.relative(unit='relative', method='', level=1 - 2 * level))}"
            )
            for name, spread in known
        }
        assert set(_who(case, matched, level).replace("], ", "]; ").split("; ")) <= said
