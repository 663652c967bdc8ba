"""What a search says of more agents on a GPU, and what is asked for where it says too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.assess.capacity import limits
from advisor.case import Case
from advisor.decide import assess
from advisor.estimate import Estimate
from advisor.evidence import Evidence, Telemetry, WorkloadClass
from advisor.legs.capacity import _equal_pools, _is_narrow, _measured, capacity_leg
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from advisor.steps import CapacitySearch
from tests.advisor.cases import BF16, FP8, bare, compared, search

Tried = dict[int, tuple[int, int] | str]
"""Turns within the service level and all turns of
each step, or the trouble that the server was in.
"""


def searched(
    bf16: Tried, fp8: Tried, *, workload: str | None = None, minutes: float = 1.0
) -> Evidence:
    def point(arm: str, agents: int, step: tuple[int, int] | str) -> CapacityPoint:
        within, turns = (100, 100) if isinstance(step, str) else step
        made = CapacityPoint(
            arm=arm,
            agents=agents,
            turns=turns,
            within_slo=within,
            minutes=minutes,
            pool_filled=True,
            workload=workload,
        )
        return replace(made, trouble=step) if isinstance(step, str) else made

    points = (
        point(arm, agents, step)
        for arm, steps in (("bf16", bf16), ("fp8", fp8))
        for agents, step in steps.items()
    )
    # What lives at once fills the pool of bf16: without a search nothing is settled.
    workloads = tuple(
        WorkloadClass(name=name, working_set_tokens=400_000.0) for name in ("chat", "code")
    )
    return bare(capacity=tuple(points), workloads=workloads)


def long_searched(bf16: float, fp8: float, *, workload: str | None = None) -> Evidence:
    return replace(
        searched({}, {}),
        capacity=(*search("bf16", bf16, workload=workload), *search("fp8", fp8, workload=workload)),
    )


@pytest.mark.parametrize(
    ("bf16", "fp8", "state"),
    [(40, 80, "yes"), (80, 40, "no"), (400, 404, "equal"), (40, 44, "unclear")],
)
def test_a_search_settles_what_its_interval_leaves_no_doubt_about(
    bf16: float, fp8: float, state: str
) -> None:
    leg = capacity_leg(assess(long_searched(bf16, fp8), Policy()), "fp8", None)
    assert leg.state == state
    ratio = leg.estimate
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.low <= fp8 / bf16 - 1 <= ratio.high
    assert ratio.high > ratio.low  # a search of some trials never knows it to the point


@pytest.mark.parametrize(("others", "level"), [(0, 0.95), (1, 0.975)])
def test_agents_are_known_at_the_level_that_a_claim_about_them_is_made_at(
    others: int, level: float
) -> None:
    evidence = long_searched(40, 80)
    evidence = replace(
        evidence,
        arms=(*evidence.arms, *(replace(FP8, name=f"other-{each}") for each in range(others))),
    )
    with_speed = replace(compared(effect=0.0), capacity=evidence.capacity, arms=evidence.arms)
    for each, shared in ((evidence, level), (with_speed, 1 - (1 - level) / 2)):
        case = assess(each, Policy())
        agents, ratio = case.capacity_of("fp8", None), capacity_leg(case, "fp8", None).estimate
        assert agents is not None
        assert agents.agents_per_gpu is not None
        assert ratio is not None
        assert agents.agents_per_gpu.level == ratio.level == pytest.approx(shared)
    widths = [
        (each.high or 0.0) - each.low
        for at in (0.9, 0.95, 0.99)
        for each in limits(
            {"fp8": search("fp8", 80), "bf16": search("bf16", 40)}, share=0.95, level=at
        ).values()
    ]
    assert widths[0] <= widths[2] <= widths[4] > widths[0]


@pytest.mark.parametrize(
    ("bf16", "fp8"),
    [
        # Few trials, and few draws of sessions: a ratio of two that may as well be three.
        (
            {4: (20, 20), 8: (60, 60), 16: (120, 120), 17: "preempted"},
            {4: (20, 20), 16: (120, 120), 32: (200, 200), 33: "preempted"},
        ),
        # One long run at six agents breaks bf16, and fp8 holds it.
        ({6: (400, 600)}, {6: (600, 600)}),
    ],
)
def test_a_ratio_that_is_not_known_within_a_quarter_is_no_claim(bf16: Tried, fp8: Tried) -> None:
    leg = capacity_leg(assess(searched(bf16, fp8), Policy()), "fp8", None)
    assert leg.state == "unclear"
    assert leg.needs


def test_which_arm_carries_more_is_told_by_a_wide_interval_that_lies_far_beyond_the_margin() -> (
    None
):
    many: Tried = {16: (200, 200), 32: (400, 400), 40: (390, 400), 48: (100, 400)}
    few: Tried = {2: (20, 20), 4: (40, 40), 6: (58, 60), 8: (20, 80)}
    leg, other = (
        capacity_leg(assess(searched(*tried), Policy()), "fp8", None)
        for tried in ((many, few), (few, many))
    )
    assert (leg.state, other.state) == ("no", "yes")
    assert leg.estimate is not None
    assert leg.estimate.low is not None
    assert leg.estimate.high is not None
    assert 1 + leg.estimate.high > (1 + leg.estimate.low) * 1.25**2


def test_a_reference_that_no_step_holds_is_told_with_its_bound() -> None:
    leg = capacity_leg(assess(searched({24: (400, 600)}, {24: (600, 600)}), Policy()), "fp8", None)
    assert leg.state == "unclear"
    assert leg.reason.startswith("24 agents per GPU for at most 2")
    assert leg.reason.endswith("(at least -28.7%))")
    (need,) = leg.needs
    assert need.what == "a search for capacity on bf16 and fp8, in addition to its one step"


def test_what_is_too_short_is_asked_for_longer_and_within_the_service_level() -> None:
    policy = Policy(slos=(ServiceLimits(ttft_ms=2000, tpot_ms=50, share=0.9),))
    short: Tried = {4: (20, 20), 8: (30, 30), 9: (0, 30)}
    (need,) = capacity_leg(assess(searched(short, short), policy), "fp8", None).needs
    assert (need.minutes, need.step) == (
        14 * 2 * 4,
        CapacitySearch(limits=policy.slos[0], trial_s=240.0),
    )


def test_a_pool_that_fills_slowly_asks_for_trials_that_fill_it() -> None:
    evidence = replace(
        searched({}, {}),
        server=(("bf16", Telemetry(fill_minutes=10.0)), ("fp8", Telemetry(fill_minutes=25.0))),
    )
    (need,) = capacity_leg(assess(evidence, Policy()), "fp8", None).needs
    assert need.step == CapacitySearch(limits=None, trial_s=3000.0)
    assert need.minutes == 14 * 2 * 50


def test_a_class_that_was_not_searched_alone_is_judged_by_the_servers_that_it_shares() -> None:
    case = assess(long_searched(40, 80), Policy())
    leg = capacity_leg(case, "fp8", "chat")
    assert (leg.state, leg.reason.endswith("with all classes together")) == ("yes", True)
    own = long_searched(40, 40, workload="chat")
    both = assess(replace(own, capacity=(*case.evidence.capacity, *own.capacity)), Policy())
    assert [capacity_leg(both, "fp8", workload).state for workload in ("chat", "code")] == [
        "equal",
        "yes",
    ]


def test_a_mix_of_one_class_is_that_class() -> None:
    evidence = long_searched(40, 80)
    case = assess(replace(evidence, workloads=evidence.workloads[:1]), Policy())
    assert capacity_leg(case, "fp8", "chat") == capacity_leg(case, "fp8", None)


@pytest.mark.parametrize(
    ("value", "low", "high", "narrow"),
    [
        (1.0, 0.6, 1.5, True),
        (1.0, 0.6, 1.51, False),
        (1.0, None, 1.5, False),
        (1.0, 0.6, None, False),
    ],
)
def test_a_ratio_is_narrow_where_its_ends_are_a_quarter_away_or_one_arm_carries_nobody(
    value: float,
    low: float | None,
    high: float | None,
    narrow: bool,  # noqa: FBT001  # a case
) -> None:
    def ratio(at: float) -> Estimate:
        return Estimate(value=at, low=low, high=high, n=3, unit="relative", method="ratio")

    assert _is_narrow(ratio(5.0), ratio(value)) == narrow
    assert _is_narrow(ratio(0.0), ratio(value))


@pytest.mark.parametrize(
    ("pool", "equal"),
    [(440_999.0, True), (399_001.0, True), (442_000.0, False), (398_000.0, False), (None, False)],
)
# a case
def test_pools_within_a_twentieth_hold_the_same_load(pool: float | None, equal: bool) -> None:  # noqa: FBT001
    case = assess(
        bare(arms=(replace(BF16, pool_tokens=420_000.0), replace(FP8, pool_tokens=pool))), Policy()
    )
    assert _equal_pools(case, "fp8") == equal
    twins = assess(bare(arms=(BF16, replace(BF16, name="fp8", pool_tokens=None))), Policy())
    assert _equal_pools(twins, "fp8")


@pytest.mark.parametrize(("high", "is_measure"), [(0.0, False), (1.0, True), (None, True)])
def test_a_reference_that_carries_nobody_at_all_is_no_measure(
    high: float | None,
    is_measure: bool,  # noqa: FBT001  # a case
) -> None:
    case = assess(long_searched(40, 80), Policy())
    known = tuple(
        each
        if each.arm == "fp8" or each.agents_per_gpu is None
        else replace(
            each,
            agents_per_gpu=replace(
                each.agents_per_gpu, value=0.0 if high == 0 else 1.0, low=0.0, high=high
            ),
        )
        for each in case.capacity
    )
    assert (_measured(replace(case, capacity=known), "fp8", None) is not None) == is_measure


def widened(case: Case, by: float, *, undivided: bool = False) -> Case:
    """Return a case in which fp8 carries between *by* times less and *by* times more."""
    found = tuple(
        replace(each, agents_per_gpu=replace(agents, low=agents.value / by, high=agents.value * by))
        if each.arm == "fp8" and (agents := each.agents_per_gpu) is not None
        else each
        for each in case.capacity
    )
    return replace(case, capacity_undivided=found) if undivided else replace(case, capacity=found)


def test_agents_are_equal_by_the_interval_that_shares_no_error_with_speed() -> None:
    evidence = long_searched(400, 404)
    case = assess(replace(compared(effect=0.0), capacity=evidence.capacity), Policy())
    found = capacity_leg(widened(case, 1.15), "fp8", None)
    assert found.state == "equal"
    assert found.estimate is not None
    assert found.estimate.level == pytest.approx(0.95), "the interval that is printed decides"
    assert capacity_leg(widened(case, 1.15, undivided=True), "fp8", None).state == "unclear"
    more = assess(replace(case.evidence, capacity=long_searched(40, 80).capacity), Policy())
    gained = capacity_leg(more, "fp8", None)
    assert gained.state == "yes"
    assert gained.estimate is not None
    assert gained.estimate.level == pytest.approx(0.975)
