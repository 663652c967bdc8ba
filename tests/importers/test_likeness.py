"""A trace is held against what a server's metrics tell of production."""

from agentload.importers.parts.likeness import Likeness, likeness
from agentload.importers.parts.metrics import Metrics, read
from tests.importers.test_prometheus import CHAT

QUANTILES = {"prompt": {0.5: 900.0, 0.9: 20_000.0}, "output": {0.5: 30.0, 0.9: 80.0}}


def test_quantiles_are_alike_within_a_bucket_and_means_within_a_quarter() -> None:
    found = likeness(QUANTILES, {"prompt": 2_000.0, "output": 40.0}, 0.65, read(CHAT))
    assert list(found) == [
        Likeness(what="prompt tokens, mean", trace=2_000.0, low=1_800.0, high=1_800.0, verdict="alike"),
        Likeness(what="prompt tokens, q50", trace=900.0, low=100.0, high=1_000.0, verdict="alike"),
        Likeness(what="prompt tokens, q90", trace=20_000.0, low=1_000.0, high=10_000.0, verdict="more"),
        Likeness(what="output tokens, mean", trace=40.0, low=120.0, high=120.0, verdict="less"),
        Likeness(what="output tokens, q50", trace=30.0, low=0.0, high=100.0, verdict="alike"),
        Likeness(what="output tokens, q90", trace=80.0, low=100.0, high=1_000.0, verdict="less"),
        Likeness(what="cached share of prompts", trace=0.65, low=0.6, high=0.6, verdict="alike"),
    ]


def test_metrics_that_tell_nothing_compare_nothing() -> None:
    assert list(likeness(QUANTILES, {"prompt": 1.0, "output": 1.0}, 0.5, Metrics())) == []
