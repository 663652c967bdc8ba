"""Read the text that Prometheus scrapes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample


def samples(text: str) -> tuple[Sample, ...]:
    """Return what a page says. Raises ValueError for a text that is none."""
    try:
        return tuple(sample for family in text_string_to_metric_families(text) for sample in family.samples)
    except (KeyError, IndexError, TypeError, AttributeError) as error:  # its parser's ways to refuse a text
        raise ValueError(f"no metrics: {type(error).__name__}") from error
