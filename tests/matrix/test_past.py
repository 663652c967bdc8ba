from __future__ import annotations

import threading
from pathlib import Path

import pytest

from agentload.errors import UsageError
from agentload.matrix import child
from agentload.matrix.child import Stops
from agentload.matrix.described import MatrixFolder
from agentload.matrix.parts import lay_out, traces_of, write_arms
from agentload.matrix.past import changes, end_of, hold, progress_of
from agentload.matrix.steps import MatrixStep
from agentload.run.place import StudyPlace
from agentload.study.kinds import Probe, Replay
from agentload.study.parts import Live, TraceRef
from tests.matrix.files import SERVED, matrix, parts_of
from tests.matrix.verbs import Verbs, failing, measured, played


def test_how_steps_ended_is_stored_with_the_run(tmp_path: Path) -> None:
    now = played(SERVED, tmp_path, Verbs({"eval": failing}))
    (part,) = parts_of(SERVED, tmp_path / "out")
    assert progress_of(part).ends == now[0].ends
    now[0].database.write_bytes(b"no database")
    assert progress_of(part).ends == now[0].ends  # by the journals


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
            "output": tmp_path / "said.txt",
            "until": float("inf"),
            "stops": Stops(),
            "say": lambda _: is_up.set(),
            "lock": lock,
        }
        place = StudyPlace(database=tmp_path / "x.duckdb")
        verb = threading.Thread(target=child.carry_out, args=(study, place), kwargs=options)
        verb.start()
        assert is_up.wait(10)
    with pytest.raises(UsageError, match="a verb that one left running"), hold(tmp_path):
        pass
    verb.join(10)
    with hold(tmp_path):
        pass


def test_a_step_that_became_a_report_or_was_one_is_carried_out_again() -> None:
    study = Replay(traces=(TraceRef(path="t"),), servers=Live(endpoints="e"))
    step_played = MatrixStep(model="m", name="x", kind="replay", arms=(), study=study)
    reported = MatrixStep(model="m", name="x", kind="report", arms=(), study=None)
    for step, other in ((step_played, reported), (reported, step_played)):
        end = end_of(step)
        assert (end.has_finished(step), end.has_finished(other)) == (True, False)


def changed(text: str, edited: str, folder: Path) -> tuple[str, ...]:
    """Begin the run of the only model by one text; name what another says differently."""
    for each in (text, edited):
        made = matrix(each)
        lay_out(made, MatrixFolder(folder), traces_of(made))
        (part,) = parts_of(each, folder)
        progress = progress_of(part)
        if progress.run is None:
            write_arms(part, keeps_others=False)
            assert part.steps[0].study is not None
            measured(progress.database, part.steps[0].study)
    assert progress.run is not None
    return tuple(changes(progress.part, progress.run))


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
        ("sessions: 2", "sessions: 3", ("sessions",)),
        ("pairs: 2", "pairs: 2, waits: {user: 1}", ("wait-cap",)),
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
    assert changed(SERVED, SERVED.replace(said, edited), tmp_path) == names


@pytest.mark.parametrize(
    ("edited", "names"),
    [({"//h/": "//j/"}, ()), ({"model: m": "model: n"}, ("server of x", "server of y"))],
)
def test_servers_that_run_already_may_move(
    tmp_path: Path, edited: dict[str, str], names: tuple[str, ...]
) -> None:
    text = "models: {a: {endpoints: 'x=http://h/v1,y=http://i/v1', fields: {model: m}}}\n"
    ((old, new),) = edited.items()
    assert changed(text, text.replace(old, new), tmp_path) == names


def test_another_profile_is_other_servers(tmp_path: Path) -> None:
    text = "models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100/bf16+fp8'}}\n"
    other = text.replace("llama-3.1-8b-h100", "gpt-oss-20b-h100")
    assert changed(text, other, tmp_path) == ("servers",)


REAL = "models: {toy: {endpoints: 'bf16=http://h/v1,fp8=http://i/v1', fields: {model: m}}}\n"
EMULATED = "models: {toy: {endpoints: 'emulated:llama-3.1-8b-h100/bf16+fp8'}}\n"


@pytest.mark.parametrize(("text", "other"), [(EMULATED, REAL), (REAL, EMULATED)])
def test_emulated_servers_and_real_ones_are_others(tmp_path: Path, text: str, other: str) -> None:
    assert changed(text, other, tmp_path) == ("servers",)
