from __future__ import annotations

import pytest
from hypothesis import given

from agentload.study.change import differences, extend, resumption
from agentload.study.kinds import Replay, Study
from agentload.study.parts import Live, Load, TraceRef, Virtual
from tests.study.studies import studies

BASE = Replay(traces=(TraceRef(path="traces/rag.jsonl", sha256="ab"),), servers=Live(endpoints="e"))


@given(studies())
def test_a_study_differs_from_itself_in_nothing(study: Study) -> None:
    assert differences(study, study) == ()


def test_what_is_measured_tells_studies_apart_and_how_much_or_by_which_means_does_not() -> None:
    more = extend(BASE, pairs=12, workers=2, on_dead="skip", logs="elsewhere")
    assert differences(BASE, more) == ()
    other = extend(BASE, seed=3, sessions=4, cache="warm")
    assert differences(BASE, other) == ("cache setting", "sessions", "seed")


def test_a_trace_is_what_it_holds_wherever_it_lies() -> None:
    moved = extend(BASE, traces=(TraceRef(path="elsewhere/rag.jsonl", sha256="ab"),))
    assert differences(BASE, moved) == ()
    assert differences(
        BASE, extend(BASE, traces=(TraceRef(path="traces/rag.jsonl", sha256="cd"),))
    ) == ("trace",)


def test_live_and_simulated_studies_are_of_different_kinds() -> None:
    assert differences(BASE, Replay(traces=BASE.traces, servers=Virtual(profile="p"))) == (
        "kind of study",
    )


def test_more_of_a_study_is_the_same_study() -> None:
    longer = extend(BASE, pairs=12, restarts=4, duration_s=60.0)
    assert (longer.pairs, longer.servers, longer.load) == (
        12,
        Live(endpoints="e", restarts=4),
        Load(duration_s=60.0),
    )
    with pytest.raises(TypeError):
        extend(BASE, bogus=1)


def test_a_long_run_goes_on_for_as_long_as_it_began() -> None:
    began = extend(BASE, capacity=8, duration_s=3600.0)
    assert resumption(began, extend(BASE, capacity=8)).load.duration_s == 3600.0
    assert resumption(began, extend(BASE, capacity=8, duration_s=60.0)).load.duration_s == 60.0
