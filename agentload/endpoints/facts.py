"""List the facts that identify a server: which may change with a start, and which may not.

What a server reports is compared with what the arms file expects of it. A fact
that nobody reports is unknown, not wrong.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

from agentload.model.kv import FORMATS
from agentload.model.record import Record

Facts: TypeAlias = Mapping[str, Any]
"""Facts by the names of `Identity.facts`, some of them read back from JSON."""
FACTS: Final[Mapping[str, Literal["command", "place", "start", "note"]]] = {
    # Given by a server's command or its checkpoint.
    "version": "command",
    "models": "command",
    "max_model_len": "command",
    "kv_cache_dtype": "command",
    "skip_layers": "command",
    "prefix_caching": "command",
    "block_size": "command",
    "gpu_memory_utilization": "command",
    "replicas": "command",
    "engines": "command",
    # Chosen by a server for its machine, or known on that machine only:
    # on two machines, servers with equal commands may differ in these.
    "attention_backend": "place",
    "flash_version": "place",
    "settings": "place",
    "gateway": "place",
    # Measured at every start: how large a pool is follows from the memory that was free.
    "pool_tokens": "start",
    "pool_blocks": "start",
    "max_concurrency": "start",
    "process_start_s": "start",
    # Notes, never compared: one option can be given in several words.
    "compile_cache": "note",
    "check_ms": "note",
    "arguments": "note",
    "warnings": "note",
}
COMMANDED: Final = tuple(name for name, of in FACTS.items() if of == "command")
"""Facts that an arm keeps on any machine."""
LASTING: Final = tuple(name for name, of in FACTS.items() if of in {"command", "place"})
"""Facts that a server keeps from start to start: if one changes, it is another server."""
VERIFIES: Final = frozenset(
    {"version", "kv_cache_dtype", "attention_backend", "pool_tokens", "process_start_s"}
)
"""Facts by any of which a server can be recognised; a gateway repeats its list of models."""
OF_A_START: Final = tuple(name for name, of in FACTS.items() if of == "start")
"""Facts that a server keeps while it runs, and that its next start changes."""
LONGEST: Final = 80
_IN_FULL: Final = "max_num_seqs"
"""A setting that /server_info always has and a log never has."""
_UNTOLD: Final[tuple[object, ...]] = (None, "", "None", [], (), {})
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
# `fp8` is e4m3 everywhere; a dtype that nobody set reads "auto": that
# of the weights, two bytes unless the checkpoint says otherwise.
_DTYPES: Final[Mapping[str, str]] = {
    "fp8_e4m3": "fp8",
    **{
        name: "16 bit"
        for each in FORMATS.values()
        if each.bits == 16
        for name in (each.dtype, each.flag)
    },
}
SAME_POOL: Final = 0.02
"""Share by which the pools of equal servers may differ.

It follows from what was free on the GPU when each was started.
"""


def changes(before: Facts, now: Facts, names: Iterable[str] = LASTING) -> tuple[str, ...]:
    """Return which facts have changed, such as `version 0.32.0 → 0.33.0`.

    A fact that only one side reports is unknown, not changed.
    """
    return tuple(
        f"{name} {_shown(old)} → {_shown(new)}"
        for name, old, new in _both(before, now, names)
        if _text(old) != _text(new)
    )


def reported_facts(facts: Facts) -> dict[str, Any]:
    """Return the facts that a server reports."""
    return {name: value for name, value in facts.items() if value not in _UNTOLD}


def _both(before: Facts, now: Facts, names: Iterable[str]) -> Iterator[tuple[str, object, object]]:
    for name in names:
        old = before.get(name)
        new = now.get(name)
        if old in _UNTOLD or new in _UNTOLD:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            # A side omits the settings that it leaves open. But if one side alone
            # could be asked in full, only settings that both report are compared.
            parts = (
                old.keys() & new.keys()
                if (_IN_FULL in old) != (_IN_FULL in new)
                else old.keys() | new.keys()
            )
            yield from ((f"{name}.{part}", old.get(part), new.get(part)) for part in sorted(parts))
        else:
            yield name, old, new


def _text(value: object) -> str:
    """Spell a fact as a log does: /server_info has numbers and truth values."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)


def _shown(value: object) -> str:
    text = _text(value)
    if len(text) <= LONGEST:
        return text
    return text[: LONGEST - 1] + "…"


class ExpectationCheck(Record):
    """One expectation and the fact that the server reports."""

    name: str
    expected: object
    observed: object
    agrees: bool | None
    """None: the server does not say."""

    def __str__(self) -> str:
        if self.agrees is None:
            return f"{self.name}: expected {_spelled(self.expected)}, the server does not say"
        return (
            f"{self.name}: expected {_spelled(self.expected)}, the server says "
            f"{_spelled(self.observed)}"
        )


def checks(
    expect: Mapping[str, object], facts: Mapping[str, object]
) -> tuple[ExpectationCheck, ...]:
    """Compare every expectation with its fact, in the order in which they were written."""
    return tuple(_check(name, wanted, facts.get(_FACTS[name])) for name, wanted in expect.items())


def is_same_configuration(one: Facts, other: Facts) -> bool:
    """Return whether two servers report the same configuration; false if they report none."""
    if one.get("kv_cache_dtype") is None:
        return False
    return all(
        _plain(name, one.get(name)) == _plain(name, other.get(name)) for name in LASTING
    ) and is_near(one.get("pool_tokens"), other.get("pool_tokens"))


def _plain(name: str, fact: object) -> object:
    """Return a fact in one spelling for all that mean the same."""
    match name:
        case "kv_cache_dtype":
            said = str(fact).lower()
            return _DTYPES.get(said, said)
        case "skip_layers":
            return _names(fact)
        case _:
            return fact


def is_near(one: object, other: object) -> bool:
    """Return whether two pools are as close as those of equal servers."""
    if one is None or other is None:
        return one is other
    try:
        pools = sorted((float(str(one)), float(str(other))))
    except ValueError:  # a label may hold anything
        return one == other
    return pools[1] - pools[0] <= SAME_POOL * pools[1]


def _check(name: str, wanted: object, fact: object) -> ExpectationCheck:
    if fact is None or fact in ("", "None"):
        # Older servers, and servers that skip no layers, report no list of skipped layers.
        agrees = True if name == "skip_layers" and not _names(wanted) else None
        return ExpectationCheck(name=name, expected=wanted, observed=None, agrees=agrees)
    return ExpectationCheck(
        name=name, expected=wanted, observed=fact, agrees=_agrees(name, wanted, fact)
    )


def _agrees(name: str, wanted: object, fact: object) -> bool:
    match name:
        case "version":  # 0.32 expects any 0.32.x
            return (
                re.match(rf"v?{re.escape(str(wanted).removeprefix('v'))}(?![0-9])", str(fact))
                is not None
            )
        case "kv_cache_dtype" | "skip_layers":
            return _plain(name, wanted) == _plain(name, fact)
        case _:
            return str(wanted).lower() == str(fact).lower()


def _names(value: object) -> frozenset[str]:
    """Return the names of a list, or of its text; None and "None" name nothing."""
    if isinstance(value, list | tuple):
        return frozenset(map(str, value)) - {"None"}
    return frozenset(re.findall(r"[\w.]+", str(value))) - {"None"}


def _spelled(value: object) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(sorted(_names(value))) or "none"
    return str(value)
