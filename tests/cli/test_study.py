"""Options of verbs are the fields of what they study."""

from __future__ import annotations

from inspect import Parameter, signature

import pytest

from agentload.cli._study import runs
from agentload.cli.studies import replay, simulate
from agentload.run.place import StudyPlace
from agentload.study.fields import flags
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Live, Load, TraceRef
from tests.cli.verbs import agentload

LOAD = {flag.name for flag in flags(Load)}


def test_a_verb_has_the_options_of_its_study_and_of_where_rows_go_and_gets_both() -> None:
    given: list[tuple[Study, StudyPlace, int]] = []

    @runs("replay", "resume")
    def verb(study: Study, place: StudyPlace, *, own: int = 6) -> None:
        given.append((study, place, own))

    names = list(signature(verb).parameters)
    assert set(names) > LOAD
    assert names[-5:] == ["db", "resume", "run_id", "own", "print_study"]
    unsaid = {
        name: None if each.default is Parameter.empty else each.default
        for name, each in signature(verb).parameters.items()
    }
    verb(
        **{**unsaid, "traces": ["rag"], "endpoints": "e", "sessions": "3", "run_id": "r1", "own": 7}
    )
    study = Replay(
        traces=(TraceRef(path="rag"),), servers=Live(endpoints="e"), load=Load(sessions=3)
    )
    assert given == [(study, StudyPlace(run="r1"), 7)]


def test_verbs_that_play_a_load_have_all_of_its_options() -> None:
    for each in (replay, simulate):
        assert set(signature(each).parameters) > LOAD


def test_a_study_that_is_printed_is_one_that_can_be_run(capsys: pytest.CaptureFixture[str]) -> None:
    agentload(
        "replay demo-rag --endpoints a=http://me:secret@127.0.0.1:9/v1 --sessions 3 --print-study"
    )
    printed = capsys.readouterr().out
    assert printed.startswith("study: 1\nkind: replay\ntraces:\n- path: demo-rag\n  sha256: ")
    assert "  sessions: 3\n" in printed
    assert "secret" not in printed
    agentload("decide demo-rag --profile llama-3.1-8b-h100 --print-study")
    assert capsys.readouterr().out.startswith(
        "study: 1\nkind: decide\ntraces:\n- path: demo-rag\n  sha256: "
    )
