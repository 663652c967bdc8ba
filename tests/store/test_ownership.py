"""In a folder of all users, such as /tmp, what another one laid out is not written into."""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentload.errors import StoreError
from agentload.store.database import writing
from agentload.store.journal import Writer
from agentload.store.ownership import open_locked
from agentload.store.places import journal_folder
from agentload.watch.ledger import lock


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like /tmp, whose content belongs to another user than we are."""
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    return tmp_path


def write_journal(database: Path) -> None:
    with Writer(journal_folder(database, "r1") / "leg001.journal"):
        pass


def write_database(database: Path) -> None:
    with writing(database):
        pass


def lock_job(database: Path) -> None:
    with lock(database, "nightly"):
        pass


def folder(path: Path) -> None:
    path.mkdir()


def link(path: Path) -> None:
    path.symlink_to(path.parent / "elsewhere")


@pytest.mark.parametrize(
    ("write", "name", "lay"),
    [
        (write_journal, "x.journal", folder),
        (write_journal, "x.journal", link),
        (write_database, "x.duckdb", link),
        (write_database, "x.duckdb", Path.touch),
        (write_database, "x.duckdb.wal", link),
        (lock_job, "x.journal", link),
    ],
)
def test_what_another_user_laid_out_in_a_folder_of_all_is_not_written_into(
    shared: Path, write: Callable[[Path], None], name: str, lay: Callable[[Path], None]
) -> None:
    lay(shared / name)
    with pytest.raises(StoreError, match=f"{name} belongs to another user") as caught:
        write(shared / "x.duckdb")
    assert caught.value.hint is not None
    assert "--db" in caught.value.hint
    assert [each.name for each in shared.iterdir()] == [name]
    assert not (shared / name).is_file() or (shared / name).stat().st_size == 0


def test_a_folder_of_our_own_or_one_that_is_shared_on_purpose_may_hold_what_others_own(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder(shared / "x.journal")
    with monkeypatch.context() as patched:
        patched.setenv("AGENTLOAD_SHARED", "1")
        write_journal(shared / "x.duckdb")
    shared.chmod(0o777)
    write_journal(shared / "x.duckdb")


def descriptors() -> int:
    """Return how many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_file_without_our_lock_is_left_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    held = open_locked(path)
    assert held is not None
    before = descriptors()
    assert open_locked(path) is None
    os.close(held)

    def without_locks(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", without_locks)
    with pytest.raises(OSError, match="no locks"):
        open_locked(path)
    assert descriptors() == before - 1
