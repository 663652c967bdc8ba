from pathlib import Path

from agentload.store.places import journal_folder, journalled_runs, journals


def test_journals_lie_beside_their_database_a_folder_a_run(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    assert (journals(database, "r1"), journalled_runs(database)) == ((), ())
    for run, leg in (("r1", "leg002"), ("r1", "leg001"), ("r0", "leg001")):
        journal_folder(database, run).mkdir(parents=True, exist_ok=True)
        (journal_folder(database, run) / f"{leg}.journal").touch()
    (tmp_path / "x.journal" / "empty").mkdir()
    assert journals(database, "r1") == (tmp_path / "x.journal/r1/leg001.journal", tmp_path / "x.journal/r1/leg002.journal")
    assert journalled_runs(database) == ("r0", "r1")
