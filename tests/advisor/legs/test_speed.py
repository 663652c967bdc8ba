from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from advisor.assess.speed import controls, controls_of, floor_of
from advisor.case import Case
from advisor.decide import assess, decide
from advisor.estimate import Estimate
from advisor.evidence import AaControl, Calls, Evidence, StartHistory, WorkloadClass
from advisor.legs.capacity import pays_leg
from advisor.legs.speed import MOST_PAIRS, by_prior, claim, more_pairs, restarts, speed_leg
from advisor.legs.whole_time import with_total
from advisor.policy import Policy
from advisor.results import Room
from advisor.statistics.planning import units_needed
from advisor.steps import MorePairs, Restarts
from advisor.verdict import Leg, LegState, Need
from tests.advisor.cases import BF16, FP8, SPREAD, bare, compared, observed, search
from tests.advisor.worlds import Noise, simulated_calls

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
WILD = Noise(call=0.1, wander=0.05, phi=0.5, block=0.08)


def _control(
    workload: str, noise: Noise, *, pairs: int = 12, seed: int = 1, effect: float = 0.0
) -> AaControl:
    first, second = simulated_calls(
        np.random.default_rng(seed), pairs=pairs, effect=effect, noise=noise, swapped=False
    )
    return AaControl(workload=workload, first=first, second=second)


def _speed(case: Case) -> Leg:
    return speed_leg(case, "fp8", None).leg


def test_the_control_of_the_mix_is_that_of_the_mix_and_not_of_its_wildest_class() -> None:
    classes = (
        WorkloadClass(name="rag", gpu_time_share=0.9),
        WorkloadClass(name="rare", gpu_time_share=0.1),
    )
    evidence = bare(workloads=classes, aa=(_control("rag", QUIET), _control("rare", WILD, seed=2)))
    found = controls(evidence, (("rag", 0.9), ("rare", 0.1)), ("turn_ms",), position=0.005)
    floors = {name: floor_of(each.spread) for (name, _), (each,) in found.items()}
    assert floors["rag"] < floors[None] < 0.25 * floors["rare"]
    assert controls_of(found, "turn_ms", "chat") == found[None, "turn_ms"]


def test_a_change_that_starts_may_explain_is_doubted_by_starts_that_scatter_twice_as_much() -> None:
    evidence = compared(effect=-0.1, noise=QUIET, restarts=1)
    usual, wide = (
        assess(evidence, Policy(start_spread=spread)).comparison("fp8", None)
        for spread in (0.015, 0.03)
    )
    assert usual is not None
    assert wide is not None
    doubted, twice = usual.doubted, wide.change.relative
    assert doubted is not None
    assert (doubted.low, doubted.high) == pytest.approx((twice.low, twice.high))


@pytest.mark.parametrize("noise", [QUIET, WILD], ids=["quiet", "wild"])
@pytest.mark.parametrize("pairs", [3, 12])
@pytest.mark.parametrize(("effect", "state"), [(-0.5, "yes"), (0.5, "no")])
def test_no_control_vetoes_an_effect_that_clears_it(
    noise: Noise, pairs: int, effect: float, state: LegState
) -> None:
    evidence = compared(
        effect=effect, pairs=6, noise=QUIET, aa=(_control("chat", noise, pairs=pairs),)
    )
    assert _speed(assess(evidence, Policy())).state == state


def _value(evidence: Evidence) -> float:
    estimate = _speed(assess(evidence, Policy())).estimate
    assert estimate is not None
    return math.log1p(estimate.value)


def test_a_control_on_one_server_takes_off_what_a_place_in_the_order_adds_as_far_as_it_is_known() -> (
    None
):
    evidence = compared(effect=-0.1, pairs=12, noise=QUIET)
    alone = _value(evidence)
    sure, vague = (
        _value(replace(evidence, aa=(_control("chat", noise, effect=0.01),)))
        for noise in (QUIET, WILD)
    )
    assert alone - sure == pytest.approx(0.01, abs=0.004)
    assert abs(alone - vague) < 0.005


@pytest.mark.parametrize("machines", [True, False])
# a case
def test_a_control_across_servers_informs_the_width_and_takes_nothing_off(machines: bool) -> None:  # noqa: FBT001
    evidence = compared(effect=-0.1, pairs=12, noise=QUIET, restarts=1)
    plain = _speed(assess(evidence, Policy())).estimate
    close, far = (
        _speed(
            assess(
                replace(
                    evidence,
                    aa=(
                        replace(
                            _control("chat", QUIET, effect=effect),
                            across_machines=machines,
                            across_starts=True,
                        ),
                    ),
                ),
                Policy(),
            )
        ).estimate
        for effect in (0.0, 0.05)
    )
    assert plain is not None
    assert close is not None
    assert far is not None
    assert close.value == pytest.approx(plain.value, abs=0.002) == far.value
    widths = [(each.high or 0.0) - (each.low or 0.0) for each in (close, plain, far)]
    assert widths == sorted(widths)


def test_where_a_start_may_add_more_than_the_margin_a_start_a_pair_is_asked_for_with_its_cost() -> (
    None
):
    (need,) = _speed(
        assess(compared(effect=-0.03, pairs=6, noise=QUIET, restarts=1), Policy())
    ).needs
    assert isinstance(need.step, Restarts)
    assert need.pairs == need.step.restarts >= 8
    assert need.minutes is not None
    assert need.minutes > need.pairs * 2 * 1.5
    known = compared(
        effect=-0.03,
        pairs=6,
        noise=QUIET,
        restarts=1,
        starts=StartHistory(spread=0.002, source="40 starts"),
    )
    (need,) = _speed(assess(known, Policy())).needs
    assert isinstance(need.step, MorePairs)


def test_what_history_says_of_starts_goes_before_what_the_policy_assumes() -> None:
    evidence = compared(effect=-0.05, pairs=24, noise=QUIET, restarts=1)
    calm = replace(evidence, starts=StartHistory(spread=0.002, source="40 starts in 12 runs"))
    assert [_speed(assess(each, Policy())).state for each in (evidence, calm)] == ["unclear", "yes"]
    assert _speed(assess(evidence, Policy(start_spread=0.002))).state == "yes"
    assert any("0.2% a start (40 starts in 12 runs)" in each for each in decide(calm).caveats)
    assert any("1.5% a start (assumed, not measured)" in each for each in decide(evidence).caveats)


def test_a_claim_that_the_prior_decided_is_a_canary_at_most() -> None:
    once = decide(compared(effect=-0.12, pairs=24, noise=QUIET, items=400, restarts=1))
    assert (once.choice.verdict, once.choice.canary) == ("use", True)
    assert any(isinstance(each.next_step, Restarts) for each in once.findings)
    each_pair = decide(compared(effect=-0.12, pairs=24, noise=QUIET, items=400))
    assert (each_pair.choice.verdict, each_pair.choice.canary) == ("use", False)


def test_every_later_look_needs_stronger_proof() -> None:
    evidence = compared(effect=-0.05, pairs=24, noise=QUIET)
    p = speed_leg(assess(evidence, Policy()), "fp8", None).p_for
    assert p is not None
    looks = [
        _speed(assess(replace(evidence, looks=look), Policy(alpha=2 * p * 1.001)))
        for look in (1, 2)
    ]
    assert [each.state for each in looks] == ["yes", "unclear"]
    first, second = (each.estimate for each in looks)
    assert first is not None
    assert second is not None
    assert second.level > first.level
    assert (first.high or 0.0) < (second.high or 0.0)


@pytest.mark.parametrize(
    ("effect", "side", "state"), [(-0.06, "p_for", "yes"), (0.06, "p_against", "no")]
)
def test_a_difference_is_proven_at_half_of_alpha_on_its_side(
    effect: float, side: str, state: LegState
) -> None:
    evidence = compared(effect=effect, pairs=12, noise=Noise())
    p = getattr(speed_leg(assess(evidence, Policy()), "fp8", None), side)
    assert p is not None
    assert 0 < p < 0.4
    just, short = (
        _speed(assess(evidence, Policy(alpha=2 * p * share))) for share in (1.001, 0.999)
    )
    assert (just.state, short.state) == (state, "unclear")


def test_what_counts_as_a_change_is_the_policys_to_say() -> None:
    evidence = compared(effect=-0.11, pairs=24, noise=QUIET)
    leg = _speed(assess(evidence, Policy()))
    assert (leg.state, leg.margin) == ("yes", 0.03)
    assert leg.estimate is not None
    change = -leg.estimate.value
    assert 0.1 < change < 0.12
    states = [
        _speed(assess(evidence, Policy(min_change=least))).state
        for least in (0.9 * change, change, 1.1 * change)
    ]
    assert states == ["yes", "unclear", "equal"]


@pytest.mark.parametrize("looks", [1, 3])
@pytest.mark.parametrize("others", [0, 3])
@pytest.mark.parametrize("searched", [False, True])
def test_pairs_are_planned_at_the_level_of_the_look_that_will_decide(
    looks: int,
    others: int,
    searched: bool,  # noqa: FBT001  # a case
) -> None:
    evidence = compared(effect=-0.03, pairs=12, noise=Noise(), kind="measured", looks=looks)
    evidence = replace(
        evidence, arms=(BF16, FP8, *(replace(FP8, name=f"other-{each}") for each in range(others)))
    )
    case = assess(
        replace(evidence, capacity=(*search("bf16", 20), *search("fp8", 20)) if searched else ()),
        Policy(),
    )
    speed, look = case.speed("fp8", None), assess(replace(case.evidence, looks=looks + 1), Policy())
    assert speed is not None
    level = min(0.0125, look.level("fp8"))
    need = more_pairs(case, speed)
    assert need.step == MorePairs(
        pairs=units_needed(speed.scatter.pair, math.log1p(0.03), level=level)
    )
    assert restarts(case, speed).pairs == max(
        8,
        units_needed(
            speed.scatter.pair,
            math.log1p(0.03),
            level=min(0.0125, 0.025 / (1 + others) / (2 if searched else 1)),
        ),
    )


def test_the_time_of_all_turns_knows_what_a_place_in_the_order_adds() -> None:
    evidence = compared(effect=-0.1, pairs=12, noise=QUIET)

    def total(evidence: Evidence) -> float:
        case = assess(evidence, Policy(counts="time"))
        estimate = with_total(case, "fp8", None, speed_leg(case, "fp8", None)).leg.estimate
        assert estimate is not None
        return math.log1p(estimate.value)

    assert total(evidence) - total(
        replace(evidence, aa=(_control("chat", QUIET, effect=0.01),))
    ) == pytest.approx(0.01, abs=0.004)


def _lasting(calls: Calls, *, from_block: int) -> Calls:
    """Put one call of a minute in each pair, in blocks of its own."""
    pairs = np.unique(calls.pair, return_index=True)[1]
    columns = {
        name: getattr(calls, name)[pairs]
        for name in ("restart", "pair", "session", "turn", "ok", "ttft_ms", "tpot_ms")
    }
    n = pairs.size
    return Calls(
        **columns,
        block=np.arange(n) * 10 + from_block,
        start_s=600.0 * np.arange(n, dtype=np.float64) + 60.0 * from_block,
        turn_ms=np.full(n, 60_000.0),
        prompt_tokens=np.full(n, 1000.0),
        output_tokens=np.full(n, 10.0),
    )


def test_one_more_pair_costs_the_time_of_every_arm_and_of_the_control() -> None:
    calls = simulated_calls(np.random.default_rng(1), pairs=4, effect=0.0, noise=QUIET)[0]
    reference, arm, again = (_lasting(calls, from_block=place) for place in range(3))
    control = AaControl(workload="chat", first=reference, second=again)
    case = assess(bare(observations=observed(reference, arm), aa=(control,)), Policy())
    speed = case.speed("fp8", "chat")
    assert speed is not None
    assert speed.minutes_per_pair == pytest.approx(3.0)


def _leg(state: LegState, name: str = "pays") -> Leg:
    needs = (Need(what="long runs"),) if name == "capacity" else ()
    return Leg(
        name="capacity" if name == "capacity" else "pays",
        state=state,
        reason=f"{name} {state}",
        needs=needs,
    )


@pytest.mark.parametrize(
    ("capacity", "room", "state"),
    [
        ("untested", "binds", "unclear"),
        ("unclear", "slack", "unclear"),
        ("untested", "unknown", "no"),  # nothing says that the pool matters
        ("equal", "slack", "no"),
        ("no", "binds", "no"),
    ],
)
def test_a_slower_arm_is_not_refused_while_a_pool_that_binds_is_untested(
    capacity: LegState, room: Literal["binds", "slack", "unknown"], state: LegState
) -> None:
    where = Room(workload=None, state=room, reason="", working_set_tokens=1)
    leg = pays_leg(_leg("no"), _leg(capacity, "capacity"), where, least_change=0.03)
    assert leg.state == state
    assert [need.what for need in leg.needs] == (["long runs"] if state == "unclear" else [])


def test_an_open_question_says_what_would_answer_it() -> None:
    evidence = compared(
        effect=-0.03,
        pairs=8,
        workloads=(WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=SPREAD),),
    )
    (server,) = decide(evidence).server
    assert server.verdict == "test further"
    assert [each.split(" (")[0] for each in server.flips[:2]] == [
        "the whole interval of turn latency below -3%",
        "the whole interval of turn latency above +3%",
    ]


@pytest.mark.parametrize(
    ("starts", "history", "doubted", "doubts"),
    [
        (1, False, -0.05, True),
        (2, False, -0.05, False),
        (1, True, -0.05, False),
        (1, True, 0.0, True),
        (2, False, 0.0, True),
        (2, False, None, False),
    ],
)
def test_a_claim_rests_on_the_prior_with_one_start_or_where_twice_as_much_would_undo_it(
    starts: int,
    history: bool,  # noqa: FBT001  # a case
    doubted: float | None,
    doubts: bool,  # noqa: FBT001  # a case
) -> None:
    case = assess(compared(effect=-0.1, pairs=6), Policy())
    if history:
        case = replace(
            case,
            evidence=replace(case.evidence, starts=StartHistory(spread=0.015, source="24 starts")),
        )
    speed = case.speed("fp8", None)
    assert speed is not None
    claimed = Estimate(value=-0.05, low=-0.06, high=-0.04, n=6, unit="relative", method="mean")
    other = None if doubted is None else replace(claimed, high=doubted - 0.01 if doubted else 0.0)
    speed = replace(
        speed, starts=starts, change=replace(speed.change, relative=claimed), doubted=other
    )
    assert by_prior(case, speed) == doubts
    unsettled = replace(claimed, high=0.01)
    assert not by_prior(case, replace(speed, change=replace(speed.change, relative=unsettled)))


@pytest.mark.parametrize(
    ("value", "low", "high", "state"),
    [
        (-0.05, -0.06, -0.0301, "yes"),
        (-0.05, -0.06, -0.03, "unclear"),
        (0.05, 0.0301, 0.06, "no"),
        (0.05, 0.03, 0.06, "unclear"),
        (0.0, -0.0599, 0.0599, "equal"),
        (0.0, -0.06, 0.0599, "unclear"),
        (0.0299, -0.05, 0.0599, "equal"),
        (0.03, -0.05, 0.0599, "unclear"),
        (-0.03, -0.0599, 0.05, "unclear"),
    ],
)
def test_a_claim_is_what_its_interval_leaves(
    value: float, low: float, high: float, state: LegState
) -> None:
    assert (
        claim(
            Estimate(value=value, low=low, high=high, n=6, unit="relative", method="mean"),
            margin=0.03,
        )
        == state
    )


def test_the_time_of_all_turns_is_printed_at_the_level_that_decides() -> None:
    case = assess(compared(effect=-0.1, pairs=24), Policy(counts="time"))
    estimate = with_total(case, "fp8", None, speed_leg(case, "fp8", None)).leg.estimate
    assert estimate is not None
    assert estimate.level == 0.95


@pytest.mark.parametrize(
    "step", [pytest.param(1, marks=pytest.mark.slow, id="every"), pytest.param(4, id="some")]
)
def test_where_starts_leave_hardly_any_room_a_start_for_each_pair_is_asked_for_and_not_thousands_of_pairs(
    step: int,
) -> None:
    evidence = compared(effect=-0.03, pairs=12, noise=QUIET, restarts=1)
    cases = [assess(evidence, Policy(start_spread=0.001 * each)) for each in range(1, 30, step)]
    speeds = [(case, case.speed("fp8", None)) for case in cases]
    needs = [more_pairs(case, speed) for case, speed in speeds if speed]
    assert {type(need.step).__name__ for need in needs} == {"MorePairs", "Restarts"}
    assert max(need.pairs or 0 for need in needs) <= MOST_PAIRS


def test_pairs_that_differ_too_much_from_each_other_are_not_asked_for_by_the_thousand() -> None:
    evidence = compared(
        effect=0.0, pairs=12, noise=Noise(call=0.1, wander=0.05, phi=0.5, block=0.4), restarts=1
    )
    found = decide(evidence)
    (need,) = {each for leg in found.server if leg.arm == "fp8" for each in leg.pays.needs}
    assert (need.pairs, need.calls, need.minutes) == (None, None, None)
    assert "over 1,000 such pairs" in need.what
    assert "min_change" in need.what
    told = next(
        each.message
        for each in found.findings
        if each.rule == "missing_evidence" and each.leg == "pays"
    )
    assert "over 1,000 such pairs" in told
