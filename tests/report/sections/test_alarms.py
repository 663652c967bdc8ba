"""The limits of a canary: bounds that vLLM's histograms have, and room for chance."""

import re
from dataclasses import replace
from math import sqrt

import numpy as np
import pytest

from advisor.policy import Policy, Slo
from agentload.report.parts import Rollout
from tests.report import sample
from tests.report.telling import made


def plan(**changed: object) -> Rollout:
    found = made(**changed).rollout  # type: ignore[arg-type]  # fields of `made`, by name
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("policy", "late"),
    [(Policy(slos=(Slo(ttft_ms=1800.0),)), "2.5"), (Policy(slos=(Slo(workload="code", ttft_ms=1000.0),)), "1.0")],
)
def test_late_is_the_bound_of_the_histogram_at_the_service_level(policy: Policy, late: str) -> None:
    (limit,) = (each for each in plan(policy=policy).limits if each.name == "CanaryTimeToFirstToken")
    assert set(re.findall(r'le="([\d.]+)"', limit.expression)) == {late}
    assert f"after {float(late):g} s" in limit.text


def test_without_a_service_level_late_is_where_one_in_twenty_of_todays_calls_is() -> None:
    own = [each.calls for each in sample.evidence().observations if each.arm == "bf16" and each.calls is not None]
    p95_s = float(np.quantile(np.concatenate([calls.ttft_ms for calls in own]), 0.95)) / 1000
    (bound,) = {float(each) for each in re.findall(r'le="([\d.]+)"', plan().limits[0].expression)}
    assert p95_s <= bound < 2.6 * p95_s  # bounds lie no further apart there


def test_a_page_by_chance_is_rarer_than_one_a_day_and_a_broken_model_is_seen_in_a_few_answers() -> None:
    expression = plan().limits[2].expression
    found = re.search(r"> ([\d.]+) \+ ([\d.]+) / sqrt", expression)
    assert found is not None
    margin, room = map(float, found.groups())
    rng = np.random.default_rng(1)
    spread = 1.0  # of an exponential: what the sample's answers vary by, or less
    for answers in (20, 100, 2000):
        means = rng.exponential(spread, (2000, answers)).mean(axis=1)
        assert np.mean(np.abs(means - 1) > margin + room / sqrt(answers)) == 0
    assert margin + room / sqrt(100) < 0.6  # answers that stop after the first word


def test_the_canary_works_as_hard_as_each_of_the_replicas_beside_it() -> None:
    evidence = sample.evidence()
    for replicas, percent in ((1, 10), (2, 33), (9, 10), (300, 1)):
        decision = replace(sample.decision(), capacity=())
        shared = replace(evidence.deployment, replicas=replicas)
        assert plan(decision=decision, evidence=replace(evidence, deployment=shared)).percent == percent
    (stable,) = (each for each in sample.decision().capacity if each.arm == "bf16" and each.workload is None)
    assert plan().percent == round(100 / ((stable.replicas_at_peak or 0) + 1))
