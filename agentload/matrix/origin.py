"""What the run of a model is of: its servers, its traces, its load. Whoever goes on with a run must measure the same."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from agentload.matrix.parts import Part, document
from agentload.matrix.steps import Planned
from agentload.tracefile import digest

SERVER: Final = frozenset({"model", "aliases", "extra_body", "force_lengths", "expect", "tensor_parallel", "data_parallel", "launch"})
"""What an arms file says of a server, not of where it is or of what it costs: that may change while it is measured."""


def origin(part: Part) -> dict[str, str]:
    """Return what a model's run would be of, each as a digest; its traces are read where they are laid out."""
    planned, (replay, *_) = part.planned, part.steps
    traces = {each.name: digest(planned.places.trace(each.name)) for each in planned.matrix.workloads}
    return {
        "reference": planned.arms[0],
        "load": _digest(replay.asked),
        **{f"workload {name}": found for name, found in traces.items()},
        **{f"server of {arm}": _digest(server) for arm, server in _servers(planned).items()},
    }


def other(began: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Name what is not what a run began with. A server that is no longer wanted is none of it; another workload is."""
    changed = [name for name in began if began[name] != now.get(name) and (name in now or not name.startswith("server"))]
    return tuple(changed + [name for name in now if began and name not in began])


def _servers(planned: Planned) -> dict[str, object]:
    if planned.is_emulated:
        return {arm: planned.endpoints(arm) for arm in planned.arms}
    # Any free port will do.
    server = replace(planned.matrix.server, port=0)
    whole = document(replace(planned, matrix=replace(planned.matrix, server=server)))
    shared, arms = _described(whole), whole["arms"]
    assert isinstance(arms, Mapping), whole
    return {arm: {**shared, **_described(entry)} for arm, entry in arms.items()}


def _described(entry: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in entry.items() if name in SERVER}


def _digest(said: object) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True, default=str).encode()).hexdigest()
