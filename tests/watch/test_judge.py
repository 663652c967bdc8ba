"""Runs of one server in virtual time, a slower one behind the same name for some of them: one alarm, closed when it is over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agentload.experiment.arms import arms_of
from agentload.experiment.load_traces import load_traces
from agentload.experiment.plan import plan
from agentload.experiment.simulate import Simulation
from agentload.model.plan import ClosedLoop, Load
from agentload.model.profile import ArmProfile
from agentload.model.rows import RunRow
from agentload.store import journal
from agentload.store.loader import load
from agentload.watch.alarms import Rule, alarms
from agentload.watch.history import Execution
from agentload.watch.job import Job
from agentload.watch.judge import facts, judged
from agentload.watch.schedule import Schedule
from tests.watch.histories import execution

JOB = Job(name="nightly", traces=("demo-rag",), endpoints="emulated:gpt-oss-20b-h100/bf16", schedule=Schedule(cron="0 2 * * *"))
STEP_TIMES = ("decode_ms", "decode_ms_per_token", "prefill_ms_per_token", "prefill_ms_per_pair", "weights_ms", "host_ms_per_token")


def slower(arm: ArmProfile, by: float) -> ArmProfile:
    """Return the arm with every step longer by this share."""
    assert arm.step is not None
    times = {name: getattr(arm.step, name) * (1 + by) for name in STEP_TIMES}
    return replace(arm, step=replace(arm.step, **times))


def played(arm: ArmProfile, database: Path, *, number: int) -> str:
    """Play the trace once in virtual time with the noise of this run, and store it."""
    trace, trace_hash = load_traces(JOB.traces)
    run = f"run{number}"
    made = plan(trace, ["prod"], run=run, pairs=4, load=Load(arrivals=ClosedLoop(sessions=1)))
    simulation = Simulation(plan=replace(made, seed=number), arms={"prod": arm}, trace_hash=trace_hash, command="")
    path = database.parent / f"{run}.journal"
    with journal.Writer(path) as writer:
        for row in simulation.rows():
            writer.append(replace(row, seed=0) if isinstance(row, RunRow) else row)
    load([path], database)
    return run


def executed(arm: ArmProfile, database: Path, *, number: int) -> Execution:
    run = played(arm, database, number=number)
    told = facts(database, run)
    if number == 0:
        return execution(0, facts=told)
    found = judged(database, run, "run0", arms=("prod",), job=JOB)
    assert found.void is None, found.void
    changes = tuple(each for each in found.changes if each.metric in JOB.metrics)
    return execution(number, facts=told, reference="run0", changes=changes)


@pytest.mark.slow
def test_a_slowdown_of_8_percent_on_one_server_is_one_alarm_that_closes_when_it_is_over(tmp_path: Path) -> None:
    database = tmp_path / "x.duckdb"
    (arm,) = arms_of("gpt-oss-20b-h100", ["bf16"])
    servers = [arm] * 11 + [slower(arm, 0.08)] * 3 + [arm] * 2
    past = [executed(each, database, number=number) for number, each in enumerate(servers)]
    spans = [(each.kind, each.metric, each.run_id, each.closed_ns == past[14].ended_ns) for each in alarms(past, Rule())]
    assert spans == [("regression", "prod: turn_ms", "r11", True)]


@pytest.mark.slow
def test_quiet_runs_of_one_server_raise_nothing(tmp_path: Path) -> None:
    (arm,) = arms_of("gpt-oss-20b-h100", ["bf16"])
    past = [executed(arm, tmp_path / "x.duckdb", number=number) for number in range(16)]
    assert alarms(past, Rule()) == ()
