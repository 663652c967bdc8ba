"""What a search on a live endpoint makes of what each trial brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.model.trace import Header, Trace
from agentload.run.capacity import Crowd, Found, measured
from agentload.run.trial import Trial
from agentload.study.kinds import Search
from agentload.study.parts import Live, Slo, TraceRef
from tests.run.test_trial import call, sample

ARM = Endpoint(name="bf16", url="http://127.0.0.1:1/v1")
SLO = Slo(ttft_ms=100.0)
STUDY = Search(traces=(TraceRef(path="t"),), servers=Live(endpoints="e"), slo=SLO, trial_s=4.0, start=4)
CROWD = Crowd(study=STUDY, trace=Trace(header=Header(name="t"), sessions=()))
S = 1_000_000_000


def play(at_s: float, void: str | None = None) -> BlockRow:
    return BlockRow(
        run_id="r",
        leg=1,
        pair=0,
        block=0,
        arm="bf16",
        round=0,
        started_ns=round(at_s * S),
        drain_ns=None,
        ended_ns=round((at_s + 4) * S),
        salt=f"{at_s}",
        void=void,
    )


def turn(at_s: float, *, ttft_s: float = 0.05) -> CallRow:
    at_ns = round(at_s * S)
    return call(released_ns=at_ns, first_ns=at_ns + round(ttft_s * S), last_ns=at_ns + S, output_tokens=30)


def test_a_play_that_was_void_and_played_again_counts_once() -> None:
    void: list[Row] = [turn(2), turn(3, ttft_s=9), play(0, "bf16 answered 3 requests that were not ours")]
    rows: list[Row] = [*void, turn(10), turn(11), turn(12), play(10)]
    counted = [sample("preemptions", at_s, value) for at_s, value in ((1, 0), (3, 5), (13, 6))]
    found = measured(8, [*rows, *counted], SLO, 4.0, died=None)
    assert found == Trial(load=8, turns=2, within=2, preemptions=1, output_tokens_per_s=60 / 3)


def test_a_trial_of_which_every_play_was_void_says_why_and_nothing_else() -> None:
    rows: list[Row] = [turn(2), play(0, "its dtype changed"), turn(12), play(10, "bf16 answered 3 requests that were not ours")]
    assert measured(8, rows, SLO, 4.0, died=None) == Trial(load=8, void="bf16 answered 3 requests that were not ours")
    died = measured(8, rows, SLO, 4.0, died="it stopped answering")
    assert (died.void, died.died, died.turns) == (None, "it stopped answering", 1)


def searched(monkeypatch: pytest.MonkeyPatch, trials: Mapping[int, tuple[Trial, str | None] | str]) -> tuple[Found, list[str]]:
    def trial(_: Crowd, __: Endpoint, sessions: int) -> tuple[Trial, str | None]:
        found = trials[sessions]
        if isinstance(found, str):
            raise EndpointError(found)
        return replace(found[0], load=sessions), found[1]

    monkeypatch.setattr(Crowd, "_trial", trial)
    told: list[str] = []
    return CROWD.search(ARM, told=told.append), told


HOLDS = Trial(load=0, turns=10, within=10, preemptions=0, waiting_share=0.0)
SLOW = replace(HOLDS, within=0)


def test_a_limit_that_breaks_while_our_own_side_is_late_is_no_end_of_the_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    found, told = searched(monkeypatch, {4: (HOLDS, "requests left 40 ms late"), 8: (SLOW, "requests left 40 ms late")})
    assert (found.holds, found.breaks) == (4, None)
    assert [line for line in told if line.startswith("warning")] == [
        "warning: bf16: the search ends at 8 sessions, which say nothing of the server: it may be our own side: requests left 40 ms late"
    ]


def test_the_servers_own_trouble_counts_however_late_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "requests left 40 ms late"
    tried = {4: (HOLDS, None), 8: (replace(SLOW, preemptions=3), late), 6: (HOLDS, None), 7: (replace(HOLDS, waiting_share=0.5), late)}
    found, told = searched(monkeypatch, tried)
    assert (found.holds, found.breaks, [each.trouble for each in found.trials]) == (6, 7, [None, None, "queued", "preempted"])
    assert told[1] == "bf16: 8 sessions: 0% of 10 turns hold, 3 preemptions, waiting 0% of the time"


def test_a_server_that_is_gone_for_good_leaves_what_was_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    died = Trial(load=0, turns=9, died="it stopped answering")
    found, _ = searched(monkeypatch, {4: (HOLDS, None), 8: (died, None), 6: "bf16: connection refused"})
    assert (found.holds, found.breaks) == (4, 8)
    assert found.broken is not None
    assert found.broken.trouble == "died"
    assert found.void == Trial(load=6, void="bf16: connection refused")
    with pytest.raises(EndpointError, match="refused"):
        searched(monkeypatch, {4: "bf16: connection refused"})


def test_a_server_without_metrics_is_told_to_be_judged_by_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = replace(HOLDS, preemptions=None, waiting_share=None)
    found, told = searched(monkeypatch, {4: (blind, None), 8: (SLOW, None), 6: (blind, None), 7: (SLOW, None)})
    assert (found.holds, found.breaks) == (6, 7)
    assert told[0] == "bf16: 4 sessions: 100% of 10 turns hold, the server does not tell whether it preempts and queues"
