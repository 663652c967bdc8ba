"""What the first screen says of the load that figures are about."""

from dataclasses import replace

import pytest

from advisor.policy import Policy
from agentload.evidence.gather import _pair_load as pair_load
from agentload.report.document import document
from agentload.study.kinds import Replay
from agentload.study.parts import Load, TraceRef, Virtual
from agentload.study.stored import Notes
from tests.report import sample

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
    decision = replace(sample.decision(), pair_load=pair_load(study, Notes()))
    assert document(decision, sample.evidence(), sample.facts(), policy=Policy()).load.startswith(
        f"block pairs have {said}"
    )
