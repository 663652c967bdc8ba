from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from advisor.assess.room import hit_cliff
from advisor.loads import CapacityPoint
from advisor.policy import ServiceLimits as Level
from agentload.cli import main as cli
from agentload.cli._results import cliff_lines
from agentload.evidence.capacity import capacity, concurrency
from agentload.evidence.view import run_view
from agentload.kvmath.pool import pool_of
from agentload.layout.steady import steady
from agentload.model.plan import Load
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.capacity import (
    START,
    ArmLoad,
    arm_loads,
    keep_searches,
    rows,
    search,
    simulate_trial,
    trial_plan,
    trial_seed,
    try_loads,
)
from agentload.run.servers import arms_of
from agentload.run.simulate import without_noise
from agentload.run.trial import Trial, Trouble
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.change import extend
from agentload.study.kinds import Search
from agentload.study.parts import Slo, TraceRef, Virtual
from tests.evidence.runs import run

STUDY = Search(traces=(TraceRef(path="t"),), servers=Virtual(profile="p"), trial_s=60.0)
TRIAL = Trial(load=0, turns=100, within=100, preemptions=0, peak_kv_usage=0.5, found_again=0.99)


def begun(folder: Path) -> Path:
    """Return a database with a run that has no calls yet."""
    database = folder / "x.duckdb"
    keep([replace(run(), run_id="r")], database, run_id="r", name="begun")
    return database


@pytest.mark.slow
@pytest.mark.parametrize("searches", [8, 24])
def test_the_interval_of_a_search_covers_what_a_long_run_would_find(searches: int) -> None:
    # Draws of sessions move where a trial breaks by 15%; a
    # long run sees their mean, where 95% of the turns hold.
    covered = 0
    for seed in range(searches):
        rng = Random(seed)

        def attempt(load: float, _: int, rng: Random = rng) -> Trial:
            share = 1 / (1 + (load / (21 * rng.lognormvariate(0.0, 0.15))) ** 12)
            within = sum(rng.random() < share for _ in range(200))
            return replace(
                TRIAL, load=load, turns=200, within=within, trouble=None if within >= 190 else "slo"
            )

        tried = search("a", attempt, start=8, whole=True, share=0.95)
        (found,) = arm_loads({"a": tried}, share=0.95)
        assert len(tried) <= 24
        assert found.low is not None
        assert found.high is not None
        covered += (
            math.floor(found.low) <= 14 <= math.floor(found.high)
        )  # at 14.6 the mean share is 95%
    assert covered >= 0.85 * searches


def trial(load: float, limit: float) -> Trial:
    """Return a trial on a server that carries whatever is not above a limit."""
    return replace(
        TRIAL,
        load=load,
        within=100 if load <= limit else 50,
        trouble=None if load <= limit else "slo",
    )


def test_a_load_that_never_holds_or_never_breaks_is_said() -> None:
    (never,) = arm_loads(
        {"a": search("a", lambda load, _: trial(load, 0), start=8, whole=True, share=0.95)},
        share=0.95,
    )
    assert (never.holds, never.low, [each.load for each in never.trials]) == (
        None,
        None,
        [1, 2, 4, 8],
    )
    (always,) = arm_loads(
        {"a": search("a", lambda load, _: trial(load, 1e9), start=8, whole=True, share=0.95)},
        share=0.95,
    )
    assert (always.holds, always.high, always.broken) == (16384, None, None)


@pytest.mark.parametrize("void_at", [2, 4, 7])
def test_a_void_trial_is_no_trouble_and_ends_the_search_once_a_load_has_held(void_at: int) -> None:
    def attempt(load: float, number: int) -> Trial:
        return (
            Trial(load=load, void="other requests")
            if number == void_at
            else replace(trial(load, 21), found_again=number)
        )

    tried = search("a", attempt, start=8, whole=True, share=0.95)
    (found,) = arm_loads({"a": tried}, share=0.95)
    assert [each.void for each in tried] == [None] * void_at + ["other requests"]
    assert found.void == tried[-1]
    assert found.holds is not None
    assert (found.high is None) == (void_at < 3)  # 8, 16, 32


@pytest.mark.parametrize(("carried", "loads"), [(4, [8, 4]), (1, [8, 4, 2, 1]), (0, [8, 4, 2, 1])])
def test_a_load_that_is_too_much_for_the_client_is_followed_by_smaller_ones(
    carried: int, loads: list[int]
) -> None:
    def attempt(load: float, _: int) -> Trial:
        return trial(load, 21) if load <= carried else Trial(load=load, void="requests left late")

    tried = search("a", attempt, start=8, whole=True, share=0.95)
    (found,) = arm_loads({"a": tried}, share=0.95)
    assert [each.load for each in tried][: len(loads)] == loads
    assert (found.holds is None) == (carried == 0)
    assert found.void is not None
    assert len(tried) <= len(loads) + 3, "what the client cannot carry is not tried again and again"


@pytest.mark.parametrize(
    ("start", "limit", "whole", "begins"),
    [
        (8.0, 21.0, True, [8.0, 16.0, 32.0]),
        (8.0, 3.0, True, [8.0, 4.0, 2.0]),
        (8.0, 0.0, True, [8.0, 4.0, 2.0, 1.0]),
        (0.5, 0.3, False, [0.5, 0.25]),
    ],
)
def test_loads_are_doubled_until_one_breaks_and_halved_until_one_holds(
    start: float, limit: float, begins: list[float], *, whole: bool
) -> None:
    tried = search("a", lambda load, _: trial(load, limit), start=start, whole=whole, share=0.95)
    assert [each.load for each in tried[: len(begins)]] == begins
    assert all(each.load == round(each.load) for each in tried) or not whole


def test_one_lucky_draw_is_not_believed() -> None:
    # The server carries 10; the first trial above that drew sessions that are easy on it.
    def attempt(load: float, number: int) -> Trial:
        return trial(load, 40 if number == 1 else 10)

    tried = search("a", attempt, start=8, whole=True, share=0.95)
    (found,) = arm_loads({"a": tried}, share=0.95)
    assert found.low is not None
    assert found.high is not None
    assert math.floor(found.low) <= 10 <= math.floor(found.high)


def test_each_trial_of_a_search_is_another_window() -> None:
    turns = tuple(Turn(add=(), output=1, wait="user", wait_s=9.0) for _ in range(9))
    given_ = tuple(
        Session(session=f"s{k}", workload="chat", start_s=float(k), turns=turns) for k in range(20)
    )
    stock = steady(Trace(header=Header(name="t"), sessions=given_), Load())
    seeds = [trial_seed(STUDY, arm, number) for arm in ("bf16", "fp8") for number in range(3)]
    plans = [trial_plan(STUDY, stock, "a", 3, run="r", seed=seed) for seed in seeds]
    first = [
        tuple((each.session, len(each.turns)) for each in islice(made.blocks[0].sessions, 3))
        for made in plans
    ]
    assert len(set(first)) == len(seeds)
    assert trial_seed(STUDY, "fp8", 2) == seeds[-1]
    shared = extend(STUDY, windows=2)
    assert [trial_seed(shared, arm, number) for arm in ("bf16", "fp8") for number in range(3)] == 2 * [
        trial_seed(shared, "bf16", 0), trial_seed(shared, "bf16", 1), trial_seed(shared, "bf16", 0)
    ]  # fmt: skip


def test_each_step_is_stored_with_what_was_tried_and_whether_it_held() -> None:
    trials = (
        replace(TRIAL, load=4),
        replace(TRIAL, load=8, trouble="queued"),
        Trial(load=6, void="other requests"),
    )
    found = ArmLoad(arm="a", holds=4, low=4, high=8, trials=trials)
    study = extend(STUDY, trial_s=90.0, slo=Slo(ttft_ms=100.0))
    stored = list(rows(found, run_id="r", at_ns=7, study=study, classes={"rag", "chat"}))
    assert [json.loads(row.settings) for row in stored] == [
        {
            "agents": agents,
            "slo": "ttft=100ms",
            "share": 0.95,
            "classes": ["chat", "rag"],
            "trial": number,
        }
        for number, agents in enumerate((4, 8, 6))
    ]
    assert [(row.run_id, row.arm, row.probe, row.at_ns, row.outcome) for row in stored] == [
        ("r", "a", "capacity", 7, outcome) for outcome in ("ok", "queued", "void")
    ]
    details = [json.loads(row.detail or "") for row in stored]
    assert details == [asdict(each) | {"minutes": 1.5} for each in trials]


def long_sessions() -> Trace:
    """Return sessions of 30,000 tokens and more."""
    # So long that few of them begin within a trial: a first
    # turn takes longer than the limit whatever the pool.
    turns = tuple(
        Turn(
            add=(Segment(role="user", tokens=30_000 if i == 0 else 200, key=f"u{i}"),),
            output=60,
            wait="user",
            wait_s=30.0 if i else 0.0,
        )
        for i in range(60)
    )
    sessions = tuple(
        Session(session=f"s{k}", workload="chat", start_s=0.0, turns=turns) for k in range(4)
    )
    own = tuple(
        replace(
            s,
            turns=tuple(
                replace(t, add=tuple(replace(p, key=f"{s.session}{p.key}") for p in t.add))
                for t in s.turns
            ),
        )
        for s in sessions
    )
    return Trace(header=Header(name="t"), sessions=own)


@pytest.mark.slow
def test_a_pool_twice_as_large_carries_about_twice_the_agents_whose_contexts_stay() -> None:
    trace = long_sessions()
    study = Search(
        traces=(TraceRef(path="t"),),
        servers=Virtual(profile="llama-3.1-8b-h100"),
        trial_s=300.0,
        slo=Slo(ttft_ms=1500),
    )
    arms = without_noise(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]))
    stock = steady(trace, study.load.planned())
    found = {
        each.arm: each.holds
        for each in arm_loads(
            {
                name: try_loads(
                    study, name, partial(simulate_trial, study, stock, arm), start=START[study.find]
                )
                for name, arm in arms.items()
            },
            share=study.share,
        )
    }
    assert found["bf16"] is not None
    assert found["fp8"] is not None
    assert 1.5 < found["fp8"] / found["bf16"] < 2.5


def test_the_hit_rate_falls_off_where_the_contexts_overflow_the_pool() -> None:
    study = extend(STUDY, trial_s=120.0, slo=Slo(ttft_ms=1500))
    stock = steady(long_sessions(), study.load.planned())
    context = 30_000 + 30 * 260  # half way through the 60 turns of a session
    for name, arm in without_noise(arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])).items():
        fits = pool_of(arm).tokens / context
        loads = sorted({round(share * fits) for share in (0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5)})
        tried = [simulate_trial(study, stock, arm, load, 1) for load in loads]
        cliff = hit_cliff(
            name, None, [(each.load, each.hit_rate, each.ideal_hit_rate) for each in tried]
        )
        assert cliff is not None
        assert 0.8 * fits <= cliff.kept_at <= 1.05 * fits
        assert 0.95 * fits <= cliff.agents <= 1.2 * fits
        assert cliff.hit_rate < 0.9 < cliff.ideal_hit_rate
        (line,) = cliff_lines([ArmLoad(arm=name, holds=1, low=1, high=1, trials=tuple(tried))])
        assert line.startswith(f"{name}: hit rate falls off at {cliff.agents:.0f} sessions, to ")


def test_the_steps_of_a_search_become_evidence_of_how_many_agents_a_gpu_carries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def agentload(*arguments: str) -> int:
        monkeypatch.setattr(
            "sys.argv",
            [
                "agentload",
                "simulate",
                "demo-chat",
                "--profile",
                "llama-3.1-8b-h100",
                "--db",
                str(database),
                *arguments,
            ],
        )
        return cli.main()

    database = tmp_path / "x.duckdb"
    assert agentload("--arms", "bf16") == 0
    with reading(database) as connection:
        ((run,),) = connection.execute("SELECT run_id FROM runs").fetchall()
    assert (
        agentload(
            "--arms",
            "bf16",
            "--find",
            "max-concurrency",
            "--minutes",
            "1",
            "--slo",
            "tpot=9",
            "--into",
            run,
        )
        == 0
    )
    with reading(database) as connection:
        points = capacity(run_view(connection, run), ["bf16"], ["chat"])
        ((_, workload, holds, breaks),) = [
            (each.arm, each.workload, each.holds, each.breaks)
            for each in concurrency(run_view(connection, run), ["chat"])
        ]
    assert workload is None
    assert holds is not None
    assert breaks is None or holds < breaks
    assert len(points) >= 2
    assert all(point.turns >= point.within_slo for point in points)
    assert agentload("--find", "max-concurrency", "--into", "nobody") == 1


def searched(troubles: dict[int, Trouble | None], *, arm: str = "bf16") -> ArmLoad:
    trials = tuple(
        replace(TRIAL, load=load, within=100 if found is None else 50, trouble=found)
        for load, found in sorted(troubles.items())
    )
    (found,) = arm_loads({arm: trials}, share=0.95)
    return found


def test_a_search_that_is_made_again_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    database = begun(tmp_path)
    first = searched({4: None, 8: None, 16: None, 32: None, 64: "slo"})
    keep_searches(
        [first, searched({4: None, 8: "slo"}, arm="fp8")],
        database,
        run="r",
        at_ns=5,
        study=STUDY,
        classes={"chat"},
    )
    later = searched({4: None, 8: None, 12: None, 13: "slo", 16: "slo"})
    keep_searches(
        [later],
        database,
        run="r",
        at_ns=7,
        study=extend(STUDY, slo=Slo(tpot_ms=50)),
        classes={"chat"},
    )
    with reading(database) as connection:
        bf16, fp8 = concurrency(run_view(connection, "r"), ["chat"])
        assert (bf16.arm, fp8.arm) == ("bf16", "fp8")
        assert bf16.holds is not None
        assert fp8.holds is not None
        assert fp8.holds < 8 <= bf16.holds < 13
        assert [
            point.agents for point in capacity(run_view(connection, "r"), ["bf16"], ["chat"])
        ] == [4, 8, 12, 13, 16]
    # A simulated one has no date and counts as the last.
    keep_searches(
        [searched({2: None, 3: "slo"})],
        database,
        run="r",
        at_ns=None,
        study=STUDY,
        classes={"chat"},
    )
    with reading(database) as connection:
        assert concurrency(run_view(connection, "r"), ["chat"])[0].holds in (1, 2)


def test_trials_of_one_load_are_all_kept(tmp_path: Path) -> None:
    database = begun(tmp_path)
    trials = tuple(
        replace(TRIAL, load=load, within=within)
        for load, within in ((8, 99), (8, 97), (12, 60), (12, 80))
    )
    keep_searches(
        arm_loads({"bf16": trials}, share=0.95),
        database,
        run="r",
        at_ns=1,
        study=STUDY,
        classes={"chat"},
    )
    with reading(database) as connection:
        points = capacity(run_view(connection, "r"), ["bf16"], ["chat"])
    assert sorted((each.agents, each.within_slo) for each in points) == [
        (8, 97),
        (8, 99),
        (12, 60),
        (12, 80),
    ]


def test_a_search_is_of_the_whole_server_only_with_sessions_of_all_its_classes(
    tmp_path: Path,
) -> None:
    database = begun(tmp_path)
    for at_ns, classes in enumerate(({"rag"}, {"chat", "code"}, {"chat", "code", "rag"})):
        keep_searches(
            [searched({at_ns + 1: None})],
            database,
            run="r",
            at_ns=at_ns,
            study=STUDY,
            classes=classes,
        )
    with reading(database) as connection:
        found = concurrency(run_view(connection, "r"), ["chat", "code", "rag"])
        assert sorted((each.workload or "", each.holds) for each in found) == [
            ("", 3),
            ("chat + code", 2),
            ("rag", 1),
        ]
        assert {
            (each.workload, each.holds) for each in concurrency(run_view(connection, "r"), ["chat"])
        } == {(None, 3), ("rag", 1)}


def test_steps_say_what_the_servers_own_trouble_was_and_void_ones_nothing(tmp_path: Path) -> None:
    database = begun(tmp_path)
    trials = (
        replace(TRIAL, load=4, within=99, hit_rate=0.9),
        replace(TRIAL, load=8, within=90, found_again=0.96, trouble="slo"),
        replace(TRIAL, load=16, preemptions=2, trouble="preempted"),
        Trial(load=32, died="gone", trouble="died"),
        Trial(load=64, void="other requests"),
    )
    found = ArmLoad(arm="bf16", holds=4, low=3, high=8, trials=trials)
    keep_searches(
        [found],
        database,
        run="r",
        at_ns=1,
        study=extend(STUDY, slo=Slo(ttft_ms=9)),
        classes={"chat"},
    )
    with reading(database) as connection:
        points = capacity(run_view(connection, "r"), ["bf16"], ["chat"])
        outcomes = connection.execute(
            "SELECT outcome FROM probes ORDER BY (settings ->> 'agents')::INT"
        ).fetchall()
    assert points[0] == CapacityPoint(
        arm="bf16",
        agents=4,
        turns=100,
        within_slo=99,
        minutes=1.0,
        pool_filled=False,
        preemptions=0,
        hit_rate=0.9,
        output_tokens_per_s=0.0,
        slo=Level(ttft_ms=9.0),
    )
    # Not one page in fifty more than at the best load was let go of, until it was.
    assert [(each.agents, each.trouble, each.pool_filled) for each in points[1:]] == [
        (8, None, True),
        (16, "preempted", True),
        (32, "died", None),
    ]
    assert [outcome for (outcome,) in outcomes] == ["ok", "slo", "preempted", "died", "void"]
