"""The facts that servers are known by, and what each of them depends on: which may move with a start, and which make another server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias

Facts: TypeAlias = Mapping[str, Any]
"""By the names of `Identity.facts`, or as JSON gave them back."""

FACTS: Final[Mapping[str, Literal["command", "place", "start", "note"]]] = {
    # What a server was told to be, or its checkpoint says.
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
    # What it chose for the machine that it is on, or can be asked there alone: equal commands may differ in it between machines.
    "attention_backend": "place",
    "flash_version": "place",
    "settings": "place",
    "gateway": "place",
    # What every start measures anew: how large a pool is follows from the memory that was free.
    "pool_tokens": "start",
    "pool_blocks": "start",
    "max_concurrency": "start",
    "process_start_s": "start",
    # Said beside the rest; one option can be told in several words.
    "arguments": "note",
    "warnings": "note",
}
COMMANDED: Final = tuple(name for name, of in FACTS.items() if of == "command")
"""Facts that an arm keeps on any machine."""
LASTING: Final = tuple(name for name, of in FACTS.items() if of in {"command", "place"})
"""Facts that a server keeps from start to start: with another one it is another server."""
OF_A_START: Final = tuple(name for name, of in FACTS.items() if of == "start")
"""Facts that it keeps while it runs."""
LONGEST: Final = 80
_IN_FULL: Final = "max_num_seqs"
"""A setting that /server_info always has, and no log."""
_UNTOLD: Final[tuple[object, ...]] = (None, "", "None", [], (), {})


def changed(before: Facts, now: Facts, names: Iterable[str] = LASTING) -> tuple[str, ...]:
    """Say which facts are other ones now, such as `version 0.32.0 → 0.33.0`. What one of both does not tell is unknown, not changed."""
    return tuple(f"{name} {_shown(old)} → {_shown(new)}" for name, old, new in _both(before, now, names) if _text(old) != _text(new))


def told(facts: Facts) -> dict[str, Any]:
    """Return the facts that a server tells."""
    return {name: value for name, value in facts.items() if value not in _UNTOLD}


def _both(before: Facts, now: Facts, names: Iterable[str]) -> Iterator[tuple[str, object, object]]:
    for name in names:
        old, new = before.get(name), now.get(name)
        if old in _UNTOLD or new in _UNTOLD:
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            # A setting that is left open is left out; but where one side alone could be asked in full, only what both tell counts.
            parts = old.keys() & new.keys() if (_IN_FULL in old) != (_IN_FULL in new) else old.keys() | new.keys()
            yield from ((f"{name}.{part}", old.get(part), new.get(part)) for part in sorted(parts))
        else:
            yield name, old, new


def _text(value: object) -> str:
    """Spell a fact as a log does: /server_info has numbers and truth values."""
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _shown(value: object) -> str:
    text = _text(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
