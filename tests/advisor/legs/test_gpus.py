"""What decides where the user said how many agents
there are and what a turn may take: GPUs, then latency.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.assess.capacity import fewer_gpus
from advisor.decide import assess, decide
from advisor.deployment import Deployment
from advisor.estimate import Estimate
from advisor.evidence import Evidence
from advisor.legs.capacity import capacity_leg
from advisor.legs.gpus import GPUS, change_of_gpus, gpus_leg, pays_by_gpus
from advisor.policy import Policy, ServiceLimits
from advisor.steps import CapacitySearch, MorePairs
from advisor.verdict import ArmVerdict, Leg, LegState, Need
from tests.advisor.cases import H100, compared, search
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
LEVEL = Policy(slos=(ServiceLimits(ttft_ms=60_000.0, tpot_ms=1_000.0),))
PEAK = 400


def deployed(
    *, effect: float, bf16: float | None = 8.0, fp8: float | None = 17.0, change: float = 0.0
) -> Evidence:
    """Return what was measured of two arms that carry so many agents a GPU, for a peak of 400."""
    flips = max(0.02, abs(change))
    found = compared(effect=effect, noise=QUIET, items=400, discordance=flips, change=change)
    points = (
        *(() if bf16 is None else search("bf16", bf16)),
        *(() if fp8 is None else search("fp8", fp8)),
    )
    place = Deployment(version="0.33.0", gpu=H100, machines=("a",), peak_agents=PEAK)
    return replace(found, capacity=points, deployment=place)


def verdict(evidence: Evidence, policy: Policy = LEVEL) -> ArmVerdict:
    """Return the verdict on the one challenger."""
    (found,) = decide(evidence, policy).server
    return found


def test_an_arm_that_is_slower_within_the_level_and_needs_half_the_gpus_is_used() -> None:
    found = verdict(deployed(effect=0.1))
    assert found.verdict == "use"
    assert found.pays.estimate is not None
    assert found.pays.estimate.method == GPUS
    assert " GPUs " in found.pays.reason
    assert "turn latency +" in found.pays.reason, "a fact, and no harm"
    assert "GPUs decide because --slo and --agents were given" in found.reason
    inequality = found.inequality
    assert inequality is not None
    assert inequality.left == "GPUs at the peak of the mix, fp8 / bf16"
    assert (inequality.relation, inequality.holds) == ("<", True)


def test_turns_whose_tail_is_longer_within_the_level_are_a_fact_as_well() -> None:
    unlimited = Policy(slos=(ServiceLimits(tpot_ms=1_000.0),))
    found = decide(deployed(effect=0.3), unlimited)
    tails = [each for each in found.findings if each.rule == "tail" and each.arm == "fp8"]
    assert found.server[0].verdict == "use"
    assert {each.asks_for for each in tails} == {None}
    assert tails


def test_worse_answers_are_not_bought_with_gpus() -> None:
    assert verdict(deployed(effect=0.1, change=-0.15)).verdict in ("avoid", "calibrate")


def test_an_arm_that_surely_needs_more_gpus_is_avoided_however_fast_it_is() -> None:
    found = verdict(deployed(effect=-0.2, bf16=17.0, fp8=8.0))
    assert found.verdict == "avoid"
    assert found.reason.startswith("It needs more GPUs: ")


def test_where_gpus_tie_latency_decides() -> None:
    few = Deployment(version="0.33.0", gpu=H100, machines=("a",), peak_agents=4)
    faster, slower = (
        verdict(replace(deployed(effect=effect), deployment=few)) for effect in (-0.2, 0.2)
    )
    assert (faster.verdict, slower.verdict) == ("use", "avoid")
    assert slower.reason.startswith("It is slower: ")
    assert faster.pays.reason.startswith("1 GPU for 1 on bf16 at 4 agents")


def test_nothing_is_used_while_the_gpus_that_decide_were_not_measured() -> None:
    found = verdict(deployed(effect=-0.2, bf16=None, fp8=None))
    assert found.verdict == "test further"
    assert found.pays.state == "unclear", "its latencies are valid"
    assert (
        found.flips[0]
        == "surely a GPU fewer at the peak, and 3% of them: use; that many more: avoid"
    )
    assert any(isinstance(need.step, CapacitySearch) for need in found.pays.needs)


@pytest.mark.parametrize(
    ("policy", "peak", "decides"),
    [
        (LEVEL, PEAK, "gpus"),
        (LEVEL, None, "latency"),
        (Policy(), PEAK, "latency"),
        (Policy(decide_by="gpus"), PEAK, "gpus"),
        (replace(LEVEL, decide_by="latency"), PEAK, "latency"),
        (replace(LEVEL, decide_by="gpus"), None, "latency"),
    ],
)
def test_gpus_decide_where_there_is_a_level_and_a_peak_or_the_user_says_so(
    policy: Policy, peak: int | None, decides: str
) -> None:
    place = Deployment(version="0.33.0", gpu=H100, machines=("a",), peak_agents=peak)
    case = assess(replace(deployed(effect=0.1), deployment=place), policy)
    assert case.decided_by == decides
    (found,) = decide(case.evidence, policy).server
    assert found.verdict == ("use" if decides == "gpus" else "avoid")


def at_peak(value: float, low: float | None, high: float | None) -> Estimate:
    """Return so many GPUs at the peak."""
    return Estimate(value=value, low=low, high=high, n=12, unit="GPUs", method="")


@pytest.mark.parametrize(
    ("theirs", "mine", "known"),
    [
        ((50, 43, 58), (24, 21, 28), (26, 17, 35)),
        ((1, 1, 1), (1, 1, 1), (0, 0, 0)),
        ((10, 10, 10), (9, 9, 9), (1, 1, 1)),
        ((50, 43, None), (24, 21, 28), (26, 17, None)),
        ((50, 43, 58), (24, 21, None), (26, None, 35)),
    ],
)
def test_what_an_arm_saves_has_the_interval_that_both_arms_give_together(
    theirs: tuple[float, float, float | None],
    mine: tuple[float, float, float | None],
    known: tuple[float, float | None, float | None],
) -> None:
    found = fewer_gpus(at_peak(*theirs), at_peak(*mine))
    assert found is not None
    assert (found.value, found.low, found.high) == known


@pytest.mark.parametrize(
    ("theirs", "mine", "value", "low", "high"),
    [
        ((50, 43, 58), (24, 21, 28), -0.52, -0.61, -0.4),
        ((10, 10, 10), (9, 9, 9), -0.1, -0.1, -0.1),
        # Nobody saw how many GPUs the other arm needs at most: its likely number is no
        # divisor, and what follows is a bound.
        ((50, 43, None), (24, 21, 28), -0.4, None, -0.4),
        ((50, 43, 58), (24, 21, None), -0.61, -0.61, None),
    ],
)
def test_the_change_of_gpus_follows_from_the_intervals_of_both_arms(
    theirs: tuple[float, float, float | None],
    mine: tuple[float, float, float | None],
    value: float,
    low: float | None,
    high: float | None,
) -> None:
    reference, arm = at_peak(*theirs), at_peak(*mine)
    fewer = fewer_gpus(reference, arm)
    assert fewer is not None
    found = change_of_gpus(reference, arm, fewer=fewer)
    rounded = [None if each is None else round(each, 2) for each in (found.low, found.high)]
    assert (round(found.value, 2), *rounded) == (value, low, high)


MORE = Need(what="", step=MorePairs(pairs=8))
TRIALS = Need(what="", step=CapacitySearch(limits=None, trial_s=60.0))


def leg(state: LegState, high: float | None = None) -> Leg:
    needs = (TRIALS,) if high is not None else (MORE,)
    made = Leg(name="pays", state=state, reason="said", needs=needs if state == "unclear" else ())
    if high is None:
        return made
    ends = Estimate(value=0.0, low=-0.3, high=high, n=12, unit="relative", method=GPUS)
    return replace(made, estimate=ends, margin=0.03)


@pytest.mark.parametrize(
    ("speed", "gpus", "state", "needs"),
    [
        ("yes", leg("unclear", 0.15), "yes", ()),
        ("yes", leg("unclear", 0.25), "unclear", (TRIALS,)),
        ("no", leg("unclear", 0.15), "unclear", (TRIALS,)),
        ("equal", leg("unclear", 0.15), "unclear", (TRIALS,)),
        ("unclear", leg("unclear", 0.15), "unclear", (MORE, TRIALS)),
        ("unclear", leg("unclear", 0.25), "unclear", (TRIALS,)),
        ("no", leg("yes", -0.1), "yes", ()),
        ("yes", leg("no", 0.5), "no", ()),
        ("unclear", leg("equal", 0.02), "unclear", (MORE,)),
    ],
)
def test_latency_breaks_a_tie_of_gpus_and_nothing_else(
    speed: LegState, gpus: Leg, state: LegState, needs: tuple[Need, ...]
) -> None:
    found = pays_by_gpus(leg(speed), gpus)
    assert (found.state, found.needs) == (state, needs)


def test_gpus_are_equal_by_the_interval_that_shares_no_error_with_latency() -> None:
    case = assess(deployed(effect=0.0, bf16=90.0, fp8=90.0), LEVEL)
    capacity = capacity_leg(case, "fp8", None)
    wide = tuple(
        each
        if each.gpus_at_peak is None
        else replace(each, gpus_at_peak=replace(each.gpus_at_peak, low=1.0, high=9.0))
        for each in case.capacity
    )
    found = gpus_leg(replace(case, capacity=wide), "fp8", None, capacity)
    assert (found.state, found.needs) == ("equal", ())
    assert found.estimate is not None
    assert found.estimate.level == pytest.approx(0.95), "the interval that is printed decides"
    assert (
        gpus_leg(replace(case, capacity_undivided=wide), "fp8", None, capacity).state == "unclear"
    )
