from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from agentload.cli.servers import _run_to_its_end, launch
from agentload.errors import GateError, InterruptError, LaunchError

pytestmark = pytest.mark.loopback


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("agentload.endpoints.launch.LOOK_S", 0.02)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    path = tmp_path / "e.yaml"
    path.write_text(
        f"arms:\n  a:\n    url: http://127.0.0.1:{port}/v1\n    launch: {sys.executable} -m "
        f"http.server {port} --bind 127.0.0.1\n"
    )
    return path


def test_a_command_runs_while_the_servers_do_and_its_failure_is_told(
    file: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    launch(endpoints=file, command=["echo", "ran"], logs=file.parent)
    printed = capfd.readouterr()
    assert printed.out == "ran\n"
    assert printed.err.splitlines()[-1].startswith("a: stopped")
    with pytest.raises(LaunchError, match="'false' ended with code 1"):
        launch(endpoints=file, command=["false"], logs=file.parent)
    with pytest.raises(GateError, match="'sh' did not meet its gate"):
        launch(endpoints=file, command=["sh", "-c", "exit 3"], logs=file.parent)


def test_a_command_has_the_umask_of_the_user(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AGENTLOAD_UMASK", "0031")
    assert _run_to_its_end(["sh", "-c", "umask"]) == 0
    assert capfd.readouterr().out == "0031\n"


# Says when it runs, notes SIGTERM, and takes its time to end.
PATIENT = """
import pathlib, signal, sys, time
said, words, until_s = ["end"], int(sys.argv[2]), time.monotonic() + 60
asked = pathlib.Path(sys.argv[1] + ".asked")
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, lambda *_: said.insert(0, "term"))
pathlib.Path(sys.argv[1]).write_text("begin")
while time.monotonic() < until_s and (len(said) < words or not asked.exists()):
    time.sleep(0.01)
time.sleep(0.2)
pathlib.Path(sys.argv[1]).write_text(" ".join(said))
"""


@pytest.mark.parametrize(
    ("number", "noted"),
    [(signal.SIGINT, "end"), (signal.SIGHUP, "end"), (signal.SIGTERM, "term end")],
)
def test_a_command_that_is_asked_to_stop_ends_in_its_own_time(
    tmp_path: Path, number: signal.Signals, noted: str
) -> None:
    note = tmp_path / "note"
    before = signal.signal(
        number, signal.default_int_handler
    )  # also where the tests run under nohup

    def ask() -> None:
        for _ in range(6_000):
            is_heeded = signal.getsignal(number) is not signal.default_int_handler
            if is_heeded and note.exists() and note.read_text() == "begin":
                os.kill(os.getpid(), number)
                break
            time.sleep(0.01)
        note.with_name("note.asked").touch()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        with pytest.raises(InterruptError, match="was stopped"):
            _run_to_its_end([sys.executable, "-c", PATIENT, str(note), str(len(noted.split()))])
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    asking.join()
    assert note.read_text() == noted
