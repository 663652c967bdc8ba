"""Build the rows that describe a run before and after it is played."""

import json
import platform
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from agentload import __version__
from agentload.dispatch.stretches import stretches, where
from agentload.endpoints.agreement import expectations
from agentload.endpoints.commands import config_file
from agentload.endpoints.endpoint import Endpoint, without_credentials
from agentload.endpoints.identity import Identity
from agentload.errors import ProfileError
from agentload.exposition.scrape import is_level
from agentload.kvmath.config import model_shape
from agentload.layout.cost import ideal_hit_rates
from agentload.model.controls import is_replica
from agentload.model.plan import Plan
from agentload.model.record import Record
from agentload.model.rows import ArmRow, FingerprintRow, Kind, LegRow, RunRow, SampleRow
from agentload.store.places import DATABASE
from agentload.study.argv import command
from agentload.study.change import extend
from agentload.study.document import json_text
from agentload.study.kinds import Ask, Replay, Study, Sweep
from agentload.study.parts import Live
from agentload.study.stored import Notes

StudyT = TypeVar("StudyT", Replay, Sweep, Ask, Study)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Stored(Record):
    """Report how carrying out a run ended; its journals have all rows."""

    run_id: str
    was_stopped: bool = False
    load_error: str | None = None
    """Why the database lacks rows; None: it has all."""
    goes_on: str = ""
    """Command line that resumes the run."""
    simulated_s: float | None = None
    """Seconds that a run in virtual time took to play, without reading its trace."""


def new_run_id() -> str:
    """Name a run by its wall clock and some randomness: sorted by name is sorted by time."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"


class PlayedOn(Record):
    """State what the servers of a run have in common."""

    kind: Kind
    model: str | None
    """Model that all of them serve; None where they differ."""
    cache_block: int | None = None
    """Tokens in a block of their caches."""


def run_row(
    run: str,
    study: Study,
    *,
    plan: Plan | None,
    trace_hash: str | None,
    on: PlayedOn,
    created_ns: int,
    command: str,
    notes: Notes,
) -> RunRow:
    """Describe a run, called by its trace."""
    if plan is not None:
        machines = tuple(dict(where(stretch)) for stretch in stretches(plan.rounds))
        notes = msgspec.structs.replace(
            notes,
            ideal_hit_rates=ideal_hit_rates(plan, block=on.cache_block),
            source={key: json.loads(said) for key, said in plan.header.source},
            rounds=len(plan.rounds),
            machines=machines if len(machines) > 1 else (),
        )
    trace = None if plan is None else plan.header.name
    seed = study.seed if isinstance(study, Ask) else 0
    return RunRow(
        run_id=run,
        kind=on.kind,
        name=trace or "eval",
        created_ns=created_ns,
        trace_name=trace,
        trace_hash=trace_hash,
        model=on.model,
        design="interleaved" if plan is None else plan.design,
        seed=seed if plan is None else plan.seed,
        version=__version__,
        command=command,
        options=notes.text(),
        study=json_text(without_secrets(study)),
    )


def without_secrets(study: StudyT) -> StudyT:
    """Return a study whose URLs show no name, password or query, because it is stored."""
    if not isinstance(study.servers, Live):
        return study
    return extend(study, endpoints=without_credentials(study.servers.endpoints))


def again(
    study: Study, database: Path, *, resume: str | None = None, into: str | None = None
) -> str:
    """Return the command line that runs a study, resumes a run, or adds to the run *into*."""
    db = None if database == Path(DATABASE) else str(database)
    return command(without_secrets(study), db=db, resume=resume, into=into)


def leg_row(run_id: str, leg: int) -> LegRow:
    """Describe this process as a part of a run, with its clocks as they are now."""
    boot_id = BOOT_ID.read_text().strip() if BOOT_ID.exists() else None
    return LegRow(
        run_id=run_id,
        leg=leg,
        host=platform.node(),
        boot_id=boot_id,
        monotonic_ns=time.monotonic_ns(),
        wall_ns=time.time_ns(),
    )


def arm_row(
    run_id: str, position: int, endpoint: Endpoint, model: str, identity: Identity
) -> ArmRow:
    """Describe one live arm; no header and no key is kept."""
    return ArmRow(
        run_id=run_id,
        arm=endpoint.name,
        position=position,
        url=endpoint.shown_url,
        model=model,
        machine=None if is_replica(endpoint.machine) else endpoint.machine,
        profile=endpoint.profile or identity.emulated,
        expected=json.dumps(expected, sort_keys=True)
        if (expected := expectations(endpoint, identity.facts()))
        else None,
        gpu=endpoint.gpu,
        gpus=endpoint.gpus,
        usd_per_gpu_hour=endpoint.price_per_hour,
        tensor_parallel=endpoint.tensor_parallel,
        data_parallel=endpoint.data_parallel,
        shape=geometry(endpoint, model, identity),
    )


def fingerprint(
    run_id: str,
    leg: int,
    arm: str,
    identity: Identity,
    *,
    moment: Literal["before", "after"],
    round_: int = 0,
) -> FingerprintRow:
    """Return what a server is now, as a row."""
    facts = json.dumps(identity.facts(), sort_keys=True)
    return FingerprintRow(
        run_id=run_id,
        leg=leg,
        arm=arm,
        at_ns=time.monotonic_ns(),
        moment=moment,
        round=round_,
        facts=facts,
    )


def counter_rows(
    run_id: str, leg: int, endpoint: Endpoint, identity: Identity
) -> Iterator[SampleRow]:
    """Yield what a server counts now; nothing unless every replica answered.

    Sums over some replicas would seem to run backwards.
    """
    at_ns = time.monotonic_ns()
    if identity.replicas == len(endpoint.metrics_urls):
        for name, value in identity.counters.items():
            if not is_level(name):  # how full an idle server is says nothing of its load
                yield SampleRow(
                    run_id=run_id, leg=leg, arm=endpoint.name, at_ns=at_ns, name=name, value=value
                )


def geometry(endpoint: Endpoint, model: str, identity: Identity) -> str | None:
    """Return the shape of the model as JSON, from the first usable config.json, or None.

    Raises ProfileError when the arms file names a config that cannot be read: that was meant.
    """
    for name in _names(endpoint, model, identity):
        try:
            config = json.loads(config_file(name).read_text(encoding="utf-8"))
            return json.dumps(asdict(model_shape(config, name=model)), sort_keys=True)
        except (ProfileError, ValueError, OSError, AttributeError) as error:
            if name == endpoint.config:
                raise ProfileError(
                    f"{endpoint.name}: config '{name}': {error}",
                    hint="name the config.json that comes with the weights",
                ) from error
    return None


def _names(endpoint: Endpoint, model: str, identity: Identity) -> Iterator[str]:
    if endpoint.config is not None:
        yield endpoint.config
        return
    if endpoint.profile is not None or identity.emulated is not None:
        return  # the profile has it
    if isinstance(
        weights := identity.settings.get("weights") or identity.log.settings.get("weights"), str
    ):
        yield weights
    words = endpoint.launch.command if endpoint.launch is not None else ()
    if "serve" in words[:-1]:
        yield words[words.index("serve") + 1]
    yield model
