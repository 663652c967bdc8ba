from pathlib import Path

from agentload.store.journal import Writer
from agentload.store.places import journal_folder, journalled_runs, journals
from tests.store.rows import ONE_OF_EACH


def test_journals_lie_beside_their_database_a_folder_a_run(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    assert (journals(database, "r1"), journalled_runs(database)) == ((), ())
    for run, leg in (("r1", "leg002"), ("r1", "leg001"), ("r0", "leg001")):
        journal_folder(database, run).mkdir(parents=True, exist_ok=True)
        (journal_folder(database, run) / f"{leg}.journal").write_bytes(b"of another version")
    (tmp_path / "x.journal" / "empty").mkdir()
    assert journals(database, "r1") == (
        tmp_path / "x.journal/r1/leg001.journal",
        tmp_path / "x.journal/r1/leg002.journal",
    )
    assert journalled_runs(database) == ("r0", "r1")


def test_a_journal_whose_writer_was_killed_before_its_first_row_is_none(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    path = journal_folder(database, "r1") / "leg001.journal"
    with Writer(path) as journal:
        assert (path.exists(), journals(database, "r1"), journalled_runs(database)) == (
            True,
            (),
            (),
        )
        path.with_name("leg002.journal").write_bytes(bytes(100))  # reserved, and nothing written
        assert journals(database, "r1") == ()
        journal.append(ONE_OF_EACH[0])
        journal.flush()
        assert (journals(database, "r1"), journalled_runs(database)) == ((path,), ("r1",))
