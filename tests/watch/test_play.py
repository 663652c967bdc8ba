"""What a replay came to, as the watch tells it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import AgentloadError
from agentload.layout.cost import cost
from agentload.layout.plan import Scheme, plan
from agentload.live.health import Monitor
from agentload.live.wire import WireFacts
from agentload.model.profile import Price
from agentload.run.lay import Prepared
from agentload.run.play import Played, Playing
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, TraceRef
from agentload.verdict.policy import Setting
from agentload.watch.job import Job, JobBudget
from agentload.watch.play import Sitting, bounded_study, limit, outcome, usd_per_hour
from agentload.watch.schedule import Schedule
from tests.run.playing import playing, trace

FACTS = WireFacts(unstamped_reads=0, unstamped_sends=0, clock_steps=0, largest_step_ns=0)


@pytest.mark.parametrize(
    ("died", "was_stopped", "stopped", "found"),
    [
        ((), False, None, ("done", None)),
        (("prod@aa", "prod"), True, None, ("dead", "prod stopped answering")),
        (("prod",), True, "stopped by SIGTERM", ("failed", "stopped by SIGTERM")),
        (("prod",), False, None, ("done", None)),  # it came back
    ],
)
def test_a_server_is_dead_where_the_replay_ended_by_it(
    *, died: tuple[str, ...], was_stopped: bool, stopped: str | None, found: tuple[str, str | None]
) -> None:
    played = Played(run_id="r1", health=Monitor().health(FACTS), was_stopped=was_stopped, died=died)
    assert outcome(played, stopped=stopped) == found


STUDY = Replay(traces=(TraceRef(path="demo-chat"),), servers=Live(endpoints="x"))
JOB = Job(name="nightly", study=STUDY, schedule=Schedule(cron="0 2 * * *"), control=False)
ONE = Endpoint(name="a", url="http://127.0.0.1:1/v1", price_per_hour=2.5, gpus=2)
MANY = replace(
    ONE,
    name="b",
    gpus=None,
    price_per_hour=4.0,
    metrics=("http://127.0.0.1:1/metrics", "http://127.0.0.1:2/metrics"),
)


def test_servers_cost_by_their_gpus_and_replicas_and_the_policy_has_the_last_word() -> None:
    assert usd_per_hour(JOB, (ONE, MANY)) == 2.5 * 2 + 4.0 * 2
    assert usd_per_hour(JOB, (ONE, replace(MANY, price_per_hour=None))) is None
    ours = replace(JOB, setting=Setting(price=Price(usd_per_gpu_hour=1.0, source="our contract")))
    assert usd_per_hour(ours, (ONE, MANY)) == 4.0


@pytest.mark.parametrize(
    ("budget", "seconds", "told"),
    [
        (JobBudget(minutes=30), 1800, "time limit of 30 minutes"),
        (JobBudget(minutes=30, usd=1), 720, "cost limit of 1 USD, at 5 USD an hour"),
        (JobBudget(minutes=10, usd=1), 600, "time limit of 10 minutes"),
    ],
)
def test_the_tighter_limit_counts(budget: JobBudget, seconds: float, told: str) -> None:
    found = limit(replace(JOB, budget=budget), 5.0, is_controlled=False)
    assert (found.seconds, found.told) == (seconds, told)


def test_a_reference_with_its_control_may_take_twice_as_much() -> None:
    job = replace(JOB, control=True, budget=JobBudget(minutes=30, usd=1))
    assert [limit(job, 5.0, is_controlled=each).seconds for each in (True, False)] == [1440, 720]
    assert (
        limit(job, 5.0, is_controlled=True).told
        == "cost limit of 1 USD, twice for a run with its control, at 5 USD an hour"
    )
    assert (job.longest_s, JOB.longest_s) == (3600, 3600)


def test_a_limit_counts_from_the_beginning_of_the_run_and_not_of_each_part(tmp_path: Path) -> None:
    async def part(sitting: Sitting, *, at_most_s: float) -> float:
        began_s, stopped = time.monotonic(), asyncio.Event()
        with sitting.stopping(stopped.set), suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), at_most_s)
        return time.monotonic() - began_s

    def left_for_the_second_part() -> float:
        sitting = Sitting(job=replace(JOB, budget=JobBudget(minutes=1 / 60)), is_controlled=False)
        laid_out = plan(trace(), ["a"], run="r1", scheme=Scheme(pairs=1))
        made = playing(laid_out, (), tmp_path / "x.duckdb")
        begun = sitting.begin(Prepared(playing=made, cost=lambda: cost(laid_out))).playing
        assert isinstance(begun, Playing)
        assert begun.notes.job == "nightly"
        asyncio.run(part(sitting, at_most_s=0.9))
        left_s = asyncio.run(part(sitting, at_most_s=100.0))
        assert sitting.stopped == "time limit of 0.0166667 minutes"
        return left_s

    # A machine that stands still in the second part is asked again.
    assert any(left_for_the_second_part() < 1.0 for _ in range(5))


def test_dollars_without_a_price_are_refused() -> None:
    with pytest.raises(
        AgentloadError, match=r"budget.usd is 1, but not every endpoint has a price"
    ):
        limit(replace(JOB, budget=JobBudget(usd=1)), None, is_controlled=True)


def test_servers_that_cost_nothing_are_bounded_by_the_minutes_alone() -> None:
    free = limit(replace(JOB, budget=JobBudget(minutes=30, usd=1)), 0.0, is_controlled=False)
    assert (free.seconds, free.told) == (1800, "time limit of 30 minutes")


def test_a_budget_of_calls_is_shared_by_pairs_on_windows_of_the_whole_trace() -> None:
    study = JOB.study
    bounded = bounded_study(study, 2 * 10 * study.pairs + 1, arms=2)
    assert bounded == extend(study, max_calls=10, windows=bounded.windows)
    assert 1 <= (bounded.windows or 0) <= study.pairs
    assert bounded_study(study, None, arms=2) == study
    with pytest.raises(AgentloadError, match="less than one for each of 2 arms"):
        bounded_study(study, 1, arms=2)
