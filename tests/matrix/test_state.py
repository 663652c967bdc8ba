from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentload.errors import StoreError, UsageError
from agentload.matrix import child
from agentload.matrix.child import Stops
from agentload.matrix.state import Done, Fault, State, alone_in, read_state, write_state
from agentload.study.kinds import Probe
from agentload.study.parts import Live


def test_what_was_done_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "toy/state.json"
    assert read_state(path) == State()
    state = State(origin={"reference": "bf16"}).with_step("replay", Done(outcome="done", asked="replay", pairs=2, seconds=1.5, code=0))
    write_state(path, state.with_fault("fp8", Fault(said="no", code=3)))
    assert read_state(path) == state.with_fault("fp8", Fault(said="no", code=3))
    path.write_text("{")
    with pytest.raises(StoreError, match="not a matrix's state"):
        read_state(path)


def test_a_verb_that_outlives_its_matrix_keeps_others_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What holds the folder goes with the last process that has it: a matrix that is killed leaves its verb playing."""
    monkeypatch.setattr(child, "PROGRAM", ("sh", "-c", "echo up >&2; sleep 0.3"))
    is_up = threading.Event()
    with alone_in(tmp_path) as lock:
        study = Probe(servers=Live(endpoints="e"))
        options = {
            "database": tmp_path / "x.duckdb",
            "run": None,
            "said": tmp_path / "said.txt",
            "until": float("inf"),
            "stops": Stops(),
            "told": lambda _: is_up.set(),
            "lock": lock,
        }
        verb = threading.Thread(target=child.run, args=(study,), kwargs=options)
        verb.start()
        assert is_up.wait(10)
    with pytest.raises(UsageError, match="a verb of one that was killed"), alone_in(tmp_path):
        pass
    verb.join(10)
    with alone_in(tmp_path):
        pass
