"""Nights of one server in virtual time: what is
held against what, what is raised, what is deleted.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.store.database import reading
from agentload.store.places import journal_folder
from agentload.watch.by_hand import accept
from agentload.watch.judge import has_control
from agentload.watch.ledger import history, stored_alarms
from agentload.watch.trends import trends
from tests.watch.simulated import ARM, JOB, SHORT, Nights, nights, slower, unheard, upgraded

pytestmark = pytest.mark.slow


def kept(scene: Nights) -> list[str]:
    with reading(scene.database) as connection:
        return [
            run
            for (run,) in connection.execute("SELECT run_id FROM runs ORDER BY run_id").fetchall()
        ]


def test_a_run_that_our_own_machine_spoilt_does_not_become_the_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path)
    scene.marred = True
    first = scene.night()
    assert (first.execution.outcome, first.code) == ("void", 3)
    assert "of chunks came in one read with the one before" in (first.execution.detail.reason or "")
    scene.marred = False
    second, third = scene.night(), scene.night()
    assert (second.execution.outcome, second.execution.detail.reference) == ("done", None)
    assert third.execution.detail.reference == second.execution.run_id
    assert all(each.floor is not None for each in third.execution.detail.changes)


def test_a_machine_that_slept_through_three_firings_reports_them_and_runs_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path, job=replace(SHORT, control=False))
    scene.night()
    woken = scene.night(later=4)
    assert [each.outcome for each in history(scene.database, "nightly")] == [
        "done",
        "missed",
        "done",
    ]
    missed = woken.history[1]
    assert (missed.detail.missed, missed.detail.reason) == (3, "3 firings that nobody answered")
    assert woken.execution.due_ns == scene.now_ns
    assert [
        (each.kind, each.message, each.is_open) for each in stored_alarms(scene.database, "nightly")
    ] == [("failing schedule", "3 firings that nobody answered", False)]


def test_a_slower_version_is_one_alarm_that_names_it_until_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path, job=replace(JOB, keep_runs=4))
    for _ in range(11):
        assert scene.night().code == 0
    scene.arm = upgraded(slower(ARM, 0.08), "0.20.0")
    assert [scene.night().code for _ in range(3)] == [3, 3, 3]
    changed = scene.executed[11].execution
    (alarm,) = (
        each for each in stored_alarms(scene.database, "nightly") if each.kind == "regression"
    )
    assert (alarm.run_id, alarm.metric, alarm.suspects) == (
        changed.run_id,
        "prod: turn_ms",
        ("prod: version 0.19.1 → 0.20.0",),
    )

    past = history(scene.database, "nightly")
    found = trends("nightly", past, stored_alarms(scene.database, "nightly"))
    turn = next(each for each in found.series if each.metric == "turn_ms")
    assert [(each.run_id, each.suspects) for each in turn.change_points] == [
        (changed.run_id, alarm.suspects)
    ]
    assert turn.alarms == (alarm,)

    runs = [each.execution.run_id or "" for each in scene.executed]
    assert kept(scene) == sorted([runs[0], *runs[-4:]])
    assert [run for run in runs if journal_folder(scene.database, run).exists()] == [
        runs[0],
        *runs[-4:],
    ]

    closed = accept(
        scene.job, scene.database, run=None, note="0.20 is known to be slower", notice=unheard
    ).closed
    assert [each.kind for each in closed] == ["regression"]
    after = scene.night()
    assert (after.code, after.execution.detail.reference) == (0, runs[-1])
    assert not [each for each in after.alarms if each.is_open]


def test_what_equals_differ_by_is_measured_anew_beside_an_accepted_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path)
    first, second = scene.night(), scene.night()
    heard = list[str]()
    accept(scene.job, scene.database, run=None, note=None, notice=heard.append)
    assert heard == [
        (
            f"run {second.execution.run_id} has no A/A control: the next execution plays one, "
            "and may take twice the budget"
        )
    ]
    third, fourth = scene.night(), scene.night()
    assert [
        has_control(scene.database, each.execution.run_id or "")
        for each in (first, second, third, fourth)
    ] == [True, False, True, False]
    assert {each.execution.detail.reference for each in (third, fourth)} == {
        second.execution.run_id
    }
    found = [
        {change.series: change.floor for change in each.execution.detail.changes}
        for each in (third, fourth)
    ]
    assert found[0] == found[1]
    assert None not in found[0].values()


def test_a_slowdown_that_is_over_closes_its_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path, job=JOB)
    for _ in range(11):
        scene.night()
    scene.arm = slower(ARM, 0.08)
    assert [scene.night().code for _ in range(2)] == [3, 3]
    scene.arm = ARM
    assert [scene.night().code for _ in range(2)] == [0, 0]
    spans = [
        (each.kind, each.run_id, each.closed_ns)
        for each in stored_alarms(scene.database, "nightly")
    ]
    assert spans == [
        ("regression", scene.executed[11].execution.run_id, scene.executed[13].execution.ended_ns)
    ]


def test_quiet_nights_of_one_server_raise_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path, job=JOB)
    assert [scene.night().code for _ in range(16)] == [0] * 16
    assert stored_alarms(scene.database, "nightly") == ()


def test_nights_on_a_pool_that_does_not_hold_their_windows_are_compared_window_by_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = nights(monkeypatch, tmp_path, job=replace(SHORT, control=False))
    scene.held_tokens = 1e9
    scene.night()
    scene.arm = slower(ARM, 0.3)
    slow = scene.night().execution
    assert slow.outcome == "done"
    (turns,) = (each for each in slow.detail.changes if each.metric == "turn_ms")
    value, low, high = turns.relative()
    assert low < value < high
    assert 0.1 < value < 0.4
