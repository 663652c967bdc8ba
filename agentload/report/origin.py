"""Say where a run's trace came from: a log that was imported, a server's metrics, or a generator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentload.report import format as say


def origin(source: Mapping[str, Any], sessions: Mapping[str, int]) -> str | None:
    """Say it by what the trace's header holds, or each of several traces' under its name; None where it does not say.

    `sessions` are how many were played, under the trace's name where there are several, and else under "".
    """
    if not source:
        return None
    told = [_one(source, sum(sessions.values()))] if "importer" in source or "workload" in source else []
    told += [] if told else [_one(each, sessions.get(name, 0)) for name, each in source.items() if isinstance(each, dict)]
    return " and ".join(dict.fromkeys(each for each in told if each)) or None


def _one(source: Mapping[str, Any], sessions: int) -> str | None:
    degraded = ", degraded" if "degraded" in source else ""
    match source.get("importer"), source.get("workload"):
        case "prometheus", _:
            return f"fitted to a server's metrics{degraded}"
        case str() as format, _:
            return f"replayed from {format} import of {say.plural(sessions, 'session')}{degraded}"
        case _, str() as workload:
            return f"synthetic workload {workload}{degraded}"
        case _:
            return None
