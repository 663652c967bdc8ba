from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from agentload.cli._signals import Handler, handle_signals
from agentload.matrix.child import Stops, carry_out
from agentload.run.place import StudyPlace
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef

CHAT = Replay(
    traces=(TraceRef(path="demo-chat"),),
    servers=Live(endpoints="emulated:llama-3.1-8b-h100"),
    load=Load(sessions=1),
)
pytestmark = [pytest.mark.slow, pytest.mark.loopback]


def test_what_a_verb_says_is_kept_and_what_was_wrong_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    study = Replay(
        traces=(TraceRef(path="no such trace"),),
        servers=Live(endpoints="emulated:llama-3.1-8b-h100"),
    )
    ended = carry_out(
        study,
        StudyPlace(database=tmp_path / "x"),
        output=tmp_path / "a/said.txt",
        until=float("inf"),
        stops=Stops(),
        say=told.append,
    )
    assert ended.code == 1
    assert ended.error is not None
    assert ended.error.startswith("error:")
    assert (tmp_path / "a/said.txt").read_text().startswith("error:")
    assert told == []


def test_a_verb_is_asked_to_stop_when_its_time_is_over(tmp_path: Path) -> None:
    began = time.monotonic()
    ended = carry_out(
        CHAT,
        StudyPlace(database=tmp_path / "x.duckdb"),
        output=tmp_path / "said.txt",
        until=began + 6,
        stops=Stops(),
        say=lambda _: None,
    )
    assert (ended.code, ended.is_timed_out) == (130, True)
    assert (ended.error or "").startswith("error: ")
    assert 6 < time.monotonic() - began < 60


@pytest.mark.parametrize(
    "handler", [signal.default_int_handler, signal.SIG_IGN], ids=["foreground", "background"]
)
def test_a_verb_is_asked_to_stop_when_we_are(handler: Handler, tmp_path: Path) -> None:
    said = tmp_path / "said.txt"
    with handle_signals({signal.SIGINT: handler}):  # which the child inherits
        ended = carry_out(
            CHAT,
            StudyPlace(database=tmp_path / "x.duckdb"),
            output=said,
            until=float("inf"),
            stops=Stops(count=2),
            say=lambda _: None,
        )
    assert (ended.code, ended.is_timed_out) == (130, False)
