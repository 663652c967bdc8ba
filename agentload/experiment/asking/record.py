"""What is written down about an evaluation that is a run of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence

from agentload import __version__
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, kind_of, served_model
from agentload.experiment.legs.record import arm_row
from agentload.model.rows import FingerprintRow, Row, RunRow


def described_run(
    run: str, endpoints: Sequence[Endpoint], identities: Mapping[str, Identity], *, seed: int, command: str, options: str
) -> tuple[Row, ...]:
    """Describe the run and its arms."""
    models = {each.name: served_model(each, identities[each.name]) for each in endpoints}
    names = set(models.values())
    described = RunRow(
        run_id=run,
        kind=kind_of(identities),
        name="eval",
        created_ns=time.time_ns(),
        trace_name=None,
        trace_hash=None,
        model=names.pop() if len(names) == 1 else None,
        design="interleaved",
        seed=seed,
        version=__version__,
        command=command,
        options=options,
    )
    return described, *(arm_row(run, place, each, models[each.name], identities[each.name]) for place, each in enumerate(endpoints))


def fingerprints(run: str, leg: int, identities: Mapping[str, Identity]) -> Iterator[FingerprintRow]:
    """Say what each server was before it was asked."""
    for name, identity in identities.items():
        facts = json.dumps(identity.facts(), sort_keys=True)
        yield FingerprintRow(run_id=run, leg=leg, arm=name, at_ns=time.monotonic_ns(), moment="before", round=0, facts=facts)
