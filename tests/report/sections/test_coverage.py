"""What the first screen says of the load that figures are about."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.policy import Policy
from advisor.verdict import Coverage
from agentload.evidence.gather import window_load
from agentload.report.document import document
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual
from agentload.study.stored import Notes
from tests.report import sample, telling

ARMS = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))


@pytest.mark.parametrize(
    ("load", "said"),
    [
        (Load(sessions=1, wait_cap_s={"user": 5.0}), "1 session at once, users answer within 5 s"),
        (Load(rate_per_s=0.5), "0.5 session starts a second, users wait as in your trace"),
        (Load(), "sessions that begin as in your trace, users wait as in your trace"),
        (
            Load(speed=4.0, wait_scale={"user": 0.5}),
            (
                "sessions that begin 4 times as fast as in your trace, users wait 0.5 times as "
                "long as in your trace"
            ),
        ),
    ],
)
def test_the_load_of_pairs_is_said_as_it_was_played(load: Load, said: str) -> None:
    study = Replay(traces=(TraceRef(path="demo-chat"),), servers=ARMS, windows=4, load=load)
    decision = replace(sample.decision(), pair_load=window_load(study, Notes()))
    assert document(decision, sample.evidence(), sample.facts(), policy=Policy()).load.startswith(
        f"block pairs have {said}"
    )


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"load": Load(sessions=8)}, "8 sessions at once, users wait as in your trace"),
        (
            {"capacity": 20, "load": Load(wait_cap_s={"user": 60.0})},
            "20 sessions at once, users answer within 60 s",
        ),
    ],
)
def test_the_first_screen_says_how_many_whole_sessions_and_calls_ran(
    study: dict[str, Any], said: str
) -> None:
    played = Replay(traces=(TraceRef(path="demo-chat"),), servers=ARMS, **study)
    decision = replace(sample.decision(), pair_load=None, twin_changes=())
    facts = replace(sample.facts(), study=played)
    calls = min(
        each.calls
        for each in decision.changes
        if each.workload is None and each.metric == "turn_ms"
    )
    lines = dict(document(decision, sample.evidence(), facts, policy=Policy()).facts)
    assert lines["Load"] == f"block pairs have {said}, {calls:,} calls per arm"


def test_the_load_of_a_benchmark_is_its_rules_and_not_that_of_the_trace() -> None:
    played = Replay(
        traces=(TraceRef(path="demo-chat"),),
        servers=ARMS,
        load=Load(sessions=4),
        benchmark="agentx-fast",
    )
    decision = replace(sample.decision(), pair_load=None, twin_changes=())
    facts = replace(sample.facts(), study=played)
    assert not document(decision, sample.evidence(), facts, policy=Policy()).load


@pytest.mark.parametrize(("replicas", "said"), [(2, ""), (4, ", where trials say 11")])
def test_agents_of_a_replica_that_twins_and_trials_size_otherwise_are_told_apart(
    replicas: int, said: str
) -> None:
    before = sample.decision()
    capacity = tuple(replace(each, replicas_at_peak=replicas) for each in before.capacity)
    load = telling.made(replace(before, capacity=capacity)).load
    assert load.endswith(f"your peak is of 21 agents a replica, by BF16's twin{said}")


def covered(workload: str | None, to: float, longest: float, share: float) -> Coverage:
    return Coverage(
        workload=workload,
        calls=100,
        played=50,
        call_share=share,
        token_share=share,
        timed_to=to,
        longest=longest,
        is_whole=True,
        quantiles=(),
    )


@pytest.mark.parametrize(
    ("classes", "said"),
    [
        ([("chat", 20_480, 20_480, 1.0)], "of rag to 10k of 30k"),
        ([("chat", 20_480, 40_960, 0.5)], "of rag to 10k of 30k, of chat to 20k of 40k"),
    ],
)
def test_each_class_that_is_not_covered_whole_says_up_to_which_of_its_contexts(
    classes: list[tuple[str, float, float, float]], said: str
) -> None:
    parts = [("rag", 10_240, 30_720, 0.5), *classes]
    coverage = (covered(None, 10_240, 40_960, 0.9), *(covered(*each) for each in parts))
    decision = replace(sample.decision(), coverage=coverage)
    lines = dict(document(decision, sample.evidence(), sample.facts(), policy=Policy()).facts)
    assert lines["Covers"] == f"90% of your calls and 90% of their tokens, contexts {said}"
