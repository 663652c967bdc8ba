"""Lengths of contexts as they are typed: `4k..128k` doubles, `8k,64k` lists, and both may be joined."""

from __future__ import annotations

import re
from typing import Final

from agentload.errors import UsageError

LONGEST: Final = 1 << 24
_LENGTH: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([km]?)", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024 * 1024}


def lengths(text: str, *, option: str, least: int = 1) -> tuple[int, ...]:
    """Read what *option* was given, in steps of 1,024 tokens; raise `UsageError` for what is no length of at least *least*."""
    found: set[int] = set()
    for part in text.split(","):
        first, dots, last = part.partition("..")
        low = _length(first, option=option, least=least)
        high = _length(last, option=option, least=least) if dots else low
        if high < low:
            raise UsageError(f"{option}: '{part.strip()}' ends before it begins", hint=f"{option} 4k..128k")
        while low < high:
            found.add(low)
            low *= 2
        found.add(high)
    return tuple(sorted(found))


def _length(text: str, *, option: str, least: int) -> int:
    read = _LENGTH.fullmatch(text.strip())
    tokens = 0 if read is None else round(float(read[1]) * _UNITS[read[2].lower()])
    if not least <= tokens <= LONGEST:
        raise UsageError(
            f"{option}: '{text.strip()}' is no length of {least:,} to {LONGEST:,} tokens", hint=f"{option} 4k..128k, or 8k,64k"
        )
    return tokens
