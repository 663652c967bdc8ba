"""Read a run, decide, and say it: what every verb that shows a decision does; and what a calibrated cache is asked after one."""

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from json import loads
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from advisor.decide import decide
from advisor.evidence import Evidence
from agentload import __version__
from agentload.builtin import find
from agentload.emulator import profile as profiles
from agentload.errors import AgentloadError, UsageError
from agentload.evidence.gather import gather
from agentload.exposition.scrape import Scrape
from agentload.model.profile import ArmProfile, Profile
from agentload.model.rows import AnswerRow, ArmRow, ProbeRow, RunRow, VerdictRow
from agentload.report.document import document
from agentload.report.formats.json import json
from agentload.report.parts import Document
from agentload.report.policy import DECISION, Setting
from agentload.report.read import facts
from agentload.store import loader, tables
from agentload.store.database import reading
from agentload.store.runs import run_named
from agentload.study.kinds import Ask, Replay
from agentload.study.parts import Live
from agentload.study.stored import study_of

JOURNAL: Final = "verdicts"


def advise(
    database: Path,
    run: str | None,
    *,
    setting: Setting,
    reference: str | None = None,
    profile: str | None = None,
    production: Scrape | None = None,
) -> Document:
    """Decide on a run (None: the one stored last) and return the document.

    A run of `decide` is judged as it was decided, its planned looks included, unless a policy is named.
    `profile` describes the hardware and the model where no server tells, for arms that did not come from a profile themselves;
    `production` is what a server there reports: the run's load is compared with it.
    """
    with reading(database) as connection:  # kept open: those who open it meanwhile share it
        wanted = run_named(database, run)
        if setting.name == Setting().name and (own := _decided_with(connection, wanted)) is not None:
            setting = replace(own, spelled=setting.spelled)
        evidence = evidence_of(connection, wanted, setting=setting, reference=reference, profile=profile)
        known = facts(database, wanted, production=production, spelled=setting.spelled)
    return document(decide(evidence, setting.policy), evidence, known, policy=setting.policy)


def _decided_with(connection: duckdb.DuckDBPyConnection, run: str) -> Setting | None:
    """Return what `decide` decided a run with, as it wrote it down last; None where it did not."""
    asked = tables.rows(connection, ProbeRow, run_id=run, probe=DECISION)
    own = loads(asked[-1].detail or "{}").get("setting") if asked else None
    return None if own is None else msgspec.convert(own, Setting)


def evidence_of(
    connection: duckdb.DuckDBPyConnection, run: str, *, setting: Setting, reference: str | None = None, profile: str | None = None
) -> Evidence:
    """Gather a run's evidence, with what profiles and the user's own load add to it."""
    rows = [(row.arm, row.profile) for row in tables.rows(connection, ArmRow, run_id=run)]
    known, missing = _profiles(rows, profile)
    evidence = gather(
        connection,
        run,
        reference=reference,
        profiles={arm: found for arm, (_, found) in known.items()},
        price=setting.price,
    )
    listed = next((whole.price for whole, _ in known.values() if whole.price is not None), None)
    load, shared = setting.load, evidence.deployment
    gpu = shared.gpu
    if gpu.usd_per_hour is None and listed is not None:
        gpu = replace(gpu, usd_per_hour=listed.usd_per_gpu_hour)
    deployment = replace(
        shared,
        gpu=gpu,
        peak_agents=load.peak_agents,
        load_growth_per_month=load.load_growth_per_month,
        spare_replicas=load.spare_replicas,
        gpus_per_replica=load.gpus_per_replica or shared.gpus_per_replica,
        tensor_parallel=load.tensor_parallel or shared.tensor_parallel,
    )
    notes = tuple(f"profile '{name}' was not found: hardware and geometry of its arms are not known" for name in missing)
    # What the user says of a replica holds for all arms.
    arms = evidence.arms if load.gpus_per_replica is None else tuple(replace(arm, gpus=None) for arm in evidence.arms)
    return replace(evidence, deployment=deployment, arms=arms, notes=(*evidence.notes, *notes))


def _profiles(
    arms: Iterable[tuple[str, str | None]], fallback: str | None
) -> tuple[dict[str, tuple[Profile, ArmProfile]], tuple[str, ...]]:
    """Return the profile of each arm that names one, and the names that were not found."""
    if fallback is not None:
        find("profiles", fallback)  # asked for by the user, just now: refused though every arm names its own
    read: dict[str, Profile] = {}
    found, missing = {}, []
    for arm, named in arms:
        name, _, own = named.rpartition("/") if named else (fallback, "", arm)
        if not name:
            continue
        if name not in read:
            try:
                find("profiles", name)
            except AgentloadError:
                missing.append(name)
                continue
            read[name] = profiles.read(name)
        each = next((each for each in read[name].arms if each.name == own), None)
        if each is not None:
            found[arm] = (read[name], each)
    return found, tuple(dict.fromkeys(missing))


def keep(document: Document, database: Path, *, setting: Setting) -> None:
    """Store a decision as a row of `verdicts`, unless it is the one that is there: journal first, so that a database can be made again."""
    row = VerdictRow(
        run_id=document.run,
        at_ns=time.time_ns(),
        policy=setting.name,
        decision=json(document),
        headline=document.headline,
        verdict=document.decision.choice.verdict,
        version=__version__,
    )
    with reading(database) as connection:
        before = tables.rows(connection, VerdictRow, run_id=row.run_id, policy=row.policy)
    if before and before[-1] == replace(row, at_ns=before[-1].at_ns):
        return
    loader.keep([row], database, run_id=document.run, name=JOURNAL)


def settle(database: Path, run: str) -> None:
    """Decide on a run that has ended and store the decision, for lists to show; nothing where there is too little to decide on."""
    with suppress(AgentloadError):  # what was measured is stored, whatever can be said of it
        keep(advise(database, run, setting=Setting()), database, setting=Setting())


CALIBRATED: Final = "fp8-calibrated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """What is left to ask once an arm's scales are calibrated."""

    arm: str
    model: str | None
    traces: tuple[str, ...]
    study: Ask
    """The reference and the calibrated arm, which is served where the other was."""


def asked_again(database: Path, run: str, *, setting: Setting) -> Again:
    """Read what a run's decision leaves to ask. Raises UsageError where it asks for something else than calibration."""
    decision = advise(database, run, setting=setting).decision
    found = {each.arm: each.verdict for each in decision.server if each.arm != decision.reference}
    arm = next((name for name, verdict in found.items() if verdict == "calibrate"), None)
    hint = f"agentload advise {database} --run {run}"
    if arm is None:
        said = ", ".join(f"{name}: {verdict}" for name, verdict in found.items())
        raise UsageError(f"the decision on run {run} does not ask for calibration ({said})", hint=hint)
    with reading(database) as connection:
        (row,) = tables.rows(connection, RunRow, run_id=run)
        arms = {each.arm: each for each in tables.rows(connection, ArmRow, run_id=run)}
        tasks = {each.task for each in tables.rows(connection, AnswerRow, run_id=run) if each.arm == arm}
    first, other = arms[decision.reference], arms[arm]
    if first.url is None or other.url is None:
        raise UsageError(f"run {run} was simulated: there is no server to ask again", hint=hint)
    margin = setting.policy.accuracy_margin
    open_ = [each for each in decision.accuracy if each.arm == arm and (each.difference.low is None or each.difference.low <= -margin)]
    lengths = sorted({round(each.context_tokens) for each in open_ or [each for each in decision.accuracy if each.arm == arm]})
    began = study_of(row)
    base = began if isinstance(began, Ask) else Ask(servers=Live(endpoints=""))
    endpoints = f"{decision.reference}={first.url},{CALIBRATED}={other.url}"
    study = msgspec.structs.replace(base, servers=Live(endpoints=endpoints), until_settled=True, items=None, traces=(), aa=None)
    if tasks and base.own is None:
        study = msgspec.structs.replace(study, tasks=tuple(sorted(tasks)), contexts=tuple(lengths))
    traces = began.traces if isinstance(began, Replay | Ask) else ()
    return Again(arm=arm, model=row.model, traces=tuple(each.path for each in traces), study=study)
