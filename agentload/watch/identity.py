"""Tell which of the facts that a server reports have changed, and leave out those that change with every start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

# A pool's size follows from what was free on the GPU at start-up; it is a hint, not another identity.
VOLATILE: Final = frozenset({"process_start_s", "warnings", "pool_tokens", "max_concurrency"})


def identity(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts that make a server the same server."""
    return {name: value for name, value in facts.items() if name not in VOLATILE and value not in (None, {}, [])}


def changed(before: Mapping[str, Mapping[str, Any]], after: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Name what changed on the arms that both know, such as `fp8: version 0.10.0 → 0.11.0`. What one of them did not say is unknown."""
    out = []
    for arm in before.keys() & after.keys():
        old, new = identity(before[arm]), identity(after[arm])
        out += [f"{arm}: {name} {_shown(old[name])} → {_shown(new[name])}" for name in old.keys() & new.keys() if old[name] != new[name]]
    return tuple(sorted(out))


def _shown(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 80 else text[:79] + "…"
