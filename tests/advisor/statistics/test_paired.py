from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from advisor.evidence import Calls
from advisor.statistics import paired, resampling
from advisor.statistics.paired import PairTable, same_turns
from advisor.statistics.spread import Spread
from tests.advisor.worlds import Noise, simulated_calls


def _change(reference: Calls, arm: Calls, *, scale: float = 0.0) -> Spread:
    table = paired.pair_table(reference, arm, "turn_ms")
    assert table is not None
    found = paired.change(table, scale=scale)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("noise", "pairs"),
    [
        pytest.param(Noise(), 6, id="plain"),
        *(
            pytest.param(noise, pairs, id=name, marks=pytest.mark.slow)
            for name, noise, pairs in (
                ("autocorrelated", Noise(phi=0.95, wander=0.1), 12),
                ("drift", Noise(drift=0.1), 12),
                ("heavy tail", Noise(stall_share=0.02, stall=1.5), 12),
                ("second place", Noise(second=0.05), 24),
                ("a start", Noise(restart=0.015), 6),
                ("a start of many pairs", Noise(restart=0.015), 24),
            )
        ),
    ],
)
def test_the_interval_covers_the_true_change_at_least_as_often_as_it_says(
    noise: Noise, pairs: int
) -> None:
    rng = np.random.default_rng(2)
    runs, covered = 150, 0
    for _ in range(runs):
        low, high = _change(
            *simulated_calls(rng, pairs=pairs, effect=-0.04, noise=noise, swapped=False),
            scale=0.0212,
        ).interval()
        covered += low <= -0.04 <= high
    assert covered / runs >= 0.93


def test_machines_that_were_swapped_cancel_and_do_not_widen_the_interval() -> None:
    rng = np.random.default_rng(3)
    plain = [
        _change(*simulated_calls(rng, pairs=12, effect=0.0, noise=Noise())).se for _ in range(30)
    ]
    swapped = [
        _change(*simulated_calls(rng, pairs=12, effect=0.0, noise=Noise(), machine_effect=0.05))
        for _ in range(30)
    ]
    assert np.mean([each.se for each in swapped]) < 1.25 * np.mean(plain)
    assert abs(float(np.mean([each.value for each in swapped]))) < 0.01


def test_machines_that_never_changed_places_are_drawn_once_however_often_servers_start_on_them() -> (
    None
):
    rng = np.random.default_rng(13)
    noise = Noise(call=0.02, wander=0.0, block=0.0)
    drawn = simulated_calls(
        rng, pairs=12, effect=0.0, noise=noise, machine_effect=0.04, swapped=False, restarts=12
    )
    apart = paired.pair_table(*drawn, "turn_ms")
    assert apart is not None
    assert paired.pairs_of(apart).starts == 1
    low, high = _change(*drawn, scale=0.0212).interval()
    assert low < 0.0 < high
    reference, arm = drawn
    for theirs, mine in (
        (0, 0),
        (1 * (reference.pair == 0), 1 * (arm.pair > 0)),
    ):  # on one machine, and exchanged for a pair
        other = paired.pair_table(
            replace(reference, machine=np.broadcast_to(theirs, len(reference))),
            replace(arm, machine=np.broadcast_to(mine, len(arm))),
            "turn_ms",
        )
        assert other is not None
        assert paired.pairs_of(other).starts == 12


def test_the_bootstrap_error_of_a_mean_is_the_closed_form() -> None:
    values = np.random.default_rng(4).normal(size=15)
    weights = resampling.draw_weights(15)
    found = resampling.spread(float(values.mean()), weights @ values / 15, units=15)
    assert found.se == pytest.approx(stats.sem(values), rel=0.06)
    assert found.interval() == pytest.approx(
        stats.ttest_1samp(values, 0).confidence_interval(0.95), abs=0.04
    )


def test_the_bootstrap_agrees_with_scipys_on_a_ratio() -> None:
    rng = np.random.default_rng(5)
    top, bottom = rng.gamma(20, size=24), rng.gamma(30, size=24)
    weights = resampling.draw_weights(24)
    ours = float(np.std(np.log(weights @ top / (weights @ bottom))))
    theirs = stats.bootstrap(
        (top, bottom),
        lambda a, b, axis: np.log(a.sum(axis) / b.sum(axis)),
        paired=True,
        vectorized=True,
        method="percentile",
        rng=1,
    ).standard_error
    assert ours == pytest.approx(theirs, rel=0.08)


def test_only_turns_that_ended_on_both_arms_are_compared() -> None:
    rng = np.random.default_rng(8)
    reference, arm = simulated_calls(rng, pairs=3, effect=0.0, noise=Noise())
    arm.ok[[0, 5]] = False
    reference.ok[7] = False
    left, right = same_turns(reference, arm)
    assert np.array_equal(left, right)
    assert sorted(set(range(len(arm))) - set(right.tolist())) == [0, 5, 7]


def test_rows_are_matched_by_pair_session_and_turn_whatever_their_order_or_the_size_of_their_ids() -> (
    None
):
    rng = np.random.default_rng(9)
    reference, arm = simulated_calls(
        rng, pairs=4, effect=-0.1, noise=Noise(call=0.0, wander=0.0, block=0.0)
    )
    order = rng.permutation(len(arm))[:-10]
    columns = {
        name: None if (column := getattr(arm, name)) is None else column[order]
        for name in Calls.__dataclass_fields__
        if name != "session"
    }
    huge = 2**61 // 7
    # columns of the same class
    shuffled = Calls(session=arm.session[order] * 101 + huge, **columns)  # type: ignore[arg-type]
    wide = Calls(
        session=reference.session * 101 + huge,
        **{
            name: getattr(reference, name)
            for name in Calls.__dataclass_fields__
            if name != "session"
        },
    )
    left, right = same_turns(wide, shuffled)
    assert left.size == len(order)
    assert np.allclose(np.log(shuffled.turn_ms[right] / wide.turn_ms[left]), -0.1)


@pytest.mark.parametrize(("against", "enters"), [(1, False), (2, True)])
# a case
def test_a_pair_that_no_side_led_counts_for_neither_place(against: int, enters: bool) -> None:  # noqa: FBT001
    order = [1] * 6 + [-1] * against + [0] * 2
    assert bool(paired.pairs_of(_table(order)).covariates) == enters
    assert bool(paired.pairs_of(_table([-each for each in order])).covariates) == enters


def _table(order: list[int], machine: list[int] | None = None) -> PairTable:
    zeros = np.zeros(len(order), dtype=np.int64)
    return PairTable(
        pair=np.arange(len(order)),
        value=np.linspace(-0.1, 0.1, len(order)),
        calls=zeros + 3,
        start=zeros,
        other_start=zeros,
        order=np.array(order),
        machine=zeros if machine is None else np.array(machine),
    )


@pytest.mark.parametrize(
    ("order", "machine", "covariates"),
    [
        ([1, -1] * 3, None, 1),
        ([1, 1, -1, -1, -1, -1], None, 1),
        ([1, -1, -1, -1, -1, -1], None, 0),  # one pair the other way tells nothing
        ([1, 1, 1, 1, 1, -1], None, 0),
        ([1, 1, -1, -1, -1], None, 0),  # three degrees of freedom would be left
        ([1, 1, -1, -1, 0, 0], None, 1),
        ([1, -1] * 4, [1, 1, 1, 1, -1, -1, -1, -1], 2),
        ([1, -1] * 3, [1, 1, 1, -1, -1, -1], 1),
        ([1, 1, 1, 1, -1, -1, -1, -1], [1, 1, 1, 1, -1, -1, -1, -1], 1),  # one and the same
    ],
)
def test_a_covariate_enters_where_it_was_both_ways_twice_and_leaves_pairs_enough(
    order: list[int], machine: list[int] | None, covariates: int
) -> None:
    found = paired.pairs_of(_table(order, machine)).covariates
    assert len(found) == covariates
    assert [each.tolist() for each in found[:1]] == (
        [] if not covariates else [order if machine is None else machine]
    )


def test_three_pairs_are_the_least_and_a_mix_takes_them_from_each_class() -> None:
    three, two = _table([1, -1, 1]), _table([1, -1])
    assert paired.change(three, scale=0.02) is not None
    assert paired.change(two, scale=0.02) is None
    assert paired.mixture([(two, 1.0), (None, 1.0)]) is None
    assert paired.mixture([(three, 0.0)]) is None
    later = replace(three, value=three.value + 0.4, pair=three.pair + 2)
    both = paired.mixture([(three, 1.0), (later, 3.0)])
    assert both is not None
    assert both.pair.tolist() == [0, 1, 2, 3, 4]
    assert both.calls.tolist() == [3, 3, 6, 3, 3]
    assert float(both.value.mean()) == pytest.approx(0.3)
    assert both.value[0] == pytest.approx(0.3 + 0.25 * -0.1 * 5 / 3)


def test_a_pair_is_the_mean_log_ratio_of_its_turns_with_the_place_and_the_starts_of_its_servers() -> (
    None
):
    reference, arm = simulated_calls(np.random.default_rng(16), pairs=4, effect=0.1, noise=Noise())
    ratio = np.log(arm.turn_ms / reference.turn_ms)
    table = paired.pair_table(replace(reference, machine=None), arm, "turn_ms")
    assert table is not None
    assert table.value == pytest.approx(
        [float(ratio[arm.pair == pair].mean()) for pair in range(4)]
    )
    assert table.machine.tolist() == [0] * 4
    assert table.order.tolist() == np.sign((arm.block - reference.block)[::30]).tolist()
    numbers = paired.session_numbers(replace(arm, session=arm.session * 1000))
    assert sorted(set(numbers.tolist())) == list(range(24))


def test_two_pairs_are_no_evidence() -> None:
    rng = np.random.default_rng(10)
    table = paired.pair_table(*simulated_calls(rng, pairs=2, effect=0.0, noise=Noise()), "turn_ms")
    assert table is not None
    assert paired.change(table, scale=0.0) is None


@pytest.mark.slow
def test_a_mix_is_the_weighted_mean_of_its_classes_and_covers_the_truth() -> None:
    rng = np.random.default_rng(12)
    runs, covered = 100, 0
    for _ in range(runs):
        tables = [
            paired.pair_table(*simulated_calls(rng, pairs=12, effect=e, noise=Noise()), "turn_ms")
            for e in (-0.1, 0.02)
        ]
        mixed = paired.mixture(zip(tables, (0.3, 0.1), strict=True))
        assert mixed is not None
        found = paired.change(mixed, scale=0.0)
        assert found is not None
        low, high = found.interval()
        covered += low <= -0.07 <= high
    assert covered / runs >= 0.93


def test_p_values_and_intervals_tell_the_same_story() -> None:
    found = Spread(value=-0.05, se=0.01, df=11, units=12, unit_name="block pairs")
    low, high = found.interval()
    assert found.p_below(high) == pytest.approx(0.025)
    assert found.p_above(low) == pytest.approx(0.025)


def test_ids_of_any_size_and_sign_name_one_turn_each() -> None:
    reference, arm = simulated_calls(np.random.default_rng(1), pairs=6, effect=0.0, noise=Noise())
    rows = same_turns(reference, arm)
    far = np.array([-(2**61), 2**61, 2**61 - 1, 7, -7, 0])
    named = [
        replace(each, session=far[each.session % 6] + each.session // 6, pair=each.pair * 3 + 1)
        for each in (reference, arm)
    ]
    shuffled = np.random.default_rng(2).permutation(len(arm))
    columns = {each.name: getattr(named[1], each.name) for each in fields(Calls)}
    taken: dict[str, Any] = {
        name: None if column is None else column[shuffled] for name, column in columns.items()
    }
    mixed_up = Calls(**taken)
    left, right = same_turns(named[0], mixed_up)
    assert sorted(zip(left.tolist(), shuffled[right].tolist(), strict=True)) == sorted(
        zip(*(each.tolist() for each in rows), strict=True)
    )


def test_calls_weigh_alike_within_a_pair_whichever_session_sent_them() -> None:
    rng = np.random.default_rng(3)
    reference, arm = simulated_calls(rng, pairs=3, effect=0.0, noise=Noise())
    first = reference.session % 6 == 0
    kept = [
        np.flatnonzero((reference.pair == pair) & side)[:count]
        for pair in range(3)
        for side, count in ((first, 1), (~first, 3))
    ]
    rows = np.concatenate(kept)
    twice = replace(arm, turn_ms=np.where(first, 2.0, 1.0) * reference.turn_ms)
    table = paired.pair_table(reference, twice, "turn_ms", rows=(rows, rows))
    assert table is not None
    assert table.calls.tolist() == [4, 4, 4]
    assert table.value == pytest.approx([np.log(2) / 4] * 3)
