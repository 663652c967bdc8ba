from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from advisor.assess.speed import control_of, controls
from advisor.case import Case, Room
from advisor.decide import decide
from advisor.evidence import AaControl, Calls, WorkloadClass
from advisor.legs.capacity import pays_leg
from advisor.legs.speed import more_pairs, speed_leg
from advisor.policy import Policy
from advisor.statistics.resampling import noise_floor
from advisor.verdict import Leg, LegState, Need
from advisor.whole import assess
from tests.advisor.cases import SPREAD, bare, compared, observed
from tests.advisor.worlds import Noise, simulated_calls

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
WILD = Noise(call=0.1, wander=0.05, phi=0.5, block=0.08)


def _control(workload: str, noise: Noise, *, pairs: int = 12, seed: int = 1, effect: float = 0.0) -> AaControl:
    first, second = simulated_calls(np.random.default_rng(seed), pairs=pairs, effect=effect, noise=noise, swapped=False)
    return AaControl(workload=workload, first=first, second=second)


def _speed(case: Case) -> Leg:
    return speed_leg(case, "fp8", None).leg


def test_the_floor_of_the_mix_is_that_of_the_mix_and_not_of_its_wildest_class() -> None:
    classes = (WorkloadClass(name="rag", gpu_time_share=0.9), WorkloadClass(name="rare", gpu_time_share=0.1))
    evidence = bare(workloads=classes, aa=(_control("rag", QUIET), _control("rare", WILD, seed=2)))
    found = controls(evidence, (("rag", 0.9), ("rare", 0.1)), ("turn_ms",))
    floors = {name: noise_floor(spread) for (name, _), spread in found.items()}
    assert floors["rag"] < floors[None] < 0.25 * floors["rare"]
    without_own = control_of(found, "turn_ms", "chat")
    assert without_own is not None
    assert noise_floor(without_own) == floors["rare"]


def test_a_noisy_control_makes_no_arm_equal() -> None:
    evidence = compared(effect=-0.05, pairs=24, noise=QUIET, aa=(_control("chat", QUIET, effect=0.055),))
    leg = _speed(assess(evidence, Policy()))
    assert leg.state == "unclear"
    assert "the A/A control of 12 pairs cannot rule out" in leg.reason
    (need,) = leg.needs
    assert need.pairs is not None


def test_the_plan_is_for_the_control_as_well_as_for_the_arm() -> None:
    evidence = compared(effect=0.0, pairs=6, noise=QUIET)
    alone, with_control = (
        more_pairs(case, found)
        for case in (assess(evidence, Policy()), assess(replace(evidence, aa=(_control("chat", WILD, pairs=3),)), Policy()))
        if (found := case.speed("fp8", None)) is not None
    )
    assert (with_control.pairs or 0) > 2 * (alone.pairs or 0)


@pytest.mark.parametrize(("effect", "side", "state"), [(-0.06, "p_for", "yes"), (0.06, "p_against", "no")])
def test_a_difference_is_proven_at_half_of_alpha_on_its_side(effect: float, side: str, state: LegState) -> None:
    evidence = compared(effect=effect, pairs=12, noise=Noise())
    p = getattr(speed_leg(assess(evidence, Policy()), "fp8", None), side)
    assert p is not None
    assert 0 < p < 0.4
    just, short = (_speed(assess(evidence, Policy(alpha=2 * p * share))) for share in (1.001, 0.999))
    assert (just.state, short.state) == (state, "unclear")
    assert just.reason == short.reason.split(", but")[0]


def test_what_counts_as_a_change_is_the_policys_to_say() -> None:
    evidence = compared(effect=-0.11, pairs=24, noise=QUIET)
    leg = _speed(assess(evidence, Policy()))
    assert (leg.state, leg.margin) == ("yes", 0.03)
    assert leg.estimate is not None
    change = -leg.estimate.value
    assert 0.1 < change < 0.12
    states = [_speed(assess(evidence, Policy(min_change=least))).state for least in (0.9 * change, change, 1.1 * change)]
    assert states == ["yes", "unclear", "equal"]


def test_a_floor_above_what_the_policy_allows_leaves_nothing_to_find() -> None:
    evidence = compared(effect=-0.5, pairs=24, noise=QUIET, aa=(_control("chat", WILD, pairs=4),))
    case = assess(evidence, Policy())
    speed = case.speed("fp8", None)
    assert speed is not None
    floor = speed.change.floor
    assert floor is not None
    assert 0.06 < floor < 0.5
    allowed, barred = (_speed(assess(evidence, Policy(max_floor=floor * share))) for share in (1.001, 0.999))
    assert (allowed.state, allowed.margin) == ("yes", floor)
    assert barred.state == "unclear"
    assert f"but the A/A control of 4 pairs cannot rule out {floor:.1%} between equal sides" in barred.reason


def _lasting(calls: Calls, *, from_block: int) -> Calls:
    """Put one call of a minute in each pair, in blocks of its own."""
    pairs = np.unique(calls.pair, return_index=True)[1]
    columns = {name: getattr(calls, name)[pairs] for name in ("restart", "pair", "session", "turn", "ok", "ttft_ms", "tpot_ms")}
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
    return Leg(name="capacity" if name == "capacity" else "pays", state=state, reason=f"{name} {state}", needs=needs)


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
    leg = pays_leg(_leg("no"), _leg(capacity, "capacity"), where)
    assert leg.state == state
    assert [need.what for need in leg.needs] == (["long runs"] if state == "unclear" else [])


def test_an_open_question_says_what_would_answer_it() -> None:
    evidence = compared(effect=-0.03, pairs=8, workloads=(WorkloadClass(name="chat", gpu_time_share=1.0, context_tokens=SPREAD),))
    (server,) = decide(evidence).server
    assert server.verdict == "test further"
    assert [each.split(" (")[0] for each in server.flips[:2]] == [
        "use: turn time surely below -3.0 %",
        "avoid: turn time surely above +3.0 %",
    ]
