"""A machine that is 8% slower, mistaken for an arm and told from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from advisor.assess.speed import speeds
from advisor.decide import decide
from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.steps import Swap
from agentload.evidence.gather import gather
from agentload.evidence.view import run_view
from agentload.layout.plan import Scheme, plan
from agentload.model.plan import Design
from agentload.model.trace import Header, Segment, Session, Trace, Turn
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation, store
from agentload.store.database import reading
from agentload.study.kinds import Replay
from agentload.study.parts import TraceRef, Virtual

SLOWNESS = {"m1": 1.0, "m2": 1.08}


def talk(number: int) -> Session:
    turns = tuple(
        Turn(
            add=(Segment(role="user", tokens=2_000, key=f"{number}.{turn}"),),
            output=120,
            wait="user" if turn else None,
            wait_s=0.2,
        )
        for turn in range(3)
    )
    return Session(session=f"s{number}", workload="chat", start_s=0.7 * number, turns=turns)


TRACE = Trace(header=Header(name="t", seed=1), sessions=tuple(talk(number) for number in range(24)))


def played(
    folder: Path,
    *,
    swap: bool,
    slowness: dict[str, float] = SLOWNESS,
    design: Design = "parallel",
    twins: bool = False,
) -> Evidence:
    arms = {arm.name: arm for arm in arms_of("llama-3.1-8b-h100", ["bf16", "fp8"])}
    if twins:
        arms["fp8"] = replace(arms["bf16"], name="fp8")
    machines = tuple(SLOWNESS)
    made = plan(
        TRACE,
        tuple(arms),
        run="r",
        seed=3,
        scheme=Scheme(pairs=8, design=design, machines=machines, swap=swap),
    )
    study = Replay(
        traces=(TraceRef(path="t"),),
        servers=Virtual(profile="llama-3.1-8b-h100"),
        design=design,
        swap=swap,
        pairs=8,
        seed=3,
    )
    database = folder / "x.duckdb"
    store(
        Simulation(
            study=study, plan=made, arms=arms, trace_hash="", database=database, slowness=slowness
        )
    )
    with reading(database) as connection:
        return gather(connection, run_view(connection, "r"), profiles=arms)


def change(evidence: Evidence) -> tuple[float, float, float]:
    found = next(
        each.change.relative
        for each in speeds(evidence, (("chat", 1.0),), Policy())
        if each.change.metric == "tpot_ms"
    )
    assert found.low is not None
    assert found.high is not None
    return found.low, found.value, found.high


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> float:
    return change(played(tmp_path_factory.mktemp("truth"), swap=False, slowness={}))[1]


@pytest.mark.slow
def test_without_a_swap_the_arm_is_blamed_for_its_machine_and_the_advisor_says_so(
    tmp_path: Path, truth: float
) -> None:
    found = played(tmp_path, swap=False)
    low, value, _ = change(found)
    assert low > truth
    assert value == pytest.approx((1 + truth) * 1.08 - 1, abs=0.015)
    assert (found.deployment.machines, found.deployment.swapped) == (("m1", "m2"), False)
    told = [
        each
        for each in decide(found, Policy()).findings
        if "ran on different machines and never changed places" in each.message
    ]
    assert [each.next_step for each in told] == [Swap(pairs=8)]


@pytest.mark.parametrize("design", ["parallel", "interleaved"])
def test_with_a_swap_the_true_difference_comes_back(
    tmp_path: Path, truth: float, design: Design
) -> None:
    found = played(tmp_path, swap=True, design=design)
    low, value, high = change(found)
    assert value == pytest.approx(truth, abs=0.015)
    assert low <= truth <= high
    (tmp_path / "alike").mkdir()
    least, _, most = change(played(tmp_path / "alike", swap=True, design=design, slowness={}))
    assert high - low < 1.1 * (
        most - least
    )  # the machine is taken out, not averaged over: as wide as on two that are alike
    assert (found.deployment.machines, found.deployment.swapped) == (("m1", "m2"), True)
    assert [arm.machine for arm in found.arms] == [None, None]
    assert not [
        each
        for each in decide(found, Policy()).findings
        if "cannot tell machine from arm" in each.message
    ]


@pytest.mark.parametrize(
    "slowness", [SLOWNESS, pytest.param({"m1": 1.08, "m2": 1.0}, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("swap", [pytest.param(False, marks=pytest.mark.slow), True])
def test_two_copies_of_one_arm_are_never_avoided_or_used_for_their_machine(
    tmp_path: Path,
    slowness: dict[str, float],
    swap: bool,  # noqa: FBT001  # a case
) -> None:
    (verdict,) = decide(played(tmp_path, swap=swap, slowness=slowness, twins=True), Policy()).server
    assert verdict.verdict in (("test further", "no difference") if swap else ("test further",))
