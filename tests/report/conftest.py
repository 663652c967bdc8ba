"""A database with simulated runs, made once."""

import sys
from pathlib import Path

import pytest

from agentload.cli import main as cli
from agentload.report import advise


def simulated(database: Path, *options: str) -> str:
    """Simulate two small traces into a database and return the run; nothing is decided on it yet."""
    command = [
        "agentload",
        "simulate",
        "demo-rag",
        "demo-chat",
        "--profile",
        "gpt-oss-20b-h100",
        "--db",
        str(database),
        "--pairs",
        "3",
    ]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys, "argv", [*command, *options])
        patched.setattr(advise, "settle", lambda *_: None)  # each reader decides anyway
        assert cli.main() == 0
    folders = sorted(
        database.with_suffix(".journal").iterdir(), key=lambda folder: folder.stat().st_mtime_ns
    )
    return folders[-1].name


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str, str]:
    """Return a database, a run in it, the same on a
    machine without noise, and one of another load.
    """
    database = tmp_path_factory.mktemp("runs") / "sim.duckdb"
    return (
        database,
        simulated(database),
        simulated(database, "--no-noise"),
        simulated(database, "--speed", "2"),
    )
