"""Paths of a study are those beside its file, from wherever it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentload.run.files import read_study, resolve_paths
from agentload.study.document import yaml_text
from agentload.study.kinds import Ask, Replay, Search, Study
from agentload.study.parts import Live, TraceRef, Virtual

LIVE = Live(endpoints="a=http://h:1/v1")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a study, which is not the one
    that it is read from; both have files of the same names.
    """
    home, here = tmp_path / "home", tmp_path / "here"
    for folder in (home, here):
        for kind in ("traces", "profiles"):
            (folder / kind).mkdir(parents=True)
        for name in ("own.jsonl", "arms.yaml", "traces/mine.jsonl", "profiles/mine.yaml"):
            (folder / name).touch()
    (here / "gone.jsonl").touch()
    (here / "traces" / "rag.jsonl").touch()
    monkeypatch.chdir(here)
    return home


def replay(*traces: str, **said: str) -> Replay:
    # paths alone
    return Replay(traces=tuple(TraceRef(path=path) for path in traces), servers=LIVE, **said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("study", "leads_to"),
    [
        (
            replay("own.jsonl", "./own.jsonl", "traces/mine.jsonl", "mine"),
            ("own.jsonl", "own.jsonl", *("traces/mine.jsonl",) * 2),
        ),
        (Search(traces=(TraceRef(path="own.jsonl"),), servers=LIVE), ("own.jsonl",)),
        (replay("gone.jsonl"), ("gone.jsonl",)),  # that of the working directory is another
    ],
)
def test_traces_are_those_beside_the_study(
    home: Path, study: Replay | Search, leads_to: tuple[str, ...]
) -> None:
    for folder in (home, Path("../home")):
        found = resolve_paths(study, folder)
        assert isinstance(found, Replay | Search)
        assert [each.path for each in found.traces] == [str(folder / path) for path in leads_to]


def test_what_ships_keeps_its_name_unless_that_is_another_file_here(home: Path) -> None:
    made = resolve_paths(replay("chat", "rag"), home)
    assert isinstance(made, Replay)
    chat, rag = made.traces
    assert chat.path == "chat"
    assert Path(rag.path).name == "rag.jsonl"
    assert not Path(rag.path).is_relative_to(home.parent)
    virtual = resolve_paths(Replay(traces=(), servers=Virtual(profile="llama-3.1-8b-h100")), home)
    assert isinstance(virtual.servers, Virtual)
    assert virtual.servers.profile == "llama-3.1-8b-h100"


@pytest.mark.parametrize(
    ("study", "path"),
    [
        (replay(tokenizer="gone/tokenizer.json"), "gone/tokenizer.json"),
        (Ask(servers=LIVE, own="gone.jsonl"), "gone.jsonl"),
        (Replay(traces=(), servers=Live(endpoints="arms.yaml")), "arms.yaml"),
        (Replay(traces=(), servers=Live(endpoints="a=http://h:1/v1", logs="out")), "out"),
        (Replay(traces=(), servers=Virtual(profile="mine")), "profiles/mine.yaml"),
        (Replay(traces=(), servers=Virtual(profile="gone.yaml")), "gone.yaml"),
    ],
)
def test_other_files_are_those_beside_the_study_too_whether_they_are_there_or_not(
    home: Path, study: Study, path: str
) -> None:
    found = resolve_paths(study, home)
    servers = found.servers
    said = [getattr(found, "tokenizer", None), getattr(found, "own", None)]
    said += [servers.profile] if isinstance(servers, Virtual) else [servers.endpoints, servers.logs]
    assert str(home / path) in said


def test_a_study_that_is_read_where_it_lies_says_what_it_said(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replay("own.jsonl", "mine", tokenizer="./tokenizer.json")
    (home / "study.yaml").write_text(yaml_text(made))
    monkeypatch.chdir(home)
    assert read_study(Path("study.yaml")) == read_study(home / "study.yaml") == made
