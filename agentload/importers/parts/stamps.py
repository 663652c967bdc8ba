"""Read the time stamps of all kinds that logs carry, as seconds since 1970 (or since the log's own zero)."""

import math
from datetime import UTC, datetime
from typing import Final

# A number larger than these is not in seconds: 5e9 s is the year 2128, 1973 in milliseconds.
_MILLIS: Final = 5e9
_MICROS: Final = 5e12
_NANOS: Final = 5e15


def seconds(found: object) -> float | None:
    """Read ISO 8601 (without a zone: UTC) or a number of s, ms, µs or ns since 1970; None for all else."""
    if isinstance(found, bool) or found is None:
        return None
    if isinstance(found, int | float):
        return _scaled(float(found))
    if not isinstance(found, str):
        return None
    text = found.strip()
    try:
        return _scaled(float(text))
    except ValueError:
        return iso(text)


def iso(text: str) -> float | None:
    """Read a date and time; None if it is none."""
    try:
        stamp = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return (stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, ValueError):
        return None


def _scaled(number: float) -> float | None:
    if not math.isfinite(number) or number < 0:
        return None
    for limit, unit in ((_NANOS, 1e9), (_MICROS, 1e6), (_MILLIS, 1e3)):
        if number > limit:
            return number / unit
    return number
