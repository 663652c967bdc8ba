"""Write what the steps of a matrix read: traces, the policy, the arms of each model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import read_file
from agentload.matrix.arms import chosen
from agentload.matrix.described import Matrix
from agentload.matrix.parts import document
from agentload.matrix.places import Places
from agentload.matrix.steps import Planned
from agentload.model.trace import Trace
from agentload.tracefile import write


def lay_out(matrix: Matrix, places: Places, traces: Mapping[str, Trace]) -> None:
    """Write what all models share."""
    for name, trace in traces.items():
        places.trace(name).parent.mkdir(parents=True, exist_ok=True)
        write(places.trace(name), trace)
    if matrix.policy:
        _write(places.policy, matrix.policy)


def endpoints_of(planned: Planned) -> tuple[Endpoint, ...]:
    """Write the arms file of a model, and one for each of its arms; return them. Emulated ones have no servers before they are used."""
    if planned.is_emulated or not planned.arms:
        return ()
    whole, path = document(planned), planned.places.endpoints(planned.model.name)
    for arm in planned.arms:
        _write(planned.places.endpoints(planned.model.name, arm), chosen(whole, [arm]))
    _write(path, whole)
    return read_file(path)


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(dict(content), sort_keys=False, width=1000), encoding="utf-8")
