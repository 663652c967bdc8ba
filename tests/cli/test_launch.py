from __future__ import annotations

import socket
import sys
from pathlib import Path

import pytest

from agentload.cli import launch
from agentload.errors import LaunchError

pytestmark = pytest.mark.loopback


@pytest.fixture
def file(tmp_path: Path) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "e.yaml"
    path.write_text(
        f"arms:\n  a:\n    url: http://127.0.0.1:{port}/v1\n    launch: {sys.executable} -m http.server {port} --bind 127.0.0.1\n"
    )
    return path


def test_a_command_runs_while_the_servers_do_and_its_failure_is_told(file: Path, capfd: pytest.CaptureFixture[str]) -> None:
    launch.run(endpoints=file, command=["echo", "ran"], logs=file.parent)
    printed = capfd.readouterr()
    assert printed.out == "ran\n"
    assert printed.err.splitlines()[-1].startswith("a: stopped")
    with pytest.raises(LaunchError, match="'false' ended with code 1"):
        launch.run(endpoints=file, command=["false"], logs=file.parent)
