"""Whole decisions are graded on deployments whose truth is known:
what counts as wrong, and what is kept of a run that was interrupted.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.statistics.paired import pair_table
from tests.decision.calibration import main
from tests.decision.deciding_drawn import DecidingDrawn
from tests.decision.deployments import TRUTHS, Drawn, Truth


@pytest.mark.parametrize(
    ("truth", "wrong"),
    [
        (Truth(gain=0.9, agents=None, points=0), {"use", "avoid", "calibrate"}),
        (Truth(gain=1.5, agents=None, points=0), {"avoid", "calibrate"}),
        (Truth(gain=2, agents=None, points=0), {"avoid", "calibrate", "no difference"}),
        (Truth(gain=-1.5, agents=None, points=0), {"use"}),
        (Truth(gain=-2, agents=None, points=0), {"use", "no difference"}),
        (Truth(gain=4, agents=None, points=-6), {"use"}),
        (Truth(gain=0, agents=2.0, points=-1), {"avoid", "calibrate", "no difference"}),
        (Truth(gain=-4, agents=2.0, points=0), {"avoid", "calibrate", "no difference"}),
        (Truth(gain=4, agents=0.75, points=0), {"use", "no difference"}),
        (Truth(gain=2, agents=1.0, points=0), {"avoid", "calibrate", "no difference"}),
        (Truth(gain=-2, agents=1.0, points=0), {"use", "no difference"}),
    ],
)
def test_a_decision_is_wrong_where_it_switches_for_too_little_or_to_a_harm_or_stays_where_much_is_gained(
    truth: Truth, wrong: set[str]
) -> None:
    said = ("use", "avoid", "calibrate", "no difference", "test further")
    assert {word for word in said if truth.is_wrong(word)} == wrong


@pytest.mark.parametrize(("gain", "word"), [(8.0, "use"), (-8.0, "avoid")])
def test_a_drawn_deployment_is_decided_by_what_the_product_asks(gain: float, word: str) -> None:
    truth = Truth(gain=gain, agents=None, points=0)
    drawn = Drawn(
        world="plain",
        starts="a start a pair",
        pair_sd=0.02,
        truth=truth,
        rng=np.random.default_rng(3),
    )
    deciding = DecidingDrawn(drawn)
    ended = deciding.play()
    assert deciding.decision is not None
    assert [each.verdict for each in deciding.decision.server] == [word]
    assert {each.stage.criterion for each in ended.asked} == {"checks", "canary", "speed"} | (
        {"accuracy"} if word == "use" else set()
    )


@pytest.mark.parametrize(
    "world", ["plain", "carry-over of one arm", "one arm ages", "rare slow blocks"]
)
def test_what_nothing_is_promised_of_is_drawn_as_its_world_says(world: str) -> None:
    truth = Truth(gain=0.0, agents=None, points=-6)
    table = pair_table(
        *Drawn(
            world=world, starts="one start", pair_sd=0.01, truth=truth, rng=np.random.default_rng(3)
        ).calls,
        "turn_ms",
    )
    assert table is not None
    by_place = table.value[table.order > 0].mean() - table.value[table.order < 0].mean()
    aged = table.value[16:].mean() - table.value[:4].mean()
    assert (abs(by_place) > 0.02, aged > 0.03, bool((table.value > 0.2).any())) == (
        world == "carry-over of one arm",
        world == "one arm ages",
        world == "rare slow blocks",
    )


def test_whole_contexts_lose_as_much_as_single_answers() -> None:
    lost: dict[str, list[float]] = {}
    for seed in range(40):
        truth = Truth(gain=0.0, agents=None, points=-6)
        made = Drawn(
            world="plain",
            starts="one start",
            pair_sd=0.02,
            truth=truth,
            rng=np.random.default_rng(seed),
        )
        reference, arm = made.answers
        lost.setdefault(made.losing, []).append(float(np.mean(arm.astype(float) - reference)))
    assert {*lost} == {"each", "whole contexts"}
    assert all(np.mean(each) == pytest.approx(-0.06, abs=0.01) for each in lost.values())


@pytest.mark.slow
def test_a_grading_that_was_interrupted_continues_with_what_is_missing(tmp_path: Path) -> None:
    into, told = tmp_path / "rows.jsonl", list[str]()
    assert len(TRUTHS) > 10
    main(["--number", "2", "--processes", "1", "--into", str(into)], told.append)
    first = into.read_text(encoding="utf-8")
    main(["--number", "3", "--processes", "1", "--into", str(into)], told.append)
    assert into.read_text(encoding="utf-8").startswith(first)
    assert first.count("\n") == 2
    assert any("3 deployments" in line for line in told)
