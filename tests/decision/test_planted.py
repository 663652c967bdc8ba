"""Whole decisions on planted truths: each kind has its
right answer, and what grades them is right itself.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from agentload.emulator.answers import success_rate
from agentload.run.servers import arms_of
from tests.decision import planted as bed
from tests.decision import planting
from tests.decision.planted import Column, Row, Said, Word
from tests.decision.planting import ARMS, CANDIDATE, KINDS, REFERENCE, Known, Loss, Planted, planted

PLAIN = Planted(number=0, kind="faster", trace="chat", noise={"restart_sigma": 0.0})
SLO = replace(PLAIN, kind="slower, half the GPUs", slo={"ttft_ms": 2000.0}, agents=400)
NOBODY = replace(PLAIN, kind="an SLO nobody meets", slo={"tpot_ms": 5.0})
TWINS = replace(PLAIN, kind="twins", is_twin=True)
KNOWN = Known(
    change=-0.2,
    change_to={str(band): 0.2 if band < 32_000 else -0.2 for band in planting.BANDS},
    carries=None,
    points=0.0,
    lost_from=None,
)
SAID = Said(
    word="use",
    headline="use candidate",
    because="",
    pays="yes",
    reach=None,
    timed=112_000,
    asked=112_000,
    ending="decided",
    minutes=20.0,
    cpu_s=5.0,
)


def known(
    change: float = -0.2,
    *,
    points: float = 0.0,
    lost_from: int | None = None,
    carries: tuple[int, int] | None = None,
) -> Known:
    by_arm = None if carries is None else dict(zip(ARMS, carries, strict=True))
    return replace(KNOWN, change=change, points=points, lost_from=lost_from, carries=by_arm)


def said(word: str, *, headline: str = "", reach: float | None = None) -> Said:
    return replace(SAID, word=word, headline=headline, reach=reach)


@pytest.mark.parametrize(
    ("deployment", "true", "answer", "grade"),
    [
        (PLAIN, known(-0.2), said("use"), "right"),
        (PLAIN, known(-0.2), said("test further"), "open"),
        (PLAIN, known(-0.2), said("avoid"), "wrong"),
        (PLAIN, known(-0.2), said("no difference"), "wrong"),
        (PLAIN, known(0.01), said("no difference"), "right"),
        (PLAIN, known(0.01), said("use"), "wrong"),
        (PLAIN, known(0.2), said("avoid"), "right"),
        (PLAIN, known(-0.2), said("refused"), "open"),
        # A verdict that names its range is judged within it.
        (PLAIN, known(-0.2), said("use", reach=112_000), "bounded"),
        (PLAIN, known(-0.2), said("use", reach=24_000), "wrong"),
        (PLAIN, known(-0.2), said("avoid", reach=24_000), "bounded"),
        (PLAIN, known(points=-7.0), said("use"), "wrong"),
        (PLAIN, known(points=-7.0), said("calibrate"), "right"),
        (PLAIN, known(points=-2.0, lost_from=100_000), said("use"), "wrong"),
        (PLAIN, known(points=-2.0, lost_from=100_000), said("broken"), "right"),
        (PLAIN, known(points=-2.0, lost_from=100_000), said("calibrate"), "wrong"),
        (PLAIN, known(points=-2.0, lost_from=100_000), said("use", reach=98_304), "bounded"),
        (PLAIN, known(points=-2.0, lost_from=100_000), said("use", reach=110_000), "wrong"),
        # By GPUs, where a service level and a peak are given.
        (SLO, known(0.1, carries=(7, 13)), said("use"), "right"),
        (SLO, known(0.1, carries=(7, 13)), said("avoid"), "wrong"),
        (SLO, known(-0.2, carries=(9, 0)), said("use"), "wrong"),
        (SLO, known(-0.2, carries=(9, 0)), said("avoid"), "right"),
        (SLO, known(-0.2, carries=(20, 21)), said("use"), "right"),
        (NOBODY, known(carries=(0, 0)), said("use"), "wrong"),
        (NOBODY, known(carries=(0, 0)), said("avoid"), "open"),
        (
            NOBODY,
            known(carries=(0, 0)),
            said("test further", headline="No arm meets tpot=5ms"),
            "right",
        ),
        (TWINS, known(0.0), said("no difference"), "right"),
        (
            TWINS,
            known(0.0),
            said("refused", headline="these two servers say they are the same"),
            "right",
        ),
        (TWINS, known(0.0), said("refused", headline="no such file"), "wrong"),
        (TWINS, known(0.0), said("use"), "wrong"),
    ],
)
def test_a_decision_is_graded_by_what_was_planted(
    deployment: Planted, true: Known, answer: Said, grade: Word
) -> None:
    assert Row(planted=deployment, known=true, said=answer).graded == grade


@pytest.mark.parametrize(
    ("answer", "overreaches"),
    [
        (SAID, False),
        (replace(SAID, timed=30_000), True),
        (replace(SAID, asked=30_000), True),
        (replace(SAID, asked=30_000, word="no difference"), False),
        (replace(SAID, timed=30_000, reach=30_000.0), False),
        (replace(SAID, timed=30_000, reach=64_000.0), True),
        (replace(SAID, timed=30_000, word="test further"), False),
        # Answers that are wrong somewhere are enough.
        (replace(SAID, timed=30_000, word="avoid", pays="yes"), False),
        (replace(SAID, timed=30_000, word="avoid", pays="no"), True),
    ],
)
def test_a_verdict_reaches_no_further_than_what_was_timed_and_asked(
    answer: Said, *, overreaches: bool
) -> None:
    assert Row(planted=PLAIN, known=KNOWN, said=answer).overreaches is overreaches


def test_what_one_start_added_is_told_apart_from_an_error() -> None:
    restless = replace(PLAIN, noise={"restart_sigma": 0.1})
    row = Row(planted=restless, known=known(0.0), said=said("use"))
    lucky = next(
        seed
        for seed in range(100)
        if replace(row, planted=replace(restless, seed=seed)).start < -0.1
    )
    unlucky = next(
        seed
        for seed in range(100)
        if replace(row, planted=replace(restless, seed=seed)).start > 0.1
    )
    assert replace(row, planted=replace(restless, seed=lucky)).graded == "by its start"
    assert replace(row, planted=replace(restless, seed=unlucky)).graded == "wrong"


def test_the_reach_of_a_document_is_that_of_its_verdict_on_the_candidate() -> None:
    verdicts = [{"arm": "other", "holds_to": 7}, {"arm": CANDIDATE, "holds_to": 30_000.0}]
    assert bed.reach({"decision": {"server": verdicts, "choice": {"holds_to": 96_000}}}) == 30_000
    assert (
        bed.reach(
            {
                "decision": {
                    "server": [{"arm": CANDIDATE, "holds_to": None}],
                    "choice": {"holds_to": 96_000},
                }
            }
        )
        == 96_000
    )
    assert bed.reach({"decision": {"server": [{"arm": CANDIDATE}], "choice": {}}}) is None


@pytest.mark.parametrize(
    "numbers", [range(1), pytest.param(range(1, 6), marks=pytest.mark.slow)], ids=["one", "others"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_plants_what_it_says(kind: str, numbers: range, tmp_path: Path) -> None:
    for number in numbers:
        deployment = planted(number, 1, kind=kind)
        servers, traces = deployment.place(tmp_path)
        arms = {arm.name: arm for arm in arms_of(servers.profile)}
        assert list(arms) == [REFERENCE, CANDIDATE]
        assert traces[0].path in (deployment.trace, str(tmp_path / f"{deployment.trace}.jsonl"))
        for context in (1_000, 20_000, 39_998, 40_000, 79_999, 100_000, 120_000):
            for depth in (0.125, 0.375, 0.625, 0.875):
                here = [
                    loss
                    for loss in deployment.losses
                    if loss.depth is None or loss.depth[0] <= depth <= loss.depth[1]
                ]
                lost = sum(replace(loss, depth=None).at(context) for loss in here)
                assert success_rate(arms[CANDIDATE], context, depth=depth) == pytest.approx(
                    1 - lost / 100
                )
                assert success_rate(arms[REFERENCE], context, depth=depth) == 1.0


def test_kinds_take_turns_and_equal_seeds_draw_equal_deployments() -> None:
    drawn = [planted(number, 27) for number in range(2 * len(KINDS))]
    assert [each.kind for each in drawn] == 2 * list(KINDS)
    assert drawn == [planted(number, 27) for number in range(2 * len(KINDS))]
    assert drawn != [planted(number, 28) for number in range(2 * len(KINDS))]


@pytest.mark.slow
def test_hours_of_a_load_tell_how_much_longer_turns_take() -> None:
    deployment = replace(
        PLAIN, trace="demo-chat", times=dict.fromkeys((*planting.ALL_STEPS, "batch8_ms"), 1.2)
    )
    turns = planting._timed(planting.hours(deployment, sessions=2, seconds=600.0))
    change = sum(turn.log_ratio for turn in turns) / len(turns)
    assert len(turns) > 100
    assert 0.17 < change < 0.21


@pytest.mark.slow
def test_an_interrupted_grading_continues_and_a_small_decision_is_graded(tmp_path: Path) -> None:
    faster = dict.fromkeys((*planting.ALL_STEPS, "batch8_ms"), 0.6)
    never = (Loss(low=2, high=200_000, points=100.0),)
    small = replace(PLAIN, trace="demo-chat", times=faster, losses=never, budget_s=240.0)
    into = tmp_path / "rows.jsonl"
    (row,) = bed.played([small], into=into)
    written = into.read_text(encoding="utf-8")
    into.write_text(f"{written}{written[:40]}", encoding="utf-8")
    assert bed.played([small], into=into) == [row]
    assert row.said.minutes > 0
    assert row.graded in ("right", "open")
    assert "1 deployments" in list(bed.rendered([row]))[-1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_truth_is_never_contradicted_nor_spoken_of_too_far(kind: str) -> None:
    number = list(KINDS).index(kind)
    (row,) = bed.played([planted(number, 27)])
    said = f"{row.said.word}: {row.said.headline}"
    assert not row.overreaches, said
    assert row.graded in ("right", "bounded", "open", "by its start"), said


def test_a_promise_is_kept_where_little_is_wrong_and_much_is_decided() -> None:
    right = Row(planted=PLAIN, known=KNOWN, said=SAID)
    wrong, still_open = (
        replace(right, said=said("avoid")),
        replace(right, said=said("test further")),
    )
    assert bed.is_kept(Column(rows=[right] * 60 + [wrong]))
    assert not bed.is_kept(Column(rows=[right] * 40 + [wrong]))
    assert bed.is_kept(Column(rows=[right] * 8 + [still_open] * 2))
    assert not bed.is_kept(Column(rows=[right] * 7 + [still_open] * 2))


def test_a_bounded_use_decides_over_the_full_range_only_of_an_arm_that_serves_no_more() -> None:
    bounded = Row(planted=PLAIN, known=KNOWN, said=said("use", reach=98_000))
    lost = replace(bounded, known=known(points=-2.0, lost_from=100_000))
    assert (bounded.is_decided, lost.is_decided) == (False, True)
    assert not replace(lost, said=said("use", reach=32_000)).is_decided


def test_losses_weigh_what_they_cover() -> None:
    rng = Random(1)
    depths = [KINDS["broken at one depth"](rng)["losses"][0].at(50_000) for _ in range(4)]
    assert depths == [25.0] * 4
