"""Questions in sequence: they end as soon as the answers
decide, and at once where the reference cannot answer.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.legs.questions import shares_by_length
from agentload.decision.answers import in_sequence, looks, question_order
from agentload.decision.forecast import likely
from agentload.decision.look import ITEMS
from agentload.model.rows import AnswerRow, ArmRow
from agentload.report.advise import advise
from agentload.run.audience import Audience
from agentload.run.place import StudyPlace
from agentload.run.questions import Question
from agentload.run.record import PlayedOn, run_row
from agentload.run.simulated_answers import answer_all, answers_of
from agentload.store import journal
from agentload.store.loader import load
from agentload.study.change import extend
from agentload.study.kinds import Ask
from agentload.study.parts import Live, Virtual
from agentload.study.stored import Notes
from agentload.verdict.policy import Setting

BROKEN = "llama-3.1-8b-h100-old-kernel"
STUDY = Ask(
    servers=Virtual(profile=BROKEN, arms=("bf16", "fp8")),
    tasks=("needle",),
    contexts=(131_072,),
    depths=1,
    until_settled=True,
)


def count(database: Path) -> int:
    with duckdb.connect(str(database), read_only=True) as connection:
        ((found,),) = connection.execute(
            "SELECT count(*) FROM answers WHERE arm = 'bf16'"
        ).fetchall()
    return int(found)


def test_a_large_loss_ends_at_the_first_look(tmp_path: Path) -> None:
    told: list[str] = []
    ended = in_sequence(
        STUDY, StudyPlace(database=tmp_path / "x.duckdb"), Audience(notice=told.append)
    )
    assert (ended.items, ended.ending) == (30, "settled")
    assert "fp8: worse" in ended.said
    assert (count(tmp_path / "x.duckdb"), len(told)) == (30, 1)


@pytest.mark.slow
def test_what_stays_open_is_looked_at_until_the_items_are_used_up(tmp_path: Path) -> None:
    sound = extend(STUDY, profile="llama-3.1-8b-h100", items=200)
    told: list[str] = []
    ended = in_sequence(
        sound, StudyPlace(database=tmp_path / "x.duckdb"), Audience(notice=told.append)
    )
    assert (ended.items, ended.ending) == (200, "open")
    assert [line.partition(" ")[0] for line in told] == ["30", "120", "160", "200"]
    assert count(tmp_path / "x.duckdb") == 200


def test_a_reference_that_cannot_answer_is_asked_thirty_items_and_no_more(tmp_path: Path) -> None:
    profile = tmp_path / "random.yaml"
    lines = Path("profiles/llama-3.1-8b-h100-old-kernel.yaml").read_text(encoding="utf-8")
    profile.write_text(
        lines.replace("percent: 91.2", "percent: 0.5").replace("percent: 13.0", "percent: 0.5"),
        encoding="utf-8",
    )
    ended = in_sequence(
        extend(STUDY, profile=str(profile)), StudyPlace(database=tmp_path / "x.duckdb"), Audience()
    )
    assert (ended.items, ended.ending) == (30, "hopeless")
    assert "these questions show no difference" in ended.said


def _level(database: Path, run: str, arm: str) -> float:
    decision = advise(database, run, setting=Setting()).decision
    (found,) = [each.safe.estimate for each in decision.server if each.arm == arm]
    assert found is not None
    return found.level


@pytest.mark.slow
@pytest.mark.parametrize("is_joined", [False, True])
def test_what_a_sequence_found_is_reported_at_the_level_of_its_looks(
    tmp_path: Path, *, is_joined: bool
) -> None:
    database, sound = (
        tmp_path / "x.duckdb",
        extend(STUDY, profile="llama-3.1-8b-h100", items=100, until_settled=False),
    )
    run = answer_all(answers_of(sound, StudyPlace(database=database))).run_id
    assert _level(database, run, "fp8") == pytest.approx(0.95)
    place = StudyPlace(database=database, into=run if is_joined else None)
    ended = in_sequence(extend(sound, items=120, until_settled=True), place, Audience())
    assert (ended.asked.run_id == run) == is_joined
    assert _level(database, ended.asked.run_id, "fp8") == pytest.approx(1 - 2 * 0.0045)


@pytest.mark.slow
@pytest.mark.loopback
def test_servers_are_looked_at_in_one_run_and_never_asked_twice(tmp_path: Path) -> None:
    servers = Live(endpoints="emulated:llama-3.1-8b-h100/bf16+fp8")
    study = Ask(
        servers=servers,
        tasks=("needle",),
        contexts=(1024,),
        depths=2,
        items=130,
        until_settled=True,
        per_context=4,
    )
    ended = in_sequence(study, StudyPlace(database=tmp_path / "x.duckdb"), Audience())
    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT count(*), count(DISTINCT request_id), count(DISTINCT item) FROM "
            "answers WHERE arm = 'bf16'"
        )
        asked, distinct, contexts = rows.fetchall()[0]
        runs = connection.execute("SELECT count(*) FROM runs").fetchall()
    assert (asked, distinct, runs) == (ended.items, ended.items, [(1,)])
    assert (ended.items, contexts) == (130, 34), (
        "120 behind 30 contexts, and ten behind four further ones: that none differed proves little"
    )


def test_looks_are_those_of_a_decision_up_to_the_items_that_may_be_asked() -> None:
    assert looks(STUDY) == ITEMS
    assert looks(extend(STUDY, items=500)) == (30, 120, 160, 220, 300, 400, 500)


@pytest.mark.slow
def test_the_forecast_says_that_a_small_loss_ends_undecided_in_a_third_of_the_runs() -> None:
    found = likely(ITEMS, margin=0.03, together=1)
    assert 0.55 < found["1 pp worse"].safe < 0.75
    assert found["10 pp worse"].worse > 0.99
    assert found["10 pp worse"].mean_items <= 300


@pytest.mark.slow
def test_answers_that_differ_together_are_expected_to_take_more_items() -> None:
    alone, shared = (
        likely(ITEMS, margin=0.03, together=together)["equally accurate"] for together in (1, 4)
    )
    assert shared.by(880, 1) < alone.by(880, 1) - 0.1
    assert shared.contexts < alone.contexts / 2


def _row(question: Question, *, right: bool, arm: str) -> AnswerRow:
    return AnswerRow(
        run_id="r",
        arm=arm,
        task=question.task,
        item=question.item,
        context_tokens=question.context,
        depth=question.depth,
        repetition=0,
        score=float(right),
        right=right,
        answer="",
        request_id=f"{arm}{question}",
    )


@pytest.mark.parametrize("is_shared", [False, True])
def test_fewer_questions_a_context_are_asked_where_those_so_far_differ_together(
    tmp_path: Path, *, is_shared: bool
) -> None:
    study = Ask(
        servers=STUDY.servers,
        tasks=("needle",),
        contexts=(4096,),
        depths=1,
        until_settled=True,
        per_context=4,
    )
    before = question_order(study, 120, StudyPlace(database=tmp_path / "none.duckdb"))
    # A fifth of the answers is lost: those of every fifth context, or one here and there.
    lost = {one for at, one in enumerate(before) if (at // 4 if is_shared else at * 7) % 5 == 0}
    place = _asked(tmp_path, study, before, lost=lost)
    after = question_order(study, 160, place)
    assert len(after) == len(set(after)) == 160
    assert set(before) <= set(after)
    added = Counter(one.behind for one in after if one not in set(before))
    assert max(added.values()) == (2 if is_shared else 4)


def test_as_many_questions_are_asked_as_a_look_names_however_lengths_share_them() -> None:
    study = Ask(servers=STUDY.servers, contexts=(4096, 8192, 16384), per_context=4)
    nowhere = StudyPlace(database=Path("none.duckdb"))
    shares = {4096: 0.377, 8192: 0.418, 16384: 0.205}
    asked = [len(question_order(study, each, nowhere, shares=shares)) for each in (30, 160, 2100)]
    assert asked == [30, 160, 2100]


def _asked(
    folder: Path, study: Ask, order: Sequence[Question], *, lost: Collection[Question] = ()
) -> StudyPlace:
    """Return where these questions were answered, by two arms of which one has some wrong."""
    place = StudyPlace(database=folder / "x.duckdb", into="r")
    with journal.Writer(folder / "leg001.journal") as writer:
        writer.append(
            run_row(
                "r",
                study,
                plan=None,
                trace_hash=None,
                created_ns=0,
                command="",
                notes=Notes(),
                on=PlayedOn(kind="simulated", model="m"),
            )
        )
        for position, arm in enumerate(("bf16", "fp8")):
            writer.append(ArmRow(run_id="r", arm=arm, position=position, url=None, model=None))
            for one in order:
                writer.append(_row(one, right=arm == "bf16" or one not in lost, arm=arm))
    load([folder / "leg001.journal"], place.database)
    return place


def test_while_no_answer_differs_as_many_questions_a_context_are_asked_as_were_planned(
    tmp_path: Path,
) -> None:
    study = extend(STUDY, per_context=4)
    before = question_order(study, 120, StudyPlace(database=tmp_path / "none.duckdb"))
    after = question_order(study, 160, _asked(tmp_path, study, before))
    added = Counter(one.behind for one in after if one not in set(before))
    assert len(after) == 160
    assert set(before) <= set(after)
    assert set(added.values()) == {4}


@given(items=st.sampled_from(ITEMS), weights=st.lists(st.integers(1, 50), min_size=3, max_size=3))
@settings(max_examples=30, deadline=None)
def test_each_length_is_asked_by_its_share_and_later_looks_hold_earlier_ones(
    items: int, weights: list[int]
) -> None:
    study = Ask(servers=STUDY.servers, contexts=(4096, 8192, 16_384), per_context=4)
    shares = {
        length: weight / sum(weights)
        for length, weight in zip(study.contexts, weights, strict=True)
    }
    place = StudyPlace(database=Path("none.duckdb"))
    order = question_order(study, items, place, shares=shares)
    asked = Counter(one.context for one in order)
    assert all(0 <= math.ceil(items * share) - asked[of] <= 2 for of, share in shares.items())
    assert len(order) == len(set(order)) == items
    assert set(order) <= set(question_order(study, 2 * items, place, shares=shares))
    first = Counter(one.context for one in order[: items // 2])
    assert all(abs(first[length] - items * share / 2) <= 2 for length, share in shares.items()), (
        "a part is a fair sample"
    )


def test_lengths_that_many_calls_have_and_that_are_read_quickly_are_asked_most() -> None:
    shares = shares_by_length((4096, 16_384, 65_536), [(1000, [15_000.0] * 90 + [60_000.0] * 10)])
    assert sum(shares.values()) == pytest.approx(1)
    assert shares[4096] == pytest.approx(0.1, abs=0.02), "no call is as short: the least share"
    assert shares[16_384] > 0.75
    even = shares_by_length((4096, 16_384), [(10, [4_000.0]), (10, [16_000.0])])
    assert even[4096] == pytest.approx(2 * even[16_384])
