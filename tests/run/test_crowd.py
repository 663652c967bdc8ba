"""Trials of a search on a real server: what a trial found, and whose trouble it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.evidence.capacity import TwinReplay
from agentload.layout.steady import steady
from agentload.model.plan import Load
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.model.trace import Header, Session, Trace, Turn
from agentload.run.capacity import ArmLoad, Chosen, Loads, arm_loads, try_loads
from agentload.run.crowd import Crowd, trial_of
from agentload.run.trial import Trial
from agentload.study.kinds import Search
from agentload.study.parts import Live, Slo, TraceRef
from tests.run.test_trial import call, sample

ARM = Endpoint(name="bf16", url="http://127.0.0.1:1/v1")
SLO = Slo(ttft_ms=100.0)
LIVE = Search(
    traces=(TraceRef(path="t"),), servers=Live(endpoints="e"), slo=SLO, trial_s=4.0, start=4
)
ONE = Session(session="s", workload="chat", start_s=0.0, turns=(Turn(add=(), output=1),))
STOCK = steady(Trace(header=Header(name="t"), sessions=(ONE,)), Load())
S = 1_000_000_000


def on_the_server(told: Callable[[str], None], loads: Loads = ()) -> tuple[Trial, ...]:
    crowd = Crowd(study=LIVE, stock=STOCK, arm=ARM, told=told)
    return try_loads(LIVE, ARM.name, crowd.attempt, start=4, loads=loads)


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
    return call(
        released_ns=at_ns, first_ns=at_ns + round(ttft_s * S), last_ns=at_ns + S, output_tokens=30
    )


def test_a_play_that_was_void_and_played_again_counts_once() -> None:
    void: list[Row] = [
        turn(2),
        turn(3, ttft_s=9),
        play(0, "bf16 answered 3 requests that were not ours"),
    ]
    rows: list[Row] = [*void, turn(10), turn(11), turn(12), play(10)]
    counted = [sample("preemptions", at_s, value) for at_s, value in ((1, 0), (3, 5), (13, 6))]
    found = trial_of(8, [*rows, *counted], SLO, 4.0, died=None)
    counted_once = Trial(load=8, turns=2, within=2, preemptions=1, output_tokens_per_s=60 / 3)
    assert replace(found, ttft_ms=None, tpot_ms=None, turn_ms=None) == counted_once
    assert found.ttft_ms == 50.0


def test_a_trial_of_which_every_play_was_void_says_why_and_nothing_else() -> None:
    rows: list[Row] = [
        turn(2),
        play(0, "its dtype changed"),
        turn(12),
        play(10, "bf16 answered 3 requests that were not ours"),
    ]
    assert trial_of(8, rows, SLO, 4.0, died=None) == Trial(
        load=8, void="bf16 answered 3 requests that were not ours"
    )
    died = trial_of(8, rows, SLO, 4.0, died="it stopped answering")
    assert (died.void, died.died, died.turns) == (None, "it stopped answering", 1)


def tried(
    monkeypatch: pytest.MonkeyPatch, trials: Sequence[tuple[Trial, str | None] | str]
) -> tuple[ArmLoad, list[str]]:
    """Search with these trials, whatever their loads; then nobody answers any more."""
    left = iter((*trials, "bf16: connection refused"))

    def trial(_: Crowd, sessions: int, __: int) -> tuple[Trial, str | None]:
        found = next(left)
        if isinstance(found, str):
            raise EndpointError(found)
        return replace(found[0], load=sessions), found[1]

    monkeypatch.setattr(Crowd, "_trial", trial)
    told: list[str] = []
    (found,) = arm_loads({"bf16": on_the_server(told.append)}, share=0.95)
    return found, told


HOLDS = Trial(load=0, turns=10, within=10, preemptions=0, waiting_share=0.0)
SLOW = replace(HOLDS, within=0)


def loads(found: ArmLoad) -> list[tuple[float, str | None]]:
    return [(each.load, each.trouble) for each in found.trials if each.void is None]


def test_a_limit_that_breaks_while_our_own_side_is_late_says_nothing_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, told = tried(
        monkeypatch, [(HOLDS, "requests left 40 ms late"), (SLOW, "requests left 40 ms late")]
    )
    assert (found.holds, found.high) == (4, None)
    assert [line for line in told if line.startswith("warning")] == [
        (
            "warning: bf16: 8 sessions said nothing of the server: it may be our own side: "
            "requests left 40 ms late"
        )
    ]


def test_loads_that_are_named_are_tried_and_no_others_each_with_its_own_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    def trial(_: Crowd, sessions: int, seed: int) -> tuple[Trial, str | None]:
        asked.append((sessions, seed))
        return replace(HOLDS if sessions < 10 else SLOW, load=sessions), None

    monkeypatch.setattr(Crowd, "_trial", trial)
    replay = TwinReplay(expected=(1.0, 0.9, 0.8, 0.7, 0.6), carried=9.0)
    loads = [
        Chosen(load=load, seed=seed, worth=1.1, error=0.05, replay=replay)
        for load, seed in ((9.0, 5), (9.0, 6), (11.0, 5))
    ]
    trials = on_the_server(lambda _: None, loads)
    assert asked == [(9, 5), (9, 6), (11, 5)]
    assert [(each.load, each.trouble, each.worth, each.error) for each in trials] == [
        (9, None, 1.1, 0.05),
        (9, None, 1.1, 0.05),
        (11, "slo", 1.1, 0.05),
    ]
    assert all(each.replay is replay for each in trials)
    monkeypatch.setattr(Crowd, "_trial", lambda *_: (Trial(load=9, void="others"), None))
    assert len(on_the_server(lambda _: None, loads)) == 1, (
        "nothing follows a trial that says nothing"
    )


def test_the_servers_own_trouble_counts_however_late_we_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = "requests left 40 ms late"
    found, told = tried(
        monkeypatch,
        [
            (HOLDS, None),
            (replace(SLOW, preemptions=3), late),
            (replace(HOLDS, waiting_share=0.5), late),
        ],
    )
    assert found.high is not None
    assert found.high < 9
    assert sorted(str(trouble) for _, trouble in loads(found)) == ["None", "preempted", "queued"]
    assert told[1] == "bf16: 8 sessions: 0% of 10 turns hold, 3 preemptions, waiting 0% of the time"


def test_a_server_that_is_gone_for_good_leaves_what_was_found_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    died = Trial(load=0, turns=9, died="it stopped answering")
    found, _ = tried(monkeypatch, [(HOLDS, None), (died, None)])
    assert found.holds is not None
    assert 2 < found.holds < 8
    assert found.broken is not None
    assert (found.broken.load, found.broken.trouble) == (8, "died")
    assert found.void is not None
    assert found.void.void == "bf16: connection refused"
    with pytest.raises(EndpointError, match="refused"):
        tried(monkeypatch, [])


def test_a_server_without_metrics_is_told_to_be_judged_by_its_turns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blind = replace(HOLDS, preemptions=None, waiting_share=None)
    found, told = tried(monkeypatch, [(blind, None), (SLOW, None), (blind, None), (SLOW, None)])
    assert [trouble for _, trouble in loads(found)].count("slo") == 2
    assert told[0] == (
        "bf16: 4 sessions: 100% of 10 turns hold, the server does not tell whether it "
        "preempts and queues"
    )
