"""Twins say where capacity is measured, and what is measured decides."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentload.decision.budget import BudgetLimit
from agentload.decision.carried_load import Bracket, LoadTrials, around
from agentload.decision.known import Known
from agentload.decision.ledger import Ledger
from agentload.decision.look import DRAWS, PAIRS, Look
from agentload.decision.means import Means
from agentload.decision.sequence import next_looks
from agentload.decision.twin import Twins
from agentload.decision.user_trace import UserTrace
from agentload.emulator.steptime import StepClock
from agentload.evidence.capacity import capacity, concurrency
from agentload.evidence.gather import gather
from agentload.evidence.twin import repeats, twins
from agentload.evidence.view import run_view
from agentload.model.apart import STEP_TIMES
from agentload.run.audience import Audience
from agentload.run.capacity import ArmLoad
from agentload.run.lay import simulation
from agentload.run.measure import simulate
from agentload.run.place import StudyPlace
from agentload.run.servers import arms_of
from agentload.run.trial import Trial, Trouble
from agentload.store.database import reading
from agentload.study.kinds import Decide, Replay
from agentload.study.parts import Load, Slo, TraceRef, Virtual
from tests.decision.test_sequence import known, verdict

LLAMA = Virtual(profile="llama-3.1-8b-h100", arms=("bf16", "fp8"))
UNLIMITED = BudgetLimit(audience=Audience(), ends_s=math.inf)
BEGUN = Known(ledger=Ledger(database=Path("x.duckdb"), run="r"))
TRACES = (TraceRef(path="demo-chat"),)
STUDY = Decide(
    traces=TRACES,
    servers=LLAMA,
    slo=Slo(ttft_ms=2000.0, tpot_ms=16.0),
    agents=400,
    budget_s=600.0,
    load=Load(wait_cap_s={"user": 2.0, "tool": 1.0}),
)


FEWER = "a does not carry the 10.0 agents of its twin (slo)"


def trial(load: int, within: int, trouble: Trouble | None = None, void: str | None = None) -> Trial:
    return Trial(load=load, turns=100, within=within, trouble=trouble, void=void)


@pytest.mark.parametrize(
    ("trials", "says"),
    [
        ((trial(10, 97), trial(10, 92, "slo"), trial(12, 90), trial(12, 60, "slo")), None),
        # What a few draws of sessions differ by is no fault of a twin's.
        ((trial(10, 97), trial(10, 70, "slo"), trial(12, 97), trial(12, 97)), None),
        # A draw of long sessions: each is worth more than an
        # ordinary one, so eight of them are beyond the limit.
        ((trial(7, 99), replace(trial(8, 40, "slo"), worth=1.3)), None),
        # A limit to the last digit is no load beyond it.
        ((replace(trial(11, 40, "slo"), worth=10 / 11), trial(12, 60, "slo")), FEWER),
        ((trial(10, 87, "slo"), trial(10, 70, "slo"), trial(12, 60, "slo")), FEWER),
        (
            (trial(10, 99, "preempted"), trial(12, 60, "slo")),
            "a does not carry the 10.0 agents of its twin (preempted)",
        ),
        ((trial(10, 99), trial(12, 99)), "a carries 12.0 agents, and its twin 10.0"),
        ((trial(10, 99), trial(12, 0, void="other requests")), "a: other requests"),
    ],
)
def test_a_twin_is_set_aside_where_its_arm_does_not_hold_at_its_limit_and_break_above(
    trials: tuple[Trial, ...], says: str | None
) -> None:
    said = ArmLoad(arm="a", holds=10.0, low=9.5, high=10.5, trials=())
    assert Bracket(said=(said,), trials={"a": trials}, share=0.95).failed == says


@given(st.floats(1, 1e4), st.floats(2, 60))
def test_trials_lie_at_the_limit_and_where_three_times_as_many_turns_miss(
    limit: float, slope: float
) -> None:
    def share(load: int) -> float:
        return 1 / (1 + math.exp(slope * math.log(load / limit) - math.log(19)))

    low, high = around(limit, share, wanted=0.95)
    assert 1 <= low <= limit < low + 1
    assert low < high
    assert share(high) <= 0.85 or high == max(low + 1, math.ceil(1.5 * limit))
    assert share(high - 1) > 0.85 or high == low + 1


def test_step_times_are_played_before_capacity_is_measured() -> None:
    before = replace(known(verdict(), pairs=PAIRS[2]), grid_plays_wanted=2)
    assert next(next_looks(before, capacity=True)) == Look(criterion="step times", amount=2)
    assert next(next_looks(replace(before, grid_plays_wanted=0), capacity=True)) == Look(
        criterion="capacity", amount=DRAWS[0]
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[LoadTrials, list[str]]:
    said: list[str] = []
    place = StudyPlace(database=tmp_path_factory.mktemp("twin") / "x.duckdb", run="r")
    simulate(
        simulation(
            Replay(traces=TRACES, servers=LLAMA, pairs=4, load=Load(sessions=4, duration_s=60.0)),
            place,
        ),
        Audience(),
    )
    audience = Audience(notice=said.append)
    means = Means(study=STUDY, place=place, audience=audience, run="r", user=UserTrace(STUDY))
    twins = Twins(means=means)
    assert twins.wanted(0) == 1, "a budget of ten minutes has time for one play"
    once = Look(criterion="step times", amount=1)
    minutes = twins.ask(once, BEGUN, UNLIMITED)
    assert minutes == pytest.approx(twins.price(once, BEGUN).minutes, rel=0.1), (
        "what a profile says of steps and prompts is its price"
    )
    return LoadTrials(means=means, twins=twins), said


def test_step_times_lie_beside_the_run_and_are_none_of_its_evidence(
    played: tuple[LoadTrials, list[str]],
) -> None:
    made, _ = played
    assert made.twins.wanted(1) == 0
    with reading(made.means.place.database) as connection:
        assert repeats(connection, "r") == 1
        evidence = gather(connection, run_view(connection, "r"))
        ((calls,),) = connection.execute(
            "SELECT count(*) FROM calls WHERE workload = ?", [STEP_TIMES]
        ).fetchall()
    assert calls > 100
    assert [each.name for each in evidence.workloads] == ["chat"]


@pytest.mark.slow
def test_twins_have_the_step_times_that_made_the_run_without_having_been_told_any(
    played: tuple[LoadTrials, list[str]],
) -> None:
    made, _ = played
    found = twins(made.means.place.database, "r")
    for arm in arms_of("llama-3.1-8b-h100", ["bf16", "fp8"]):
        assert arm.step is not None
        step = found[arm.name].arm.step
        assert step is not None
        true, told = (StepClock(step=each, experts=None, max_seqs=64) for each in (arm.step, step))
        for batch, context in ((1, 1024), (8, 8192), (17, 1024), (32, 4096), (64, 1024)):
            steps = [
                clock.base_ps[batch] + clock.per_token_ps[batch] * batch * context
                for clock in (told, true)
            ]
            assert steps[0] == pytest.approx(steps[1], rel=0.03)
            chunks = [
                clock.mixed_ps(batch, batch * context, 4096, 4096**2) for clock in (told, true)
            ]
            assert chunks[0] == pytest.approx(chunks[1], rel=0.03)
        assert found[arm.name].arm.noise.sigma == 0


@pytest.mark.slow
def test_what_twins_say_is_measured_and_kept_as_a_search(
    played: tuple[LoadTrials, list[str]],
) -> None:
    made, said = played
    found = made.bracket(DRAWS[0], BEGUN, UNLIMITED)
    assert found is not None
    assert made.twins.aside == found.failed, "a twin whose arm did otherwise is set aside"
    bf16, fp8 = found.said
    assert bf16.holds is not None
    assert fp8.holds is not None
    assert fp8.holds > bf16.holds
    for found_load in found.said:
        trials = found.trials[found_load.arm]
        assert found_load.holds is not None
        sides = [trial.load * (trial.worth or 0.0) <= found_load.holds for trial in trials]
        assert sides.count(True) == sides.count(False) == DRAWS[0], (
            "as many below what the twin carries as above it"
        )
        for each in trials:
            assert each.replay is not None
            assert each.replay.carried == found_load.holds
            assert each.replay.expected[0] >= each.replay.expected[-1], "longer steps hold fewer"
    replays = [trial.replay for own in found.trials.values() for trial in own]
    stretches = [each.stretch for each in replays if each and each.stretch is not None]
    assert len(stretches) == 4 * DRAWS[0]
    assert sum(stretches) < 0, "longer steps carry fewer"
    with reading(made.means.place.database) as connection:
        points = capacity(run_view(connection, "r"), ["bf16", "fp8"], ["chat"])
    assert len({point.worth for point in points}) > 2, (
        "what each draw is worth is kept with its trials"
    )
    assert all(point.error > 0 and point.replay is not None for point in points)
    with reading(made.means.place.database) as connection:
        limits = {each.arm: each.holds for each in concurrency(run_view(connection, "r"), ["chat"])}
        ((trials,),) = connection.execute(
            "SELECT count(*) FROM probes WHERE probe = 'capacity'"
        ).fetchall()
    assert trials == sum(map(len, found.trials.values())) == 4 * DRAWS[0]
    assert limits.keys() == {"bf16", "fp8"}
    twins = next(line for line in said if "twin carries" in line)
    assert "replicas" not in twins, "the trials say how many, which the screen shows"
