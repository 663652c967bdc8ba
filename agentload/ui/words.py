"""What people call the metrics of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentload.watch.job import Metric

METRICS: Final[Mapping[Metric, str]] = {"turn_ms": "turn time", "ttft_ms": "time to first token", "tpot_ms": "time per output token"}


def worded(text: str) -> str:
    """Return a text, such as the name of a series, whose metrics are called so."""
    for metric, words in METRICS.items():
        text = text.replace(metric, words)
    return text
