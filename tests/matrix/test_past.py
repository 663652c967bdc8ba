from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentload.errors import StoreError, UsageError
from agentload.matrix import child
from agentload.matrix.child import Stops
from agentload.matrix.described import Places
from agentload.matrix.parts import lay_out, traces_of
from agentload.matrix.past import (
    Done,
    Fault,
    State,
    differences,
    hold,
    origin,
    read_state,
    write_state,
)
from agentload.study.kinds import Probe
from agentload.study.parts import Live
from tests.matrix.files import SERVED, matrix, parts_of


def test_what_was_done_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "toy/state.json"
    assert read_state(path) == State()
    state = State(origin={"reference": "bf16"}).with_step(
        "replay", Done(outcome="done", asked="replay", pairs=2, seconds=1.5, code=0)
    )
    write_state(path, state.with_fault("fp8", Fault(said="no", code=3)))
    assert read_state(path) == state.with_fault("fp8", Fault(said="no", code=3))
    path.write_text("{")
    with pytest.raises(StoreError, match="not a matrix's state"):
        read_state(path)


def test_a_verb_that_outlives_its_matrix_keeps_others_out_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds the folder goes with the last process that
    has it: a matrix that is killed leaves its verb playing.
    """
    monkeypatch.setattr(child, "PROGRAM", ("sh", "-c", "echo up >&2; sleep 0.3"))
    is_up = threading.Event()
    with hold(tmp_path) as lock:
        study = Probe(servers=Live(endpoints="e"))
        options = {
            "database": tmp_path / "x.duckdb",
            "run": None,
            "output": tmp_path / "said.txt",
            "until": float("inf"),
            "stops": Stops(),
            "say": lambda _: is_up.set(),
            "lock": lock,
        }
        verb = threading.Thread(target=child.run, args=(study,), kwargs=options)
        verb.start()
        assert is_up.wait(10)
    with pytest.raises(UsageError, match="a verb that one left running"), hold(tmp_path):
        pass
    verb.join(10)
    with hold(tmp_path):
        pass


def of(text: str, folder: Path) -> dict[str, str]:
    """What a run of the only model would be of."""
    made = matrix(text)
    lay_out(made, Places(folder), traces_of(made))
    (part,) = parts_of(text, folder)
    return origin(part)


@pytest.mark.parametrize(
    ("said", "edited", "names"),
    [
        ("max-num-seqs: 32", "max-num-seqs: 64", ("server of fp8",)),
        ("block-size: 16", "block-size: 32", ("server of bf16", "server of fp8")),
        (
            "serve: org/m",
            "serve: org/m, fields: {extra_body: {top_k: 1}}",
            ("server of bf16", "server of fp8"),
        ),
        (
            "configs: {bf16: , fp8: {max-num-seqs: 32}}",
            "configs: {fp8: {max-num-seqs: 32}, bf16: }",
            ("reference",),
        ),
        ("sessions: 2", "sessions: 3", ("load",)),
        ("pairs: 2", "pairs: 2, waits: {user: 1}", ("load",)),
        ("sessions: 6}}\n  rag", "sessions: 5}}\n  rag", ("workload short",)),
        ("scale: 2", "scale: 1.5", ("workload rag",)),
        (
            "scale: 2}",
            "scale: 2}\n  more: {generate: short_chat, options: {sessions: 2}}",
            ("workload more",),
        ),
        (
            "  rag: {generate: short_chat, options: {sessions: 6}, scale: 2}\n",
            "",
            ("workload rag",),
        ),
        # What measures nothing else.
        ("pairs: 2", "pairs: 4", ()),
        ("port: 8000", "port: 9000, start_timeout_s: 60, gpu: H100, price_per_hour: 2.5", ()),
        (", fp8: {max-num-seqs: 32}", "", ()),
    ],
)
def test_a_run_is_of_its_servers_its_traces_and_its_load(
    tmp_path: Path, said: str, edited: str, names: tuple[str, ...]
) -> None:
    assert said in SERVED
    assert (
        differences(of(SERVED, tmp_path / "a"), of(SERVED.replace(said, edited), tmp_path / "b"))
        == names
    )


def test_nothing_is_held_against_a_run_of_which_nothing_is_known(tmp_path: Path) -> None:
    assert differences({}, of(SERVED, tmp_path)) == ()


def test_servers_that_run_already_may_move(tmp_path: Path) -> None:
    text = "models: {a: {endpoints: 'x=http://h/v1,y=http://i/v1', fields: {model: m}}}\n"
    began = of(text, tmp_path / "a")
    assert differences(began, of(text.replace("//h/", "//j/"), tmp_path / "b")) == ()
    assert differences(began, of(text.replace("model: m", "model: n"), tmp_path / "c")) == (
        "server of x",
        "server of y",
    )
