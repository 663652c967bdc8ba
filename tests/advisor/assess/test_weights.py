"""Pooled accuracy weighs each length by the calls of the trace
that the length stands for, and its interval holds what it says.
"""

from __future__ import annotations

import numpy as np
import pytest

from advisor.assess import accuracy, answers, reach
from advisor.evidence import AccuracyBucket, Floats, WorkloadClass
from advisor.policy import Policy
from tests.advisor.cases import bare

LENGTHS = (16_384.0, 65_536.0)


def bucket(
    length: float,
    *,
    both: int,
    lost: int,
    won: int = 0,
    scores: tuple[Floats, Floats] | None = None,
) -> AccuracyBucket:
    reference, arm = scores or (None, None)
    return AccuracyBucket(
        arm="fp8",
        task="needle",
        context_tokens=length,
        both=both,
        reference_only=lost,
        arm_only=won,
        neither=0,
        reference_scores=reference,
        arm_scores=arm,
    )


def test_a_length_stands_for_the_calls_that_no_shorter_one_covers() -> None:
    contexts = np.array([1_000.0, 18_000.0, 18_100.0, 60_000.0, 200_000.0])
    assert reach.represented_shares(LENGTHS, contexts).tolist() == [0.4, 0.6]
    assert reach.represented_shares(LENGTHS[:1], contexts).tolist() == [1.0]


@pytest.mark.parametrize(("long_share", "difference"), [(0.1, -0.02), (0.5, -0.10), (0.8, -0.16)])
def test_a_loss_at_long_contexts_weighs_as_many_calls_as_are_long(
    long_share: float, difference: float
) -> None:
    contexts = np.where(np.arange(100) < 100 * long_share, 60_000.0, 10_000.0)
    buckets = (bucket(LENGTHS[0], both=200, lost=0), bucket(LENGTHS[1], both=160, lost=40))
    evidence = bare(
        workloads=(WorkloadClass(name="chat", context_tokens=contexts),), accuracy=buckets
    )
    server, chat = accuracy.by_workload(evidence, Policy())
    assert server.estimate.value == pytest.approx(difference)
    assert chat.estimate.value == pytest.approx(difference)
    assert (chat.estimate.n or 0) <= 400


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("discordance", [(0.02, 0.2), (0.2, 0.02)])
def test_the_interval_holds_the_weighted_truth_as_often_as_it_says(
    share: float, discordance: tuple[float, float], *, graded: bool
) -> None:
    rng, draws, items, drift = np.random.default_rng(4), 300, 200, (0.0, -0.01)
    truth = (1 - share) * drift[0] + share * drift[1]
    weights = {LENGTHS[0]: 1 - share, LENGTHS[1]: share}
    held = 0
    for _ in range(draws):
        buckets = []
        for length, changed, moved in zip(LENGTHS, discordance, drift, strict=True):
            lost, won, same = rng.multinomial(
                items, [(changed - moved) / 2, (changed + moved) / 2, 1 - changed]
            )
            scores = (
                (
                    np.repeat([0.9, 0.1, 0.9], [lost, won, same]),
                    np.repeat([0.1, 0.9, 0.9], [lost, won, same]),
                )
                if graded
                else None
            )
            buckets.append(
                bucket(length, both=int(same), lost=int(lost), won=int(won), scores=scores)
            )
        found = answers.margin_test(buckets, Policy(), 0.025, weights)
        assert found is not None
        estimate, wanted = found.difference, truth * (0.8 if graded else 1.0)
        assert estimate.low is not None
        assert estimate.high is not None
        held += estimate.low <= wanted <= estimate.high
    assert held / draws >= 0.93
