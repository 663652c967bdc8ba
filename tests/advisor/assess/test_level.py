"""Whether an arm meets the service level at all, which decides before anything else does."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.assess.level import service_levels
from advisor.decide import assess, decide
from advisor.evidence import Evidence
from advisor.loads import CapacityPoint
from advisor.policy import Policy, ServiceLimits
from advisor.verdict import LegState
from tests.advisor.cases import bare, compared, search
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
STRICT = ServiceLimits(ttft_ms=20.0, tpot_ms=2.0)
POLICY = Policy(slos=(STRICT,))


def alone(arm: str, within: int, turns: int = 4, *, tpot_ms: float = 7.2) -> CapacityPoint:
    """Return a trial of a single session."""
    return CapacityPoint(
        arm=arm,
        agents=1,
        turns=turns,
        within_slo=within,
        minutes=0.5,
        slo=STRICT,
        ttft_ms=15.0,
        tpot_ms=tpot_ms,
        turn_ms=900.0,
    )


def tried(bf16: int, fp8: int, *, effect: float = -0.2) -> Evidence:
    """Return two arms of which so many of four turns
    are within the level, in each of three sessions.
    """
    found = compared(effect=effect, noise=QUIET, items=400, discordance=0.02)
    return replace(found, alone=(*[alone("bf16", bf16)] * 3, *[alone("fp8", fp8, tpot_ms=3.0)] * 3))


@pytest.mark.parametrize(
    ("sessions", "state"),
    [
        ([], "untested"),
        ([(0, 0)] * 3, "untested"),
        ([(4, 4)] * 3, "yes"),
        ([(19, 20), (20, 20)], "yes"),
        ([(4, 4), (0, 1)], "unclear"),
        ([(1, 1)] * 3, "unclear"),
        ([(3, 4)] * 3, "unclear"),
        ([(2, 4)] * 3, "no"),
        ([(0, 1)] * 3, "no"),
        ([(0, 12), (0, 12)], "unclear"),
        ([(0, 12), (0, 12), (3, 4)], "unclear"),
        ([(0, 12), (0, 12), (0, 0)], "unclear"),
    ],
)
def test_an_arm_misses_a_level_that_the_typical_turn_of_three_sessions_misses(
    sessions: list[tuple[int, int]], state: LegState
) -> None:
    evidence = bare(alone=tuple(alone("bf16", *each) for each in sessions))
    found = {each.arm: each.state for each in service_levels(evidence, POLICY, ())}
    assert found == {"bf16": state, "fp8": "untested"}


def test_the_limit_that_is_missed_by_most_is_named_with_how_much() -> None:
    near = replace(alone("bf16", 0, tpot_ms=1.0), ttft_ms=25.0)
    (far, close) = service_levels(
        bare(alone=(alone("bf16", 0), replace(near, arm="fp8"))), POLICY, ()
    )
    assert far.reason == "TPOT p95 is 7.2 ms, 3.6 times the limit of 2 ms"
    assert close.reason == "TTFT p95 is 25 ms, 25% above the limit of 20 ms"
    assert far.limits == "ttft=20ms,tpot=2ms"


def test_without_a_session_alone_the_lightest_trials_of_a_search_name_the_limit() -> None:
    one = alone("bf16", 0, tpot_ms=3.0)
    many = replace(one, agents=8, tpot_ms=20.0)
    (found, _) = service_levels(bare(capacity=(many, one)), POLICY, ())
    assert found.reason == "TPOT p95 is 3 ms, 50% above the limit of 2 ms"


def test_trials_within_other_limits_say_nothing_of_these() -> None:
    other = replace(alone("bf16", 0), slo=ServiceLimits(ttft_ms=21.0, tpot_ms=2.0))
    assert service_levels(bare(alone=(other,)), POLICY, ())[0].state == "untested"
    assert service_levels(bare(alone=(other,)), Policy(), ()) == ()


def test_a_search_that_carries_agents_or_not_even_one_says_more_than_a_session_alone() -> None:
    carried = tuple(replace(each, slo=STRICT) for each in search("bf16", 12.0))
    none = tuple(replace(each, agents=1, within_slo=0, slo=STRICT) for each in carried)
    points = (*carried, *(replace(each, arm="fp8") for each in none))
    found = assess(bare(capacity=points, alone=(alone("bf16", 0),)), POLICY).service_levels
    assert [each.state for each in found] == ["yes", "no"]


def test_where_no_arm_meets_the_level_that_is_the_headline_whatever_is_faster() -> None:
    decision = decide(tried(0, 0), POLICY)
    assert decision.choice.headline == "no arm meets ttft=20ms,tpot=2ms, even with one session"
    (verdict,) = decision.server
    assert verdict.verdict == "avoid"
    assert verdict.reason.startswith(
        "It misses the service level: neither arm meets ttft=20ms,tpot=2ms even with one session "
        "(fp8: TPOT p95 is 3 ms, 50% above the limit of 2 ms, bf16: TPOT p95 is 7.2 ms, 3.6 times"
    )
    assert all(each.is_missed for each in decision.service_levels)


def test_where_one_arm_meets_the_level_that_decides_whatever_is_faster() -> None:
    slower, faster = (
        decide(tried(*met, effect=effect), POLICY)
        for met, effect in (((0, 4), 0.2), ((4, 0), -0.2))
    )
    assert slower.choice.headline in ("use fp8", "canary fp8, then roll out")
    assert slower.server[0].pays.reason.startswith(
        "fp8 meets ttft=20ms,tpot=2ms, and bf16 misses ttft=20ms,tpot=2ms even with one "
        "session (TPOT p95 is 7.2 ms"
    )
    assert faster.choice.headline == "stay on bf16: avoid fp8"
    assert faster.server[0].reason.startswith("It misses the service level: fp8 misses")
    assert "bf16 meets it; turn latency" in faster.server[0].reason


def test_a_level_that_is_not_known_to_be_missed_leaves_the_decision_to_what_decides() -> None:
    found = decide(tried(3, 4), replace(POLICY, decide_by="latency"))
    assert "turn latency" in found.server[0].pays.reason


def test_what_is_faster_outside_the_level_at_the_load_that_was_played_is_not_used() -> None:
    evidence = replace(compared(effect=-0.2, noise=QUIET, items=400, discordance=0.02))
    turns = typical_ms(evidence)
    within = Policy(slos=(ServiceLimits(turn_ms=100 * turns),), decide_by="latency")
    outside = Policy(slos=(ServiceLimits(turn_ms=turns / 100),), decide_by="latency")
    assert decide(evidence, within).choice.verdict == "use"
    decision = decide(evidence, outside)
    assert decision.choice.verdict == "test further"
    assert decision.choice.headline.startswith("no arm meets turn=")
    assert decision.choice.headline.endswith(" at the load that was played")
    assert all(each.is_missed for each in decision.service_levels)


def test_a_class_with_limits_of_its_own_does_not_miss_those_of_the_others() -> None:
    evidence = compared(effect=-0.2, noise=QUIET, items=400, discordance=0.02)
    strict = ServiceLimits(turn_ms=typical_ms(evidence) / 100)
    own = ServiceLimits(workload="chat", turn_ms=100 * typical_ms(evidence))
    shared, apart = (
        service_levels(evidence, Policy(slos=slos, decide_by="latency"), ())
        for slos in ((strict,), (strict, own))
    )
    assert [each.is_missed_as_played for each in shared] == [True, True]
    assert [each.is_missed_as_played for each in apart] == [False, False]


def typical_ms(evidence: Evidence) -> float:
    """Return about what a turn of the reference takes."""
    calls = evidence.calls("chat", "bf16")
    assert calls is not None
    return float(sorted(calls.turn_ms)[len(calls) // 2])
