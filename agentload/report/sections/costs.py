"""What missing evidence costs, in words."""

from __future__ import annotations

from typing import Final

from advisor.verdict import Need
from agentload.report import format as say

# What a need counts in pairs, by how it begins.
_NOUNS: Final = ("paired answers", "block pairs", "restarts")


def cost(need: Need) -> str:
    """Say how many, and how long: `260 calls, 7 min`; empty when nobody knows."""
    count = say.plural(need.calls, "call") if need.calls else f"{say.number(need.pairs)} {noun(need)}" if need.pairs else ""
    return ", ".join(part for part in (count, say.minutes(need.minutes) if need.minutes else "") if part)


def sentence(need: Need) -> str:
    """Say what is needed, with its count in front: `260 paired calls of rag on fp8, 7 min`."""
    count = need.calls if need.what.startswith("paired calls") else need.pairs if need.what.startswith(_NOUNS) else None
    counted = f"{say.number(count)} {need.what}" if count else need.what
    return f"{counted}, {say.minutes(need.minutes)}" if need.minutes else counted


def noun(need: Need) -> str:
    """Name what is counted."""
    return "calls" if need.calls else next((noun for noun in _NOUNS if need.what.startswith(noun)), "pairs")
