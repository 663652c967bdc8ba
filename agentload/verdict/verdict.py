"""Read the rows of a run and decide on them: the one way from rows to a decision."""

from collections.abc import Iterable
from dataclasses import replace
from json import loads
from pathlib import Path

import duckdb
import msgspec

from advisor.decide import decide
from advisor.deployment import QuestionRates
from advisor.evidence import Evidence
from advisor.verdict import Decision
from agentload.builtin import find
from agentload.emulator import profile as profiles
from agentload.errors import AgentloadError
from agentload.evidence.gather import gather
from agentload.evidence.grades import question_options, questions_asked
from agentload.evidence.view import RunView, run_view
from agentload.layout.cost import asking_s, assumed_prefill_s
from agentload.model.profile import ArmProfile, Profile
from agentload.model.record import Record
from agentload.store.database import reading
from agentload.store.runs import run_named
from agentload.study.kinds import Ask
from agentload.study.parts import Live
from agentload.verdict.policy import DECISION, Setting


class Verdict(Record):
    """Hold a decision, with what it was made from and by which rules."""

    view: RunView
    """Run that was decided on; of two that were compared, the later one."""
    decision: Decision
    evidence: Evidence
    setting: Setting


def verdict(
    database: Path,
    run: str | None,
    *,
    setting: Setting,
    reference: str | None = None,
    profile: str | None = None,
) -> Verdict:
    """Decide on a run (None: the one stored last).

    A run of `decide` is judged as it was decided, its planned looks included, unless a policy is
    named. *profile* describes the hardware and the model where no server states them, for arms that
    did not come from a profile themselves. The database is closed before the statistics begin,
    because writers wait for it.
    """
    with reading(database) as connection:  # kept open: those who open it meanwhile share it
        wanted = run_named(database, run)
        view = run_view(connection, wanted)
        own = _decided_with(view) if setting.name == Setting().name else None
        if own is not None:
            setting = replace(own, spelled=setting.spelled)
        evidence = evidence_of(
            connection, view, setting=setting, reference=reference, profile=profile
        )
    decision = decide(evidence, setting.policy)
    return Verdict(view=view, decision=decision, evidence=evidence, setting=setting)


def with_question_pace(found: Verdict, *, pace: float | None) -> Verdict:
    """Return a decision whose further questions take *pace* times what is assumed of servers."""
    setting = replace(found.setting, question_pace=pace)
    deployment = found.evidence.deployment
    rates = _at_pace(deployment.asking, found.view, pace)
    evidence = replace(found.evidence, deployment=replace(deployment, asking=rates))
    decision = decide(evidence, setting.policy)
    return replace(found, evidence=evidence, setting=setting, decision=decision)


def question_pace(database: Path, run: str) -> float | None:
    """Return how much longer the questions of a run took than is assumed; None before any."""
    with reading(database) as connection:
        view = run_view(connection, run)
        return _question_pace(connection, view, _decided_with(view) or Setting())


def _question_pace(
    connection: duckdb.DuckDBPyConnection, view: RunView, setting: Setting
) -> float | None:
    """Return how much longer questions took than is assumed.

    A run of questions on running servers shows it by its own time; else it is what a decision
    noted.
    """
    study = view.study()
    if not isinstance(study, Ask) or not isinstance(study.servers, Live) or study.servers.launch:
        return setting.question_pace
    spent_ns = [leg.ended_ns - leg.monotonic_ns for leg in view.legs if leg.ended_ns is not None]
    tokens, answers = questions_asked(connection, view.name)
    if not spent_ns or not answers:
        return None
    return sum(spent_ns) / 1e9 / _assumed_question_s(view, tokens=tokens, answers=answers)


def _question_rates(
    connection: duckdb.DuckDBPyConnection, view: RunView, setting: Setting
) -> QuestionRates:
    """Return how a run makes its questions, which ones it has stored, and what more take."""
    options = question_options(connection, view.name, view.arms_asked)
    if options is None:
        rates = QuestionRates(per_context=setting.per_context, stored={})
    else:
        rates = QuestionRates(
            per_context=options.per_context,
            repetitions=options.repetitions,
            stored=options.by_length,
        )
    return _at_pace(rates, view, _question_pace(connection, view, setting))


def _at_pace(rates: QuestionRates, view: RunView, pace: float | None) -> QuestionRates:
    """Return *rates* by which a token and an answer take *pace* times what is assumed."""
    factor = 1.0 if pace is None else pace
    return replace(
        rates,
        token_s=factor * _assumed_question_s(view, tokens=1, answers=0),
        answer_s=factor * _assumed_question_s(view, tokens=0, answers=1),
    )


def _assumed_question_s(view: RunView, *, tokens: int, answers: int) -> float:
    """Return how many seconds questions take at the speed that is assumed of servers.

    Their contexts have so many *tokens* together, and they are asked as the run asked its own.
    """
    study = view.study()
    asked = study if isinstance(study, Ask) else Ask(servers=Live(endpoints=""))
    return asking_s(
        assumed_prefill_s(tokens),
        answers,
        arms=len(view.arms_asked),
        concurrency=asked.concurrency,
        thinking_tokens=asked.thinking_tokens,
    )


def _decided_with(view: RunView) -> Setting | None:
    """Return the setting that `decide` last wrote for a run; None where it wrote none."""
    asked = view.probes_of(DECISION)
    own = loads(asked[-1].detail or "{}").get("setting") if asked else None
    if own is None:
        return None
    return msgspec.convert(own, Setting)


def evidence_of(
    connection: duckdb.DuckDBPyConnection,
    view: RunView,
    *,
    setting: Setting,
    reference: str | None = None,
    profile: str | None = None,
) -> Evidence:
    """Gather a run's evidence, with what profiles and the user's own load add to it."""
    known, missing = _profiles(((row.arm, row.profile) for row in view.arms), profile)
    evidence = gather(
        connection,
        view,
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
        asking=_question_rates(connection, view, setting),
        peak_agents=load.peak_agents,
        load_growth_per_month=load.load_growth_per_month,
        spare_replicas=load.spare_replicas,
        gpus_per_replica=load.gpus_per_replica or shared.gpus_per_replica,
        tensor_parallel=load.tensor_parallel or shared.tensor_parallel,
    )
    notes = tuple(
        f"profile '{name}' was not found: hardware and geometry of its arms are not known"
        for name in missing
    )
    # What the user says of a replica holds for all arms.
    arms = (
        evidence.arms
        if load.gpus_per_replica is None
        else tuple(replace(arm, gpus=None) for arm in evidence.arms)
    )
    return replace(evidence, deployment=deployment, arms=arms, notes=(*evidence.notes, *notes))


def _profiles(
    arms: Iterable[tuple[str, str | None]], fallback: str | None
) -> tuple[dict[str, tuple[Profile, ArmProfile]], tuple[str, ...]]:
    """Return the profile of each arm that names one, and the names that were not found."""
    if fallback is not None:
        # The user named this profile, so a wrong name is refused even if every arm has its own.
        find("profiles", fallback)
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
