"""Hold what a server says of itself against what the arms file expects of it. A fact that nobody tells is unknown, not wrong."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agentload.endpoints.facts import LASTING, Facts

# What may be expected, and the fact that confirms it.
_FACTS: Final[Mapping[str, str]] = {
    "kv_cache_dtype": "kv_cache_dtype",
    "skip_layers": "skip_layers",
    "prefix_caching": "prefix_caching",
    "backend": "attention_backend",
    "version": "version",
    "max_model_len": "max_model_len",
}
EXPECTABLE: Final = frozenset(_FACTS)
# `fp8` is e4m3 everywhere; a dtype that nobody set reads "auto": that of the weights, two bytes unless the checkpoint says otherwise.
_DTYPES: Final[Mapping[str, str]] = {
    "fp8_e4m3": "fp8",
    "auto": "16 bit",
    "bfloat16": "16 bit",
    "bf16": "16 bit",
    "float16": "16 bit",
    "fp16": "16 bit",
}
SAME_POOL: Final = 0.02
"""Of its tokens: equal servers get pools that differ by what was free on the GPU when each was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One expectation and what came of it."""

    name: str
    expected: object
    observed: object
    agrees: bool | None
    """None: the server does not say."""

    def __str__(self) -> str:
        if self.agrees is None:
            return f"{self.name}: expected {_shown(self.expected)}, the server does not say"
        return f"{self.name}: expected {_shown(self.expected)}, the server says {_shown(self.observed)}"


def checks(expect: Mapping[str, object], facts: Mapping[str, object]) -> tuple[Check, ...]:
    """Compare every expectation with its fact, in the order in which they were written."""
    return tuple(_check(name, wanted, facts.get(_FACTS[name])) for name, wanted in expect.items())


def is_same_configuration(one: Facts, other: Facts) -> bool:
    """Tell whether two servers cannot be told apart by anything they say; never true of servers that say nothing."""
    if one.get("kv_cache_dtype") is None:
        return False
    return all(_plain(name, one.get(name)) == _plain(name, other.get(name)) for name in LASTING) and _is_near(
        one.get("pool_tokens"), other.get("pool_tokens")
    )


def _plain(name: str, fact: object) -> object:
    """Return a fact as one of its spellings."""
    match name:
        case "kv_cache_dtype":
            said = str(fact).lower()
            return _DTYPES.get(said, said)
        case "skip_layers":
            return _names(fact)
        case _:
            return fact


def _is_near(one: object, other: object) -> bool:
    if one is None or other is None:
        return one is other
    pools = sorted((float(str(one)), float(str(other))))
    return pools[1] - pools[0] <= SAME_POOL * pools[1]


def _check(name: str, wanted: object, fact: object) -> Check:
    if fact is None or fact in ("", "None"):
        # No list of skipped layers is what older servers, and those that skip none, show.
        agrees = True if name == "skip_layers" and not _names(wanted) else None
        return Check(name=name, expected=wanted, observed=None, agrees=agrees)
    return Check(name=name, expected=wanted, observed=fact, agrees=_agrees(name, wanted, fact))


def _agrees(name: str, wanted: object, fact: object) -> bool:
    match name:
        case "version":  # 0.32 expects any 0.32.x
            return re.match(rf"v?{re.escape(str(wanted).removeprefix('v'))}(?![0-9])", str(fact)) is not None
        case "kv_cache_dtype" | "skip_layers":
            return _plain(name, wanted) == _plain(name, fact)
        case _:
            return str(wanted).lower() == str(fact).lower()


def _names(value: object) -> frozenset[str]:
    found = value if isinstance(value, list | tuple) else re.findall(r"[\w.]+", "" if value is None else str(value))
    return frozenset(str(each) for each in found) - {"None"}


def _shown(value: object) -> str:
    return ", ".join(sorted(_names(value))) or "none" if isinstance(value, list | tuple) else str(value)
