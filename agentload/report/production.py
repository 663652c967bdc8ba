"""Put a comparison with production into words."""

from __future__ import annotations

import math

from agentload.exposition.likeness import Likeness, Unit
from agentload.report import format as say


def shown(row: Likeness) -> tuple[str, str]:
    """Return our value and production's, which is known to a bucket."""
    return _value(row.ours, row.unit), _between(row)


def _between(row: Likeness) -> str:
    if row.low == row.high:
        return _value(row.low, row.unit)
    if math.isinf(row.high):
        return f"over {_value(row.low, row.unit)}"
    low, high = _value(row.low, row.unit), _value(row.high, row.unit)
    return f"up to {high}" if not row.low else f"{low} to {high}"


def _value(value: float, unit: Unit) -> str:
    match unit:
        case "share":
            return say.percent(value)
        case "seconds":
            return say.duration(1_000 * value)
        case "tokens":
            return say.number(round(value))
        case "requests":
            return say.significant(value, 2)
