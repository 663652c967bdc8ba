from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.evidence import CapacityPoint
from agentload.cli import main as cli
from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.evidence.capacity import Held, capacity, held
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.capacity import Crowd, Found, find, keep_searches, measured, rows, search
from agentload.run.servers import arms_of
from agentload.run.simulate import quiet
from agentload.run.trial import Trial, Trouble
from agentload.store.database import reading
from agentload.study.change import extended
from agentload.study.kinds import Search
from agentload.study.parts import Live, Slo, TraceRef, Virtual
from tests.run.test_trial import call, sample

STUDY = Search(traces=(TraceRef(path="t"),), servers=Virtual(profile="p"), trial_s=60.0)
TRIAL = Trial(load=0, turns=100, within=100, preemptions=0, peak_kv_usage=0.5, found_again=0.99)


@given(st.integers(1, 5000), st.sampled_from([1.0, 8.0, 100.0]))
def test_the_search_brackets_the_largest_load_that_holds(limit: int, start: float) -> None:
    found = search("a", lambda load: replace(TRIAL, load=load, trouble=None if load <= limit else "slo"), start=start, whole=True)
    assert found.holds is not None
    assert found.breaks is not None
    assert found.holds <= limit < found.breaks
    assert found.breaks - found.holds <= max(1, 0.05 * found.holds)
    assert found.broken == replace(TRIAL, load=found.breaks, trouble="slo")
    assert len(found.trials) <= 30


def test_a_load_that_never_holds_or_never_breaks_is_said() -> None:
    never = search("a", lambda load: replace(TRIAL, load=load, trouble="queued"), start=8, whole=True)
    assert (never.holds, never.breaks) == (None, 1)
    always = search("a", lambda load: replace(TRIAL, load=load), start=8, whole=True)
    assert (always.holds, always.breaks, always.broken) == (16384, None, None)


@pytest.mark.parametrize(
    ("void_at", "holds", "breaks"),
    [(8, None, None), (32, 16, None), (24, 16, 32), (22, 20, 24)],
)
def test_a_void_trial_is_no_end_of_the_bracket_and_ends_the_search(void_at: int, holds: int | None, breaks: int | None) -> None:
    def attempt(load: float) -> Trial:
        return (
            Trial(load=load, void="other requests") if load == void_at else replace(TRIAL, load=load, trouble="slo" if load > 21 else None)
        )

    found = search("a", attempt, start=8, whole=True)
    assert (found.holds, found.breaks, found.void) == (holds, breaks, Trial(load=void_at, void="other requests"))


@pytest.mark.parametrize(
    ("start", "limit", "whole", "tried"),
    [
        (8.0, 21.0, True, [8.0, 16.0, 32.0, 24.0, 20.0, 22.0, 21.0]),
        (8.0, 3.0, True, [8.0, 4.0, 2.0, 3.0]),
        (8.0, 0.0, True, [8.0, 4.0, 2.0, 1.0]),
        (5.0, 1.0, True, [5.0, 2.0, 1.0]),
        (0.5, 0.3, False, [0.5, 0.25, 0.375, 0.3125, 0.28125, 0.296875, 0.3046875]),
        (100.0, 150.0, True, [100.0, 200.0, 150.0, 175.0, 162.0, 156.0]),  # closer than 5 %
    ],
)
def test_loads_are_tried_in_this_order(start: float, limit: float, tried: list[float], *, whole: bool) -> None:
    asked: list[float] = []

    def attempt(load: float) -> Trial:
        asked.append(load)
        return replace(TRIAL, load=load, trouble=None if load <= limit else "slo")

    search("a", attempt, start=start, whole=whole)
    assert asked == tried


def test_each_step_is_stored_with_what_was_tried_and_whether_it_held() -> None:
    trials = (replace(TRIAL, load=4), replace(TRIAL, load=8, trouble="queued"), Trial(load=6, void="other requests"))
    found = Found(arm="a", holds=4, breaks=8, trials=trials)
    study = extended(STUDY, trial_s=90.0, slo=Slo(ttft_ms=100.0))
    stored = list(rows(found, run_id="r", at_ns=7, study=study, classes={"rag", "chat"}))
    assert [json.loads(row.settings) for row in stored] == [
        {"agents": agents, "slo": "ttft=100", "classes": ["chat", "rag"]} for agents in (4, 8, 6)
    ]
    assert [(row.run_id, row.arm, row.probe, row.at_ns, row.outcome) for row in stored] == [
        ("r", "a", "capacity", 7, outcome) for outcome in ("ok", "queued", "void")
    ]
    details = [json.loads(row.detail or "") for row in stored]
    assert [(each["held"], each["minutes"]) for each in details] == [(True, 1.5), (False, 1.5), (False, 1.5)]
    assert details[0] == asdict(trials[0]) | {"held": True, "minutes": 1.5}
    nothing = list(rows(replace(found, holds=None), run_id="r", at_ns=7, study=STUDY, classes=()))
    assert [json.loads(row.detail or "")["held"] for row in nothing] == [False] * 3


def test_a_pool_twice_as_large_carries_about_twice_the_agents_whose_contexts_stay() -> None:
    # So long that few of them begin within a trial: a first turn takes longer than the limit whatever the pool.
    turns = tuple(
        Turn(add=(Segment(role="user", tokens=30_000 if i == 0 else 200, key=f"u{i}"),), output=60, wait="user", wait_s=30.0 if i else 0.0)
        for i in range(60)
    )
    sessions = tuple(Session(session=f"s{k}", workload="chat", start_s=0.0, turns=turns) for k in range(4))
    own = tuple(
        replace(s, turns=tuple(replace(t, add=tuple(replace(p, key=f"{s.session}{p.key}") for p in t.add)) for t in s.turns))
        for s in sessions
    )
    trace = Trace(header=Header(name="t"), sessions=own)
    study = Search(traces=(TraceRef(path="t"),), servers=Virtual(profile="llama-3.1-8b-h100"), trial_s=300.0, slo=Slo(ttft_ms=1500))
    arms = quiet(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]))
    found = {name: find(study, trace, arm).holds for name, arm in arms.items()}
    assert found["bf16"] is not None
    assert found["fp8"] is not None
    assert 1.5 < found["fp8"] / found["bf16"] < 2.5


def test_the_steps_of_a_search_become_evidence_of_how_many_agents_a_gpu_carries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def agentload(*arguments: str) -> int:
        monkeypatch.setattr(
            "sys.argv", ["agentload", "simulate", "demo-chat", "--profile", "llama-3.1-8b-h100", "--db", str(database), *arguments]
        )
        return cli.main()

    database = tmp_path / "x.duckdb"
    assert agentload("--arms", "bf16") == 0
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    assert agentload("--arms", "bf16", "--find", "max-concurrency", "--minutes", "1", "--slo", "tpot=9", "--into", run) == 0
    with reading(database) as connection:
        points = capacity(connection, run, ["bf16"], ["chat"])
        ((_, workload, holds, breaks),) = [(each.arm, each.workload, each.holds, each.breaks) for each in held(connection, run, ["chat"])]
    assert (workload, holds) == (None, max(point.agents for point in points if breaks is None or point.agents < breaks))
    assert len({point.agents for point in points}) == len(points) >= 2
    assert all(point.turns >= point.within_slo for point in points)
    assert agentload("--find", "max-concurrency", "--into", "nobody") == 1


def searched(troubles: dict[int, Trouble | None], *, arm: str = "bf16") -> Found:
    trials = tuple(replace(TRIAL, load=load, trouble=trouble) for load, trouble in sorted(troubles.items()))
    held = [each.load for each in trials if each.trouble is None]
    broken = [each.load for each in trials if each.trouble is not None]
    return Found(arm=arm, holds=max(held, default=None), breaks=min(broken, default=None), trials=trials)


def test_a_search_that_is_made_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    first = searched({4: None, 8: None, 16: None, 32: None, 64: "slo"})
    keep_searches([first, searched({4: None, 8: "slo"}, arm="fp8")], database, run="r", at_ns=5, study=STUDY, classes={"chat"})
    later = searched({4: None, 8: None, 12: None, 13: "slo", 16: "slo"})
    keep_searches([later], database, run="r", at_ns=7, study=extended(STUDY, slo=Slo(tpot_ms=50)), classes={"chat"})
    with reading(database) as connection:
        assert held(connection, "r", ["chat"]) == (
            Held(arm="bf16", workload=None, holds=12, breaks=13),
            Held(arm="fp8", workload=None, holds=4, breaks=8),
        )
        assert [point.agents for point in capacity(connection, "r", ["bf16"], ["chat"])] == [4, 8, 12, 13, 16]
    # A simulated one has no date and counts as the last.
    keep_searches([searched({2: None, 3: "slo"})], database, run="r", at_ns=None, study=STUDY, classes={"chat"})
    with reading(database) as connection:
        assert held(connection, "r", ["chat"])[0] == Held(arm="bf16", workload=None, holds=2, breaks=3)


def test_a_search_is_of_the_whole_server_only_with_sessions_of_all_its_classes(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    for at_ns, classes in enumerate(({"rag"}, {"chat", "code"}, {"chat", "code", "rag"})):
        keep_searches([searched({at_ns + 1: None})], database, run="r", at_ns=at_ns, study=STUDY, classes=classes)
    with reading(database) as connection:
        found = held(connection, "r", ["chat", "code", "rag"])
        assert sorted((each.workload or "", each.holds) for each in found) == [("", 3), ("chat + code", 2), ("rag", 1)]
        assert {(each.workload, each.holds) for each in held(connection, "r", ["chat"])} == {(None, 3), ("rag", 1)}


def test_steps_say_what_the_servers_own_trouble_was_and_void_ones_nothing(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    trials = (
        replace(TRIAL, load=4, within=99, hit_rate=0.9),
        replace(TRIAL, load=8, within=90, found_again=0.96, trouble="slo"),
        replace(TRIAL, load=16, preemptions=2, trouble="preempted"),
        Trial(load=32, died="gone", trouble="died"),
        Trial(load=64, void="other requests"),
    )
    found = Found(arm="bf16", holds=4, breaks=8, trials=trials)
    keep_searches([found], database, run="r", at_ns=1, study=extended(STUDY, slo=Slo(ttft_ms=9)), classes={"chat"})
    with reading(database) as connection:
        points = capacity(connection, "r", ["bf16"], ["chat"])
        outcomes = connection.execute("SELECT outcome FROM probes ORDER BY (settings ->> 'agents')::INT").fetchall()
    assert points[0] == CapacityPoint(
        arm="bf16", agents=4, turns=100, within_slo=99, minutes=1.0, pool_filled=False, preemptions=0, hit_rate=0.9, output_tokens_per_s=0.0
    )
    # Not one page in fifty more than at the best load was let go of, until it was.
    assert [(each.agents, each.trouble, each.pool_filled) for each in points[1:]] == [
        (8, None, True),
        (16, "preempted", True),
        (32, "died", None),
    ]
    assert [outcome for (outcome,) in outcomes] == ["ok", "slo", "preempted", "died", "void"]


ARM = Endpoint(name="bf16", url="http://127.0.0.1:1/v1")
SLO = Slo(ttft_ms=100.0)
LIVE = Search(traces=(TraceRef(path="t"),), servers=Live(endpoints="e"), slo=SLO, trial_s=4.0, start=4)
CROWD = Crowd(study=LIVE, trace=Trace(header=Header(name="t"), sessions=()))
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


def tried(monkeypatch: pytest.MonkeyPatch, trials: Mapping[int, tuple[Trial, str | None] | str]) -> tuple[Found, list[str]]:
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
    found, told = tried(monkeypatch, {4: (HOLDS, "requests left 40 ms late"), 8: (SLOW, "requests left 40 ms late")})
    assert (found.holds, found.breaks) == (4, None)
    assert [line for line in told if line.startswith("warning")] == [
        "warning: bf16: the search ends at 8 sessions, which say nothing of the server: it may be our own side: requests left 40 ms late"
    ]


def test_the_servers_own_trouble_counts_however_late_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    late = "requests left 40 ms late"
    trials = {4: (HOLDS, None), 8: (replace(SLOW, preemptions=3), late), 6: (HOLDS, None), 7: (replace(HOLDS, waiting_share=0.5), late)}
    found, told = tried(monkeypatch, trials)
    assert (found.holds, found.breaks, [each.trouble for each in found.trials]) == (6, 7, [None, None, "queued", "preempted"])
    assert told[1] == "bf16: 8 sessions: 0% of 10 turns hold, 3 preemptions, waiting 0% of the time"


def test_a_server_that_is_gone_for_good_leaves_what_was_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    died = Trial(load=0, turns=9, died="it stopped answering")
    found, _ = tried(monkeypatch, {4: (HOLDS, None), 8: (died, None), 6: "bf16: connection refused"})
    assert (found.holds, found.breaks) == (4, 8)
    assert found.broken is not None
    assert found.broken.trouble == "died"
    assert found.void == Trial(load=6, void="bf16: connection refused")
    with pytest.raises(EndpointError, match="refused"):
        tried(monkeypatch, {4: "bf16: connection refused"})


def test_a_server_without_metrics_is_told_to_be_judged_by_its_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = replace(HOLDS, preemptions=None, waiting_share=None)
    found, told = tried(monkeypatch, {4: (blind, None), 8: (SLOW, None), 6: (blind, None), 7: (SLOW, None)})
    assert (found.holds, found.breaks) == (6, 7)
    assert told[0] == "bf16: 4 sessions: 100% of 10 turns hold, the server does not tell whether it preempts and queues"
