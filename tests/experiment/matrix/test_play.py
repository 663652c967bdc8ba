from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentload.errors import InterruptError, UsageError
from agentload.experiment.matrix.child import Ended
from agentload.experiment.matrix.ending import ended
from agentload.experiment.matrix.pace import Pace
from agentload.experiment.matrix.places import Places
from agentload.experiment.matrix.plan import traces_of
from agentload.experiment.matrix.play import GO_ON, LATE, NO_RUN, Outcome, play
from agentload.experiment.matrix.state import alone_in
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.rows import Row
from agentload.store.journal import Writer
from agentload.store.loader import load
from agentload.store.places import journal_folder
from tests.evidence import runs
from tests.experiment.matrix.files import matrix, parts_of

TOY = "models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100'}}\n"
FULL = TOY + "measure: {pairs: 2, accuracy: {items: 2, tasks: [needle]}}\n"
SWEPT = FULL.replace("accuracy:", "contexts: {lengths: 1k, pairs: 2}, accuracy:")
DONE = Ended(code=0, is_timed_out=False)


def written(database: Path, *rows: Row) -> Path:
    path = journal_folder(database, "r1") / "leg001.journal"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as journal:
        for row in rows:
            journal.append(row)
    return path


def measured(database: Path) -> None:
    """Begin the run of a model, as a replay does; that there is a database means that a pair is finished."""
    written(database, runs.run(), runs.leg(), *(runs.arm(name, place) for place, name in enumerate(runs.ARMS)))
    database.touch()


@dataclass
class Verbs:
    """Stands for the verbs: notes what would be run, and does what a verb leaves behind."""

    does: dict[str, Callable[[Path], Ended]] = field(default_factory=dict)
    typed: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, arguments: tuple[str, ...], **_: Any) -> Ended:
        self.typed.append(arguments)
        database = Path(arguments[1] if arguments[0] == "report" else arguments[arguments.index("--db") + 1])
        if arguments[0] in self.does:
            return self.does[arguments[0]](database)
        if arguments[0] == "replay":
            measured(database)
        return DONE

    @property
    def names(self) -> list[str]:
        return [arguments[0] for arguments in self.typed]


def played(text: str, folder: Path, verbs: Verbs, **options: Any) -> Outcome:
    made = matrix(text)
    return play(made, Places(folder / "out"), traces_of(made), verb=verbs, **options)


def failing(_: Path) -> Ended:
    return Ended(code=1, is_timed_out=False, error="error: it broke; hint: mend it")


def test_steps_are_run_in_order_and_all_behind_the_replay_join_its_run(tmp_path: Path) -> None:
    verbs = Verbs()
    outcome = played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"]
    assert [arguments[-2:] for arguments in verbs.typed] == [("--seed", "0"), ("--into", "r1"), ("--run", "r1")]
    assert {done.outcome for done in outcome.state.steps.values()} == {"done"}
    assert (tmp_path / "out/traces/rag.jsonl").exists()


def test_what_was_done_is_not_done_again_and_reports_are_written_anew(tmp_path: Path) -> None:
    played(FULL, tmp_path, Verbs())
    verbs = Verbs()
    played(FULL, tmp_path, verbs)
    assert verbs.names == ["report"]
    verbs = Verbs()
    played(FULL.replace("items: 2", "items: 4"), tmp_path, verbs)  # another question is another step
    assert verbs.names == ["eval", "report"]


def test_a_replay_that_was_stopped_goes_on_with_its_run(tmp_path: Path) -> None:
    def stopped(database: Path) -> Ended:
        measured(database)
        return Ended(code=130, is_timed_out=True)

    outcome = played(FULL, tmp_path, Verbs({"replay": stopped}))
    assert outcome.state.steps["toy/replay"].outcome == "stopped"
    assert outcome.state.steps["toy/accuracy"].outcome == "done"  # decided on what is there
    page, _ = ended(matrix(FULL), outcome, Places(tmp_path / "out"))
    assert ("replay", False) in [(each.what, each.is_failure) for each in page.missing]
    verbs = Verbs()
    played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "report"]
    assert verbs.typed[0][-2:] == ("--resume", "r1")


def test_a_sweep_that_was_cut_short_is_asked_for_the_pairs_that_are_left(tmp_path: Path) -> None:
    def half(database: Path) -> Ended:
        rows: Iterator[Row] = (
            row
            for place, name in enumerate(runs.ARMS)
            for row in (runs.block(name, 9, 900 + 200 * place), runs.call(name, 9, 901 + 200 * place, workload=CONTEXT_SWEEP))
        )
        database.unlink()
        load([written(database, *rows)], database)
        return Ended(code=130, is_timed_out=True)

    def begun(database: Path) -> Ended:
        load([written(database, runs.run(), runs.leg(), *(runs.arm(name, place) for place, name in enumerate(runs.ARMS)))], database)
        return DONE

    played(SWEPT, tmp_path, Verbs({"sweep": half, "replay": begun}))
    verbs = Verbs()
    played(SWEPT, tmp_path, verbs)
    assert verbs.names == ["sweep", "report"]
    assert verbs.typed[0][-4:] == ("--pairs", "1", "--into", "r1")


def test_what_fails_is_written_down_and_the_others_go_on(tmp_path: Path) -> None:
    verbs = Verbs({"eval": failing})
    outcome = played(FULL.replace("models: {", "models: {other: {endpoints: 'emulated:gpt-oss-20b-h100/bf16+fp8'}, "), tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"] * 2
    assert outcome.state.steps["toy/accuracy"].said == "error: it broke; hint: mend it"
    page, _ = ended(matrix(FULL), outcome, Places(tmp_path / "out"))
    assert [(each.model, each.what) for each in page.missing if each.what != "decision"] == [("other", "accuracy"), ("toy", "accuracy")]
    assert page.missing[0].is_failure


def test_without_a_finished_pair_there_is_nothing_to_join(tmp_path: Path) -> None:
    verbs = Verbs({"replay": failing})
    outcome = played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay"]
    assert {done.said for key, done in outcome.state.steps.items() if key != "toy/replay"} == {NO_RUN}


@pytest.mark.loopback
def test_an_arm_that_keeps_a_replay_from_beginning_is_left_out(tmp_path: Path) -> None:
    """Both are looked at after a replay that did not begin: nobody answers at either, so that nothing is left to try."""
    text = "models: {m: {endpoints: 'a=http://127.0.0.1:9/v1,b=http://127.0.0.1:9/v1'}}\n"
    told: list[str] = []
    verbs = Verbs({"replay": failing})
    outcome = played(text, tmp_path, verbs, told=told.append)
    assert verbs.names == ["replay", "replay"]
    assert [arguments[arguments.index("--endpoints") + 1] for arguments in verbs.typed] == [
        "a=http://127.0.0.1:9/v1,b=http://127.0.0.1:9/v1",
        "b=http://127.0.0.1:9/v1",
    ]
    assert outcome.parts[0].planned.arms == ()
    assert "Connection refused" in outcome.state.faults["m/a"].said
    assert any("m/b: left out" in line for line in told)
    page, _ = ended(matrix(text), outcome, Places(tmp_path / "out"))
    assert [(each.what, each.is_failure) for each in page.missing] == [("a", True), ("b", True)]


def test_an_arm_that_is_added_after_the_run_began_is_told_and_left_out(tmp_path: Path) -> None:
    played(TOY.replace("h100", "h100/bf16+fp8"), tmp_path, Verbs())
    outcome = played(TOY.replace("llama-3.1-8b-h100", "gpt-oss-20b-h100"), tmp_path, Verbs())
    assert outcome.parts[0].planned.arms == ("bf16", "fp8")
    assert [(each.config, each.why) for each in outcome.parts[0].left_out] == [("fp8-skip-sw", LATE)]


def test_a_signal_is_heeded_and_the_rest_is_left_for_the_next_time(tmp_path: Path) -> None:
    def interrupted(database: Path) -> Ended:
        measured(database)
        os.kill(os.getpid(), signal.SIGTERM)  # Ctrl-C may be ignored where tests run in the background
        return Ended(code=130, is_timed_out=False)

    verbs = Verbs({"replay": interrupted})
    with pytest.raises(InterruptError) as caught:
        played(FULL, tmp_path, verbs)
    assert (verbs.names, caught.value.hint) == (["replay"], GO_ON)
    verbs = Verbs()
    played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"]


def test_two_at_once_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with alone_in(tmp_path / "out"), pytest.raises(UsageError, match="another `agentload matrix`"):
        played(FULL, tmp_path, Verbs())


def test_a_budget_is_divided_by_what_the_steps_were_expected_to_take(tmp_path: Path) -> None:
    (part,) = parts_of(SWEPT, tmp_path)
    pace = Pace(minutes=10, is_done=lambda step: step.kind == "context")
    minutes = {step.kind: part.estimates[step.name].minutes for step in part.steps}
    whole = minutes["replay"] + minutes["accuracy"]  # what is done needs no more
    shares = [pace.until([part], step) - time.monotonic() for step in part.steps]
    assert shares[0] == pytest.approx(600 * minutes["replay"] / whole, abs=5)
    assert shares[2:] == [pytest.approx(600, abs=5), float("inf")]  # whatever happened, it is reported
    assert pace.minutes_left([part], part.steps[0]) == pytest.approx(whole)
    pace.spent(120, expected_minutes=1)  # twice as long as expected
    assert pace.minutes_left([part], part.steps[2]) == pytest.approx(2 * minutes["accuracy"])
