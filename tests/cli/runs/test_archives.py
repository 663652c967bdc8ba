"""`runs export` and `runs import`, from the database of one user to that of another."""

import json
import shutil
from pathlib import Path

import pytest

from agentload.cli.main import run
from agentload.errors import StoreError


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("simulated")
    servers = "--profile llama-3.1-8b-h100 --arms bf16,fp8"
    load = "--pairs 4 --sessions 4 --duration 20 --wait-cap user=2"
    database = str(folder / "a.duckdb")
    assert run(["simulate", "short_chat", *f"{servers} {load}".split(), "--db", database]) == 0
    return folder


@pytest.fixture
def here(simulated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working folder, with a database and journals of its own."""
    folder = tmp_path / "here"
    shutil.copytree(simulated, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("redact", [(), ("--redact",)])
def test_a_report_on_an_imported_run_is_the_report_on_the_run(
    here: Path, capsys: pytest.CaptureFixture[str], redact: tuple[str, ...]
) -> None:
    capsys.readouterr()
    assert run(["runs", "export", "--db", "a.duckdb", "-o", "run.tar.zst", *redact]) == 0
    line = capsys.readouterr().out
    assert line.startswith("run.tar.zst: ")
    assert line.rstrip().endswith("redacted" if redact else "MB")
    assert run(["runs", "import", "run.tar.zst", "--db", "b.duckdb"]) == 0
    said = capsys.readouterr().out
    assert "rows loaded into b.duckdb" in said
    decisions = []
    for database in ("a.duckdb", "b.duckdb"):
        assert run(["advise", database, "--json"]) == 0
        decisions.append(json.loads(capsys.readouterr().out.replace(database, "DB")))
    hosts = [each.pop("made")["hosts"] for each in decisions]
    assert decisions[0] == decisions[1]
    assert hosts == [["virtual"], ["virtual"]]
    # The command that `import` suggests runs as it is printed.
    suggested = said.rpartition("Next: agentload ")[2].split()
    assert run(suggested) == 0


def test_an_export_as_json_names_the_file_and_import_the_run(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert run(["runs", "export", "--db", "a.duckdb", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["file"] == f"{about['run_id']}.tar.zst"
    assert about["bytes"] == Path(about["file"]).stat().st_size
    assert run(["runs", "import", about["file"], "--db", "b.duckdb", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found == {key: about[key] for key in found}
    with pytest.raises(StoreError, match=f"has run '{about['run_id']}' already"):
        run(["runs", "import", about["file"], "--db", "b.duckdb"])
