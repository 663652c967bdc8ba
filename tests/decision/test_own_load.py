"""Whose load a figure is about: pairs that overfill a pool bound a
change, and long runs of twins say it for loads that no pair had.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import agentload
from advisor.estimate import Estimate
from advisor.loads import PairLoad, TwinChange
from agentload.decision import own_load
from agentload.decision.own_load import OwnLoad, rows
from agentload.emulator.steptime import off
from agentload.evidence.capacity import TWINS, twin_changes
from agentload.evidence.view import run_view
from agentload.layout.steady import steady
from agentload.layout.windows import sessions_of_hours, windows_played
from agentload.model.profile import ArmProfile
from agentload.model.trace import Trace
from agentload.run.files import read_traces
from agentload.run.servers import arms_of
from agentload.store.database import reading
from agentload.store.loader import keep
from agentload.study.kinds import Replay, Search
from agentload.study.parts import Load, TraceRef, Virtual
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import verdict
from tests.decision.hours import steady_calls, timed
from tests.evidence.runs import run

PROFILE = "llama-3.1-8b-h100"
ARMS = ("bf16", "fp8")
WAITS = Load(wait_cap_s={"user": 5.0})


def trace_of(name: str, *, longest: int | None = None) -> Trace:
    found, _ = read_traces((TraceRef(path=name),), max_context_tokens=longest)
    return Trace(header=found.header, sessions=tuple(found.sessions))


def arms() -> dict[str, ArmProfile]:
    return {arm.name: off(arm) for arm in arms_of(PROFILE, ARMS)}


def of(value: float, half: float) -> Estimate:
    return Estimate(
        value=value, low=value - half, high=value + half, n=6, unit="relative", method="m"
    )


def test_changes_on_twins_are_kept_beside_a_run_and_the_last_of_each_load_counts(
    tmp_path: Path,
) -> None:
    first = TwinChange(arm="fp8", agents=12, is_own=True, relative=of(-0.3, 0.1))
    others = (
        replace(first, relative=of(-0.35, 0.03)),
        replace(first, agents=8, is_own=False, relative=of(-0.4, 0.1).as_bound()),
    )
    keep([replace(run(), run_id="r")], tmp_path / "x.duckdb", run_id="r", name="begun")
    for found in ((first,), others):
        keep(rows(found, run_id="r"), tmp_path / "x.duckdb", run_id="r", name=TWINS)
    with reading(tmp_path / "x.duckdb") as connection:
        assert twin_changes(run_view(connection, "r")) == others


@pytest.mark.slow
def test_twins_bound_a_change_and_each_call_weighs_the_same() -> None:
    study = Search(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile=PROFILE, arms=ARMS),
        load=WAITS,
        trial_s=120.0,
        seed=1,
    )
    stock = steady(trace_of("demo-chat"), WAITS.planned())
    (found,) = OwnLoad(agents=3, is_own=True, study=study, stock=stock).changes(
        arms(), reference="bf16"
    )
    assert (found.arm, found.agents, found.is_own) == ("fp8", 3, True)
    assert found.relative.n == own_load.DRAWS
    assert found.relative.is_bound or not (
        found.relative.is_above(0.0) or found.relative.is_below(0.0)
    )
    equal = own_load._estimate(
        [[-0.2, -0.2], [-0.2], [-0.2, -0.2, -0.2]]
    )  # the values, not the engine's
    assert (equal.value, equal.low, equal.high) == pytest.approx((math.expm1(-0.2),) * 3)
    assert own_load._estimate([[-0.1] * 9, [-0.2]]).value == pytest.approx(math.expm1(-0.11))


def test_twins_that_have_no_turn_in_common_say_nothing_of_a_change() -> None:
    study = Search(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile=PROFILE, arms=ARMS),
        load=WAITS,
        trial_s=1.0,
        seed=1,
    )
    stock = steady(trace_of("demo-chat"), WAITS.planned())
    assert (
        list(
            OwnLoad(agents=1, is_own=True, study=study, stock=stock).changes(
                arms(), reference="bf16"
            )
        )
        == []
    )


def test_a_run_of_windows_knows_its_load_and_says_it_first(tmp_path: Path) -> None:
    load = Load(sessions=2, wait_cap_s={"user": 5.0}, duration_s=20.0)
    study = Replay(
        traces=(TraceRef(path="demo-chat"),),
        servers=Virtual(profile=PROFILE, arms=ARMS),
        pairs=4,
        windows=4,
        load=load,
    )
    run = agentload.simulate(study, db=tmp_path / "x.duckdb")
    found = verdict(run.database, run.run_id, setting=Setting())
    played = found.decision.pair_load
    assert played is not None
    assert played.held_tokens is not None
    assert 0 < played.held_tokens < 100_000
    assert played.sessions_of_hours == pytest.approx(2)
    assert replace(played, held_tokens=None, sessions_of_hours=None) == PairLoad(
        sessions=2, user_wait_s=5.0
    )
    lines = run.report().render("txt").splitlines()
    (line,) = (each for each in lines if each.startswith("Load: "))
    assert line == (
        "Load: block pairs have 2 sessions at once, users answer within 5 s, 174 calls per arm"
    )


@pytest.mark.parametrize(("name", "over_hours"), [("chat", 8), ("code", 30)])
def test_sessions_of_windows_are_at_work_as_often_as_more_of_them_over_hours_where_long_waits_are_cut(
    name: str, over_hours: int
) -> None:
    load = Load(sessions=8, wait_cap_s={"user": 5.0}, duration_s=75.0, max_context_tokens=131_072)
    assert (
        round(sessions_of_hours(steady(trace_of(name, longest=131_072), load.planned())) or 0)
        == over_hours
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["chat", "code"])
def test_pairs_that_overfill_a_pool_never_have_the_wrong_sign_and_bound_what_hours_of_as_much_work_show(
    name: str, tmp_path: Path
) -> None:
    said = []
    longest = min(arm.server.max_model_len for arm in arms().values())
    load = Load(sessions=8, wait_cap_s={"user": 5.0}, duration_s=75.0, max_context_tokens=longest)
    stock = steady(trace_of(name, longest=longest), load.planned())
    sessions = round(sessions_of_hours(stock) or 0)
    hours = steady_calls(
        trace_of(name, longest=longest), arms(), sessions=sessions, seconds=3 * 3600.0
    )
    truth = math.expm1(np.mean([turn.log_ratio for turn in timed(hours["bf16"], hours["fp8"])]))
    windows = windows_played(stock, 12)
    servers = Virtual(profile=PROFILE, arms=ARMS, noise=False)
    for seed in range(20):
        study = Replay(
            traces=(TraceRef(path=name),),
            servers=servers,
            pairs=12,
            windows=windows,
            load=load,
            seed=seed,
        )
        run = agentload.simulate(study, db=tmp_path / f"{seed}.duckdb")
        decision = verdict(run.database, run.run_id, setting=Setting()).decision
        (change,) = (
            each for each in decision.changes if each.metric == "turn_ms" and each.workload is None
        )
        assert change.overfull == ("bf16",)
        assert change.relative.is_bound
        said.append(change.relative.value)
    assert max(said) < 0
    assert sum(truth <= each + 0.03 for each in said) >= 18, (
        f"at least {sorted(said)}, hours of {sessions} sessions {truth:.1%}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "agents", "hours_s"), [("chat", 12, 6 * 3600.0), ("code", 10, 14 * 3600.0)]
)
def test_hours_of_a_load_keep_the_bound_that_twins_say(
    name: str, agents: int, hours_s: float
) -> None:
    longest = min(arm.server.max_model_len for arm in arms().values())
    trace, load = trace_of(name, longest=longest), Load(max_context_tokens=longest)
    stock = steady(trace, load.planned())
    lasts_s = own_load.lasting_s(stock, agents)
    study = Search(
        traces=(TraceRef(path=name),),
        servers=Virtual(profile=PROFILE, arms=ARMS),
        load=load,
        trial_s=lasts_s,
    )
    made = OwnLoad(agents=agents, is_own=True, study=study, stock=stock)
    (found,) = made.changes(arms(), reference="bf16")
    hours = steady_calls(trace, arms(), sessions=agents, seconds=hours_s, user_wait_s=None)
    truth = math.expm1(np.mean([turn.log_ratio for turn in timed(hours["bf16"], hours["fp8"])]))
    assert truth <= found.relative.value < 0


@pytest.mark.parametrize(
    ("name", "agents", "seconds"), [("code", 1, 3600.0), ("demo-chat", 12, 600.0)]
)
def test_a_run_of_twins_is_an_hour_or_shorter_where_an_hour_has_many_calls(
    name: str, agents: int, seconds: float
) -> None:
    assert own_load.lasting_s(steady(trace_of(name), WAITS.planned()), agents) == seconds
