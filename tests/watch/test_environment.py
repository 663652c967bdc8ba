"""Secrets of scheduled jobs come from a file that nobody else may read, and no message repeats them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentload.cli.watch.run import run
from agentload.errors import AgentloadError
from agentload.watch.environment import environment_file, read_environment
from tests.cli.watch.jobs import watch_file


def written(folder: Path, text: str, *, mode: int = 0o600) -> Path:
    path = environment_file(folder / "watch.yaml")
    path.write_text(text)
    path.chmod(mode)
    return path


def test_variables_are_read_as_a_shell_would(tmp_path: Path) -> None:
    path = written(tmp_path, "# ours\nKEY=sk-1=2\n\nexport HOOK='https://x/y z'\nEMPTY=\n")
    assert path.name == "watch.env"
    assert read_environment(path) == {"KEY": "sk-1=2", "HOOK": "https://x/y z", "EMPTY": ""}
    assert read_environment(tmp_path / "none.env") == {}


@pytest.mark.parametrize(
    ("text", "mode", "message"), [("KEY=x", 0o640, "others may read it"), ("A=1\nsk-secret", 0o600, ":2: expected NAME=")]
)
def test_a_file_that_is_not_right_is_refused_without_its_content(tmp_path: Path, text: str, mode: int, message: str) -> None:
    with pytest.raises(AgentloadError, match=message) as caught:
        read_environment(written(tmp_path, text, mode=mode))
    assert "sk-secret" not in caught.value.message


def test_what_the_caller_set_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "set")
    monkeypatch.delenv("AGENTLOAD_TEST_HOOK", raising=False)
    written(tmp_path, "OURS=file\nAGENTLOAD_TEST_HOOK=https://x\n")
    run("nightly", file=watch_file(tmp_path, schedule={"cron": "0 0 29 2 *"}), scheduled=True)
    assert (os.environ["OURS"], os.environ["AGENTLOAD_TEST_HOOK"]) == ("set", "https://x")
    monkeypatch.delenv("AGENTLOAD_TEST_HOOK")
