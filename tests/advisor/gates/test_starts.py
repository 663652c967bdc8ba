"""What starts of servers may not do: fall into modes, or drift over a run."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from advisor.decide import decide
from advisor.evidence import Evidence
from advisor.gates import no_trend, one_mode
from advisor.policy import Policy
from advisor.statistics import paired
from advisor.statistics.starts import start_means
from advisor.steps import Again, MorePairs
from advisor.verdict import TIMES
from tests.advisor.cases import BF16, FP8, compared, observed
from tests.advisor.worlds import Noise, simulated_calls


def _started(*levels: float, seed: int = 1, noise: Noise | None = None) -> Evidence:
    """Return a run whose servers were started for every pair, the arm's as fast as *levels* say."""
    reference, arm = simulated_calls(
        np.random.default_rng(seed),
        pairs=len(levels),
        effect=0.0,
        noise=noise or Noise(),
        swapped=False,
        restarts=len(levels),
    )
    slow = np.exp(np.array(levels))[arm.pair]
    return compared(
        effect=0.0, observations=observed(reference, replace(arm, turn_ms=arm.turn_ms * slow))
    )


@pytest.mark.parametrize(
    ("levels", "status"),
    [
        ((0.0, 0.25, 0.0), "fail"),
        ((0.25, 0.0, 0.25, 0.0, 0.0, 0.25, 0.0, 0.0, 0.0, 0.0), "fail"),
        ((0.25, *(0.0,) * 9), "pass"),  # one of ten may be a storm
        ((0.0,) * 10, "pass"),
        (
            (0.0, 0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14, 0.16, 0.18),
            "pass",
        ),  # scatter, however wide
    ],
)
def test_starts_in_two_modes_are_found_and_a_wide_scatter_is_none(
    levels: tuple[float, ...], status: str
) -> None:
    (gate,) = one_mode.check(_started(*levels), Policy())
    assert gate.status == status
    if status == "fail":
        assert "find out what differs between these starts" in gate.message


def test_what_the_second_place_adds_is_no_mode() -> None:
    reference, arm = simulated_calls(
        np.random.default_rng(3),
        pairs=12,
        effect=0.0,
        noise=Noise(second=0.12),
        swapped=False,
        restarts=12,
    )
    (gate,) = one_mode.check(compared(effect=0.0, observations=observed(reference, arm)), Policy())
    assert gate.status == "pass"


def test_two_modes_stop_the_comparison_and_two_starts_show_none() -> None:
    (verdict,) = decide(_started(0.3, 0.3, 0.6, 0.3, 0.3, 0.6)).server
    assert (verdict.verdict, verdict.pays.state) == ("test further", "untested")
    assert verdict.pays.reason.startswith(
        "turn latency cannot be judged, because a validity check failed (one mode: 6 pairs "
        "of starts, "
    )
    assert list(one_mode.check(compared(effect=0.0, restarts=2), Policy())) == []


def test_a_flag_from_few_starts_asks_for_more_and_one_from_twenty_ends_it() -> None:
    few, many = (
        decide(_started(*levels)).server[0]
        for levels in ((0.3, 0.3, 0.6, 0.3, 0.3, 0.6), (0.3, 0.6) * 10)
    )
    assert [each.pays.state for each in (few, many)] == ["untested", "untested"]
    assert [need.step for need in (*few.pays.needs, *many.pays.needs)] == [
        MorePairs(pairs=20),
        Again(),
    ]
    (few_more,) = few.pays.needs
    assert few_more.pairs == 14


def test_looks_of_a_sequence_from_twenty_starts_on_share_the_level_of_a_trend() -> None:
    scatter, seen = np.random.default_rng(0).normal(0, 0.02, 20), set()
    for slope in np.linspace(0.0, 0.03, 13):
        evidence = _started(
            *(scatter + slope * np.log(1 + np.arange(20))),
            noise=Noise(call=0.0, wander=0.0, block=0.0),
        )
        once, planned = (
            list(no_trend.check(evidence, Policy(planned_looks=planned)))
            for planned in (False, True)
        )
        p = once[0].observed or 0.0 if once else 1.0
        assert bool(planned) == (p <= no_trend.LEVEL / no_trend.LOOKS)
        seen.add((bool(once), bool(planned)))
    assert seen == {(False, False), (True, False), (True, True)}


@pytest.mark.parametrize(
    ("here", "past", "status"),
    [
        ((100.0, 104.0, 98.0), (), "pass"),
        ((100.0, 140.0, 98.0), (), "fail"),
        ((140.0,), (100.0, 102.0, 97.0), "fail"),  # a start that is off the history
        ((101.0,), (100.0, 102.0, 97.0), "pass"),
    ],
)
def test_a_start_that_is_off_the_others_or_the_history_stops_the_comparison(
    here: tuple[float, ...], past: tuple[float, ...], status: str
) -> None:
    arm = replace(FP8, checks_ms=here, past_checks_ms=past, compile_cache=("hit", "missed", "hit"))
    evidence = compared(effect=0.0, arms=(BF16, arm), restarts=1)
    (gate,) = one_mode.check(evidence, Policy())
    assert (gate.arm, gate.status) == ("fp8", status)
    counted = (
        f"{len(here)} start{'s' * (len(here) > 1)}" + f" and {len(past)} of other runs" * bool(past)
    )
    assert gate.message.partition(":")[0] == counted
    if status == "fail":
        assert (
            "1 of 3 starts missed the compile cache; find out why, and start again" in gate.message
        )
        assert decide(evidence).server[0].verdict == "test further"


WARMING = tuple(0.12 * math.exp(-each / 3) for each in range(12))


@pytest.mark.parametrize(
    ("levels", "fails"),
    [
        (WARMING, True),
        (tuple(-each for each in WARMING), True),
        (tuple(reversed(WARMING)), True),
        ((0.0, 0.03, 0.06, 0.09, 0.12, 0.15), True),
        ((0.0, 0.03, 0.06, 0.09, 0.12), False),  # five starts show no trend
        ((0.0,) * 12, False),
        ((0.05, 0.0) * 6, False),  # what scatters has no direction
    ],
)
def test_a_difference_that_moves_over_the_starts_is_none_to_decide_on(
    levels: tuple[float, ...],
    fails: bool,  # noqa: FBT001  # a case
) -> None:
    evidence = _started(*levels, noise=Noise(call=0.03, wander=0.01))
    found = list(no_trend.check(evidence, Policy()))
    assert [gate.status for gate in found] == ["fail"] * fails
    if fails:
        reference, arm = (evidence.calls("chat", name) for name in ("bf16", "fp8"))
        assert reference is not None
        assert arm is not None
        table = paired.pair_table(reference, arm, "turn_ms")
        assert table is not None
        means, place = start_means(paired.pairs_of(table)), np.log(1 + np.arange(len(levels)))
        # Two looks, from the first start and from the last, share the level.
        least = min(float(stats.pearsonr(place, each).pvalue) for each in (means, means[::-1]))
        assert found[0].observed == pytest.approx(2 * least)
        assert found[0].spoils == TIMES
        assert (found[0].observed or 0.0) <= no_trend.LEVEL
        verdict = decide(evidence).server[0]
        assert (verdict.verdict, verdict.pays.state) == ("test further", "untested")
        assert "in the first third of" in verdict.pays.reason


def test_a_trend_says_from_where_to_where_and_servers_that_were_started_once_have_none() -> None:
    (gate,) = no_trend.check(
        _started(*(0.1 * (each < 4) for each in range(12)), noise=Noise(call=0.01, wander=0.01)),
        Policy(),
    )
    first, last = (float(each.rstrip("%")) for each in gate.message.split() if each.endswith("%"))
    assert (first, last) == pytest.approx(
        (10.5, 0.0), abs=4.0
    )  # pairs scatter, and what their order adds is taken out
    reference, arm = simulated_calls(
        np.random.default_rng(1), pairs=12, effect=0.0, noise=Noise(), swapped=False, restarts=1
    )
    warm = replace(arm, turn_ms=arm.turn_ms * np.exp(np.array(WARMING))[arm.pair])
    assert (
        list(no_trend.check(compared(effect=0.0, observations=observed(reference, warm)), Policy()))
        == []
    )


def test_servers_without_noise_have_no_trend() -> None:
    reference, arm = simulated_calls(
        np.random.default_rng(1), pairs=12, effect=0.0, noise=Noise(), swapped=False, restarts=12
    )
    evidence = compared(
        effect=0.0, observations=observed(reference, replace(arm, turn_ms=1.1 * reference.turn_ms))
    )
    assert list(no_trend.check(evidence, Policy())) == []


@pytest.mark.slow
def test_runs_without_a_trend_are_seldom_said_to_have_one() -> None:
    assert (
        sum(
            bool(list(no_trend.check(_started(*(0.0,) * 8, seed=seed), Policy())))
            for seed in range(300)
        )
        <= 9
    )


def test_two_starts_cannot_say_which_of_them_is_off() -> None:
    evidence = compared(effect=0.0, arms=(BF16, replace(FP8, checks_ms=(100.0, 140.0))), restarts=1)
    assert list(one_mode.check(evidence, Policy())) == []


@pytest.mark.parametrize(
    ("means", "gap"),
    [
        ((0.0, 0.0, 0.1, 0.1), (0.0, 0)),  # a tenth is scatter still
        ((0.0, 0.0, 0.11, 0.11), (0.11, 2)),
        ((0.11, 0.0, 0.0, 0.0), (0.11, 1)),
        (
            (0.0, 0.05, 0.1, 0.15, 0.27, 0.32),
            (0.0, 0),
        ),  # either side scatters further than it lies from the other
    ],
)
def test_a_gap_is_more_than_a_tenth_and_wider_than_what_either_side_scatters(
    means: tuple[float, ...], gap: tuple[float, int]
) -> None:
    assert one_mode._gap(np.array(means)) == pytest.approx(gap)
