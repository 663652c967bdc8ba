import os
from contextlib import suppress
from pathlib import Path

import pytest

from agentload.errors import StoreError
from agentload.model.rows import Row
from agentload.store.journal import Writer
from agentload.ui import live
from agentload.ui.live import LiveRuns
from tests.ui.site import begun, call, leg_row, run_row


def database(folder: Path) -> Path:
    return folder / "bench.duckdb"


def test_a_run_is_running_while_its_journal_is_held(tmp_path: Path) -> None:
    seen = LiveRuns(database(tmp_path))
    assert seen.running() == ()
    writer = begun(database(tmp_path), "r1", call("r1", 1))
    assert seen.running() == ("r1",)
    assert seen.idle() == ()
    writer.close()
    assert (seen.running(), seen.progress(), seen.idle()) == ((), (), ("r1",))


def test_progress_grows_with_the_journal(tmp_path: Path) -> None:
    seen = LiveRuns(database(tmp_path))
    with begun(database(tmp_path), "r1", call("r1", 1)) as writer:
        (first,) = seen.progress()
        writer.append(call("r1", 2))
        writer.flush()
        (second,) = seen.progress()
    assert first.progress is not None
    assert second.progress is not None
    assert (first.is_current, first.progress.arms[0].done, second.progress.arms[0].done) == (
        True,
        1,
        2,
    )


def test_a_resumed_run_is_found_again(tmp_path: Path) -> None:
    seen = LiveRuns(database(tmp_path))
    begun(database(tmp_path), "r1").close()
    folder = tmp_path / "bench.journal" / "r1"
    os.utime(folder, ns=(0, 0))
    assert seen.running() == ()
    with Writer(folder / "leg002.journal"):
        seen._swept_s -= live.SWEEP_S
        assert seen.running() == ("r1",)


def test_looking_does_not_keep_a_writer_from_its_journal(tmp_path: Path) -> None:
    seen = LiveRuns(database(tmp_path))
    begun(database(tmp_path), "r1").close()
    for _ in range(20):
        seen.running()
        with Writer(tmp_path / "bench.journal" / "r1" / "leg001.journal"):
            pass


def test_a_journal_of_another_kind_is_told_as_a_run_without_progress(tmp_path: Path) -> None:
    with (
        suppress(StoreError),
        begun(database(tmp_path), "r1") as writer,
    ):  # which does not own what is written over its own
        writer.path.write_bytes(b"agentload-journal/1\n" + b"\xff" * 40)
        (found,) = LiveRuns(database(tmp_path)).progress()
    assert (found.run_id, found.progress) == ("r1", None)


def test_a_long_journal_is_read_over_several_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "PATIENCE_S", 0.0)
    monkeypatch.setattr(live, "CHUNK", 2)
    with begun(database(tmp_path), "r1", *(call("r1", number) for number in range(5))):
        seen = LiveRuns(database(tmp_path))
        looks = [seen.progress()[0] for _ in range(5)]
    assert [look.is_current for look in looks] == [False, False, False, True, True]
    assert looks[-1].progress is not None
    assert looks[-1].progress.arms[0].done == 5


def test_what_workers_wrote_is_read_behind_the_leg_that_it_belongs_to(tmp_path: Path) -> None:
    folder = tmp_path / "bench.journal" / "r1"
    written: dict[str, list[Row]] = {
        "leg001": [run_row("r1"), leg_row("r1", "stopped")],
        "leg001-1": [call("r1", number) for number in range(4)],
        "leg002-1": [call("r1", number, leg=2) for number in range(4, 6)],
        "answers003": [leg_row("r1", "running", leg=3)],
    }
    for name, rows in written.items():
        with Writer(folder / f"{name}.journal") as writer:
            for row in rows:
                writer.append(row)
    with Writer(folder / "leg002.journal") as writer:
        writer.append(leg_row("r1", "stopped", leg=2))
        writer.flush()
        (found,) = LiveRuns(database(tmp_path)).progress()
    assert found.progress is not None
    assert (found.progress.leg, found.progress.began_share, found.progress.share) == (
        3,
        0.375,
        0.375,
    )
    assert found.progress.arms[0].marks == ()
