from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from agentload.errors import InterruptError, UsageError
from agentload.matrix import play
from agentload.matrix.child import Exit
from agentload.matrix.past import hold
from agentload.matrix.play import GO_ON, NO_RUN, StepPace
from agentload.study.kinds import Study
from tests.matrix.files import parts_of
from tests.matrix.verbs import Verbs, endpoints, failing, measured, paged, played

TOY = "models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100'}}\n"
FULL = TOY + "measure: {pairs: 2, sessions: 2, accuracy: {items: 2, tasks: [needle]}}\n"
TWO = FULL.replace(
    "models: {", "models: {other: {endpoints: 'emulated:gpt-oss-20b-h100/bf16+fp8'}, "
)
NOBODY = "models: {m: {endpoints: 'a=http://127.0.0.1:9/v1,b=http://127.0.0.1:10/v1'}}\n"


def test_steps_are_run_in_order_and_all_behind_the_replay_join_its_run(tmp_path: Path) -> None:
    verbs = Verbs()
    now = played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"]
    assert verbs.runs == [None, "r1", "r1"]
    assert {ended.outcome for ended in now[0].ends.values()} == {"done"}
    assert (tmp_path / "out/traces/rag.jsonl").exists()


def test_what_fails_is_written_down_and_the_others_go_on(tmp_path: Path) -> None:
    verbs = Verbs({"eval": failing})
    now = played(TWO, tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"] * 2
    assert now[1].ends["accuracy"].said == "error: it broke; hint: mend it"
    page = paged(TWO, now, tmp_path)
    assert [(each.model, each.what) for each in page.missing if each.what != "decision"] == [
        ("other", "accuracy"),
        ("toy", "accuracy"),
    ]
    assert page.missing[0].is_failure


def test_without_a_finished_pair_there_is_nothing_to_join(tmp_path: Path) -> None:
    verbs = Verbs({"replay": failing})
    now = played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay"]
    ends = now[0].ends
    assert {ended.said for name, ended in ends.items() if name != "replay"} == {NO_RUN}


@pytest.mark.loopback
def test_an_arm_that_keeps_a_replay_from_beginning_is_left_out(tmp_path: Path) -> None:
    """Both are looked at after a replay that did not begin:
    nobody answers at either, so that nothing is left to try.
    """
    told: list[str] = []
    verbs = Verbs({"replay": failing})
    now = played(NOBODY, tmp_path, verbs, told=told.append)
    arms = tmp_path / "out/m/endpoints.yaml"
    assert [endpoints(study) for study in verbs.studies] == [
        (str(arms), ("a", "b")),
        (str(arms), ("b",)),
    ]
    assert yaml.safe_load(arms.read_text()) == {"arms": {"b": {"url": "http://127.0.0.1:10/v1"}}}
    assert now[0].part.arms == ()
    assert "Connection refused" in now[0].faults["a"].said
    assert "m: a is left out: b is the reference" in told
    page = paged(NOBODY, now, tmp_path)
    assert [(each.what, each.is_failure) for each in page.missing] == [("a", True), ("b", True)]


@pytest.mark.loopback
def test_what_kept_a_run_from_beginning_is_tried_again_by_the_same_command(tmp_path: Path) -> None:
    played(NOBODY, tmp_path, Verbs({"replay": failing}))
    verbs = Verbs()
    now = played(NOBODY, tmp_path, verbs)
    assert verbs.names == ["replay", "report"]
    assert now[0].part.arms == ("a", "b")


@pytest.mark.loopback
def test_a_comparison_without_its_reference_has_failed(tmp_path: Path) -> None:
    """The run begins with what is left, and the arm that is
    not there is told of for as long as the file asks for it.
    """
    text = NOBODY.replace("a=", "x=http://127.0.0.1:11/v1,bf16=").replace("b=", "fp8=")

    def only_without_x(database: Path, study: Study) -> Exit:
        return (failing if "x" in endpoints(study)[1] else measured)(database, study)

    verbs = Verbs({"replay": only_without_x})
    # The log of a replay names the server that was started last: here the first that is looked at.
    log = tmp_path / "out/m/logs/replay/start-001/x.log"
    log.parent.mkdir(parents=True)
    log.touch()
    now = played(text, tmp_path, verbs)
    assert now[0].part.arms == ("bf16", "fp8")
    for again in (now, played(text, tmp_path, Verbs())):
        missing = [
            (each.what, each.why, each.is_failure) for each in paged(text, again, tmp_path).missing
        ]
        assert ("comparison with x", "x is left out: bf16 is the reference", True) in missing
        assert any(what == "x" and "Connection refused" in why for what, why, _ in missing)
    gone = text.replace("x=http://127.0.0.1:11/v1,", "")
    assert [
        each.what for each in paged(gone, played(gone, tmp_path, Verbs()), tmp_path).missing
    ] == ["decision"]


def test_a_signal_is_heeded_and_the_rest_is_left_for_the_next_time(tmp_path: Path) -> None:
    def interrupted(database: Path, study: Study) -> Exit:
        measured(database, study)
        os.kill(
            os.getpid(), signal.SIGTERM
        )  # Ctrl-C may be ignored where tests run in the background
        return Exit(code=130)

    verbs = Verbs({"replay": interrupted})
    with pytest.raises(InterruptError) as caught:
        played(FULL, tmp_path, verbs)
    assert (verbs.names, caught.value.hint) == (["replay"], GO_ON)
    verbs = Verbs()
    played(FULL, tmp_path, verbs)
    assert verbs.names == ["replay", "eval", "report"]


def test_two_at_once_in_one_folder_are_one_too_many(tmp_path: Path) -> None:
    with hold(tmp_path / "out"), pytest.raises(UsageError, match="another `agentload matrix`"):
        played(FULL, tmp_path, Verbs())


def test_one_model_alone_is_added_to_the_page_of_all_and_one_configuration_has_a_page_of_its_own(
    tmp_path: Path,
) -> None:
    first = paged(TWO, played(TWO, tmp_path, Verbs(), only="toy"), tmp_path)
    assert [(each.model, each.what, each.is_failure) for each in first.missing] == [
        ("other", "all of it", False),
        ("toy", "decision", True),  # nothing that these verbs leave behind decides anything
    ]
    second = paged(TWO, played(TWO, tmp_path, Verbs({"eval": failing}), only="other"), tmp_path)
    assert [(each.model, each.what) for each in second.missing] == [
        ("other", "accuracy"),
        ("other", "decision"),
        ("toy", "decision"),
    ]
    whole = (tmp_path / "out/matrix.md").read_text()
    paged(TWO, played(TWO, tmp_path, Verbs(), only="toy/fp8"), tmp_path)
    assert (tmp_path / "out/toy.fp8/matrix.md").exists()
    assert (tmp_path / "out/matrix.md").read_text() == whole


def test_a_budget_is_divided_by_what_the_steps_were_expected_to_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instants_s = iter([1_000.0, 1_200.0, 1_200.0])
    monkeypatch.setattr(play, "time", SimpleNamespace(monotonic=lambda: next(instants_s)))
    pace = StepPace(minutes=10)
    assert pace.until(1, 4) == 1_300
    assert pace.until(0, 0) == 1_600
    assert StepPace(minutes=None).until(1, 4) == float("inf")
    assert pace.minutes_left(4) == 4
    pace.spend(120, expected_minutes=1)  # twice as long as expected
    assert pace.minutes_left(4) == 8


@pytest.mark.parametrize("ends", [failing, lambda *_: Exit(code=130, is_timed_out=True)])
def test_what_ended_early_says_nothing_of_the_time_that_is_left(
    tmp_path: Path, ends: object
) -> None:
    """A replay that breaks at once would promise that all that remains takes no time either."""
    told: list[str] = []

    def begins_and_ends(database: Path, study: Study) -> Exit:
        measured(database, study)
        return ends(database, study)  # type: ignore[operator,no-any-return]  # one of the above

    text = FULL.replace("items: 2", "items: 4000")
    (part,) = parts_of(text, tmp_path)
    played(text, tmp_path, Verbs({"replay": begins_and_ends}), told=told.append)
    left = [line for line in told if "toy/accuracy on" in line]
    assert f"about {part.estimates['accuracy'].minutes:.0f} min left" in left[0]
