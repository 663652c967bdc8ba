"""What a search on a live endpoint tells of each trial."""

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.experiment.search.capacity import Limits, Trial
from agentload.experiment.search.crowd import Crowd
from agentload.model.trace import Header, Trace


def test_a_trial_that_our_own_side_could_not_keep_up_with_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def trial(self: Crowd, arm: Endpoint, sessions: int) -> Trial:
        late = "requests left 40 ms late" if sessions > 4 else None
        within = 10 if sessions <= 4 else 0
        return Trial(
            load=sessions, turns=10, within=within, preemptions=0, peak_kv_usage=0.1, hit_rate=None, output_tokens_per_s=1.0, void=late
        )

    monkeypatch.setattr(Crowd, "_trial", trial)
    told: list[str] = []
    crowd = Crowd(trace=Trace(header=Header(name="t"), sessions=()), limits=Limits(ttft_ms=100.0), seconds=1.0, seed=0, command="")
    crowd.search(Endpoint(name="bf16", url="http://127.0.0.1:1/v1"), start=4, told=told.append)
    assert next(line for line in told if line.startswith("warning")) == (
        "warning: bf16: at 8 sessions it may be our own side that broke: requests left 40 ms late"
    )
    assert not any(line.startswith("warning: bf16: at 4 ") for line in told)
