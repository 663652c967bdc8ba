from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from agentload.matrix.child import Exit
from agentload.matrix.described import MatrixFolder
from agentload.matrix.parts import traces_of
from agentload.matrix.past import CHANGED, LATE
from agentload.matrix.play import ANSWERED, play
from agentload.model.rows import AnswerRow
from agentload.run.past import ADDED_FROM
from agentload.study.kinds import Replay, Study
from tests.evidence import runs
from tests.matrix.files import SERVED, matrix
from tests.matrix.verbs import (
    DONE,
    Verbs,
    failing,
    measured,
    paged,
    pair,
    pairs_of,
    played,
    written,
)

TOY = "models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100'}}\n"
FULL = TOY + "measure: {pairs: 2, sessions: 2, accuracy: {items: 2, tasks: [needle]}}\n"
SWEPT = FULL.replace("accuracy:", "contexts: {lengths: 1k, pairs: 2}, accuracy:")


class Killed(BaseException):
    """Nobody writes down how this ends."""


def again(text: str, folder: Path) -> list[str]:
    """What the same command would run now."""
    verbs = Verbs()
    played(text, folder, verbs)
    return verbs.names


def test_what_was_done_is_not_done_again_and_reports_are_written_anew(tmp_path: Path) -> None:
    played(FULL, tmp_path, Verbs())
    assert again(FULL, tmp_path) == ["report"]
    assert again(FULL.replace("items: 2", "items: 4"), tmp_path) == [
        "eval",
        "report",
    ]  # another question is another step
    assert again(
        FULL.replace("pairs: 2", "pairs: 3").replace("items: 2", "items: 4"), tmp_path
    ) == ["replay", "report"]


def test_a_run_goes_on_only_with_what_it_began_with(tmp_path: Path) -> None:
    """What a step's command names may change without a word of
    it: it would be told as done, with the figures of before.
    """
    played(SERVED, tmp_path, Verbs())
    text, verbs = (
        SERVED.replace("max-num-seqs: 32", "max-num-seqs: 64").replace("scale: 2", "scale: 1.5"),
        Verbs(),
    )
    now = played(text, tmp_path, verbs)
    assert verbs.names == ["report"]
    changes = [each for each in paged(text, now, tmp_path).missing if each.what == "changes"]
    assert [(each.why, each.is_failure) for each in changes] == [
        (f"{CHANGED} (workload rag, server of fp8): use another --out to measure it", True)
    ]
    assert again(SERVED, tmp_path) == ["report"]


def test_a_configuration_that_is_no_longer_wanted_is_left_alone(tmp_path: Path) -> None:
    played(SERVED, tmp_path, Verbs())
    assert again(SERVED.replace(", fp8: {max-num-seqs: 32}", ""), tmp_path) == ["report"]


def test_a_folder_that_was_moved_is_known_where_it_is_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(SERVED, tmp_path, Verbs())
    shutil.copytree(tmp_path / "out", tmp_path / "elsewhere")
    monkeypatch.chdir(tmp_path)
    for root in (Path("out"), tmp_path / "elsewhere", Path("elsewhere")):
        made, verbs = matrix(SERVED), Verbs()
        play(made, MatrixFolder(root), traces_of(made), verb=verbs, report=verbs.report)
        assert verbs.names == ["report"]


def test_a_model_whose_folder_is_deleted_is_measured_again(tmp_path: Path) -> None:
    played(FULL, tmp_path, Verbs())
    shutil.rmtree(tmp_path / "out/toy")
    assert again(FULL, tmp_path) == ["replay", "eval", "report"]


def test_a_database_that_is_missing_is_made_of_its_journals(tmp_path: Path) -> None:
    played(FULL, tmp_path, Verbs())
    (database := tmp_path / "out/toy/agentload.duckdb").unlink()
    assert again(FULL, tmp_path) == ["report"]
    assert database.exists()


def test_a_replay_that_was_stopped_goes_on_with_its_run(tmp_path: Path) -> None:
    def stopped(database: Path, study: Study) -> Exit:
        measured(database, study)
        return Exit(code=130, is_timed_out=True)

    now = played(FULL, tmp_path, Verbs({"replay": stopped}))
    # Decided on what is there.
    assert [now[0].ends[name].outcome for name in ("replay", "accuracy")] == ["stopped", "done"]
    assert ("replay", False) in [
        (each.what, each.is_failure) for each in paged(FULL, now, tmp_path).missing
    ]
    verbs = Verbs()
    played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "report"]
    assert (verbs.runs[0], isinstance(verbs.studies[0], Replay)) == ("r1", True)


def test_a_sweep_that_was_cut_short_is_asked_for_the_pairs_that_are_left(tmp_path: Path) -> None:
    def half(database: Path, _: Study) -> Exit:
        written(database, *pair(ADDED_FROM))
        return Exit(code=130, is_timed_out=True)

    played(SWEPT, tmp_path, Verbs({"sweep": half}))
    verbs = Verbs()
    played(SWEPT, tmp_path, verbs)
    assert verbs.names == ["sweep", "report"]
    assert (pairs_of(verbs.studies[0]), verbs.runs[0]) == (1, "r1")


@pytest.mark.slow
def test_a_sweep_of_other_lengths_is_another_sweep(tmp_path: Path) -> None:
    """The pairs of the first are no pairs of the
    second, neither when it begins nor when it goes on.
    """

    def swept(number: int) -> Verbs:
        def sweep(database: Path, _: Study) -> Exit:
            written(database, *pair(ADDED_FROM + number))
            if number == 1:
                raise Killed
            return Exit(code=130, is_timed_out=True)

        return Verbs({"sweep": sweep})

    long = SWEPT.replace("1k", "1k..4k")
    played(SWEPT.replace("pairs: 2}", "pairs: 1}"), tmp_path, swept(0))
    with pytest.raises(Killed):
        played(long, tmp_path, verbs := swept(1))
    assert (pairs_of(verbs.studies[0]), verbs.runs[0]) == (2, "r1")
    played(long, tmp_path, verbs := swept(2))
    assert (pairs_of(verbs.studies[0]), verbs.runs[0]) == (1, "r1")
    assert again(long, tmp_path) == ["report"]


def test_questions_that_were_answered_are_not_told_as_answered_with_more_thinking(
    tmp_path: Path,
) -> None:
    answers = [
        AnswerRow(
            run_id="r1",
            arm=arm,
            task="needle",
            item="i",
            context_tokens=4096,
            depth=0.5,
            repetition=0,
            score=1.0,
            right=True,
            answer="7",
        )
        for arm in runs.ARMS
    ]

    def asked(database: Path, _: Study) -> Exit:
        written(database, *answers)
        return DONE

    thinking = FULL.replace("items: 2", "items: 2, thinking: 512")
    played(FULL, tmp_path, Verbs({"eval": failing}))
    played(
        thinking, tmp_path, verbs := Verbs({"eval": asked})
    )  # nobody had answered: nothing to contradict
    assert verbs.names == ["eval", "report"]
    now = played(FULL, tmp_path, verbs := Verbs())
    assert verbs.names == ["report"]
    ended = now[0].ends["accuracy"]
    assert (ended.outcome, ended.said) == ("failed", ANSWERED)
    assert again(thinking, tmp_path) == ["eval", "report"]


def test_an_arm_that_is_added_after_the_run_began_is_told_and_left_out(tmp_path: Path) -> None:
    played(TOY.replace("h100", "h100/bf16+fp8"), tmp_path, Verbs())
    now = played(TOY.replace("llama-3.1-8b-h100", "gpt-oss-20b-h100"), tmp_path, Verbs())
    assert now[0].part.arms == ("bf16", "fp8")
    assert [(each.config, each.why) for each in now[0].part.left_out] == [("fp8-skip-sw", LATE)]
