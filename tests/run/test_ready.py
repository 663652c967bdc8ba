"""Before anything is sent, a run warns of a machine
that is busy and refuses one that is hopeless.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.cli import doctor
from agentload.errors import AgentloadError
from agentload.live.look import SWITCH, cores, look
from agentload.model.client import AskedLoad
from agentload.run.ready import asked_of, check_client, check_writable
from agentload.study.parts import Load
from tests.model.test_client import IDLE

ASKED = asked_of(Load(sessions=8), has_emulated=False)


def test_a_quiet_machine_is_not_spoken_of() -> None:
    said: list[str] = []
    found = check_client(ASKED, said.append, seen=lambda: IDLE)
    assert found is not None
    assert (found.verdict, said) == ("ok", [])


def test_a_busy_machine_is_warned_of() -> None:
    said: list[str] = []
    check_client(ASKED, said.append, seen=lambda: replace(IDLE, taken_share=0.5))
    (line,) = said
    assert line.startswith("warning: requests may leave late: timers fire 1.0 ms late (p99)")
    assert "50% of 2 cores" in line


def test_a_hopeless_machine_is_refused_with_what_measures_all_the_same() -> None:
    with pytest.raises(AgentloadError, match="this machine cannot measure") as error:
        check_client(ASKED, print, seen=lambda: replace(IDLE, timer_p50_ms=9.0))
    assert f"{SWITCH}=0 measures all the same" in (error.value.hint or "")


def test_sessions_ask_for_as_many_streams() -> None:
    assert asked_of(Load(sessions=40), has_emulated=True) == AskedLoad(
        streams=40, chunks_per_s=2000, has_emulated=True
    )


def test_the_look_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "0")
    assert look() is None
    assert check_client(ASKED, print) is None
    assert doctor._client().seen == f"not looked at ({SWITCH}=0)"


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Keep so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.loopback
def test_doctor_warns_of_a_machine_whose_cores_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    with busy_loops(len(cores())):
        found = look()
        check = doctor._client()
    assert found is not None
    assert found.taken_share > 0.25
    assert check.state in ("warn", "fail")
    assert check.advice is not None
    assert "stop what else runs here" in check.advice


def test_a_folder_for_nodes_that_cannot_be_written_is_named_before_they_start(
    tmp_path: Path,
) -> None:
    check_writable(tmp_path / "new", "--share")
    assert list((tmp_path / "new").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(AgentloadError, match=f"--share {tmp_path}/file/x: cannot write there"):
        check_writable(tmp_path / "file" / "x", "--share")
