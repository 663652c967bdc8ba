"""One flag, or two pools?"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from advisor.case import Case
from advisor.choice import choose, split_if_refused, split_if_used
from advisor.decide import assess
from advisor.evidence import Observation, WorkloadClass
from advisor.judge import judge
from advisor.policy import Policy
from advisor.verdict import ArmVerdict, Capacity, Word
from tests.advisor.cases import SPREAD, compared, observed
from tests.advisor.worlds import Noise, simulated_calls

QUIET = Noise(call=0.02, wander=0.005, phi=0.2, block=0.002)
WILD = Noise(call=0.1, wander=0.05, phi=0.5, block=0.06)


def _case(rag: float, noise: Noise, *, replicas: int | None = None) -> Case:
    """Return a case in which agents gain and rag, a quarter of the mix, changes by *rag*."""
    rng = np.random.default_rng(3)
    observations: list[Observation] = []
    for name, effect, disturbed in (("agents", -0.12, QUIET), ("rag", rag, noise)):
        observations.extend(
            observed(
                *simulated_calls(
                    rng, pairs=12, effect=effect, noise=disturbed, swapped=False, restarts=12
                ),
                workload=name,
            )
        )
    classes = tuple(
        WorkloadClass(name=name, gpu_time_share=share, context_tokens=SPREAD)
        for name, share in (("agents", 0.75), ("rag", 0.25))
    )
    case = assess(
        compared(effect=0.0, observations=tuple(observations), workloads=classes), Policy()
    )
    known = Capacity(
        arm="fp8",
        workload=None,
        agents_per_gpu=None,
        replicas_at_peak=replicas,
        next_replica_at_agents=None,
        reason="",
    )
    return replace(case, capacity=(known,))


def _judged(case: Case) -> tuple[ArmVerdict, ...]:
    return tuple(judge(case, (), "fp8", name) for name in ("agents", "rag"))


@pytest.mark.parametrize(
    ("rag", "noise", "replicas", "told"),
    [
        (
            -0.02,
            WILD,
            40,
            "One flag: no class is shown to lose on fp8.",
        ),  # a point estimate that may be anything
        (
            0.02,
            QUIET,
            None,
            (
                "One flag, unless a spare replica costs you less: a bf16 pool for rag would "
                "gain at least 0."
            ),
        ),
        (0.02, QUIET, 4, "One flag: a bf16 pool for rag would gain at least 0."),
        (0.025, QUIET, 400, "Split: a bf16 pool for rag would gain at least 0."),
        (
            0.2,
            QUIET,
            4,
            "Split: rag on bf16, at the price of a spare in each pool.",
        ),  # it is avoided there
    ],
)
def test_pools_are_split_for_what_is_shown_to_be_worth_a_spare(
    rag: float, noise: Noise, replicas: int | None, told: str
) -> None:
    case = _case(rag, noise, replicas=replicas)
    assert split_if_used(case, "fp8", _judged(case)).startswith(told)


def test_classes_that_would_gain_alone_are_named_where_the_server_stays() -> None:
    case = _case(0.2, QUIET)
    assert split_if_refused(case, _judged(case)) == (
        "Split, if a pool of their own is worth a spare: agents (fp8); the rest stays on bf16."
    )
    assert (
        split_if_refused(case, _judged(case)[1:])
        == "One flag: no class is shown to gain from leaving bf16."
    )


@pytest.mark.parametrize(
    ("better", "worse"),
    list(pairwise(("use", "calibrate", "test further", "no difference", "avoid"))),
)
def test_the_arm_with_the_better_verdict_is_chosen_or_the_first_to_look_at_again(
    better: Word, worse: Word
) -> None:
    case = _case(0.0, QUIET)
    base = _judged(case)[0]
    server = (replace(base, arm="last", verdict=worse), replace(base, arm="first", verdict=better))
    chosen = choose(case, server, ())
    assert (chosen.verdict, "first" in (chosen.arm, chosen.runner_up)) == (better, True)


@pytest.mark.parametrize(
    ("holds_to", "first"),
    [(131_000.0, "fp8"), (129_000.0, "fp8"), (128_000.0, "slower"), (65_536.0, "slower")],
)
def test_bounds_a_few_tokens_apart_leave_the_order_of_arms_to_their_speed(
    holds_to: float, first: str
) -> None:
    case = _case(-0.12, QUIET)
    arms = (*case.evidence.arms, replace(case.evidence.arms[1], name="slower"))
    case = replace(case, evidence=replace(case.evidence, arms=arms))
    fp8 = replace(_judged(case)[0], verdict="use", holds_to=holds_to)
    server = (
        replace(fp8, arm="slower", holds_to=131_072.0),
        fp8,
    )  # of which nobody measured a gain
    assert choose(case, server, ()).arm == first
