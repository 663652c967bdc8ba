"""Write the command that takes a step, as a line of the shell.

It is the run's own study with what the step changes. Everything else stays: the same servers, the
same load, the same database. A step that asks for more of the run resumes the run; a change that
makes another plan is a run of its own; what is measured next to the run is added to it.
"""

import shlex
from math import ceil
from typing import Any, Final, NamedTuple, TypeVar, assert_never

import msgspec

from advisor import steps
from advisor.legs.questions import SHORTEST
from advisor.legs.speed import MOST_PAIRS
from advisor.policy import Policy, ServiceLimits
from agentload.endpoints.read import EMULATED, is_arms_file
from agentload.model.kv import WELL_KNOWN
from agentload.report import format as say
from agentload.report.parts import RunFacts
from agentload.store.places import DATABASE
from agentload.study.argv import argv, command, lost_options
from agentload.study.change import differences, extend, given_pairs
from agentload.study.kinds import SLO, Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Load, Slo, TraceRef, Virtual

P = TypeVar("P", bound=Replay | Sweep)
USUAL: Final = Policy()

# Placeholders for what is not known.
_TRACE: Final = "TRACE"
_ENDPOINTS: Final = "ENDPOINTS"
_MODEL: Final = "MODEL"
_ARMS_FILE: Final = "endpoints.yaml"
_TRIAL_S: Final = 900.0
"""What a simulated search tries each load for, where no more is asked: it takes seconds."""


def suggestion(
    step: steps.Step, facts: RunFacts, *, played: int = 0, joins: bool = False
) -> str | None:
    """Return the command that takes a step; None where it would be refused.

    None for Replicas; for Features on launched, emulated or simulated servers; for Control in a
    simulation; for Restarts of emulated or simulated servers, or beyond MOST_PAIRS. Where a step
    starts servers and no file says how, the command writes that file. *played* is how many pairs of
    the run count; with *joins* there are calls to which other measurements are added.
    """
    database = facts.made.database
    match step:
        case steps.Replicas():
            return None  # it is not known where other servers run; the need says what else to do
        case steps.Features():
            return _probe_command(facts)
        case steps.Again():
            grown = _with_played_pairs(_virtual(facts) or _replay(facts), played)
            return _command(facts, _in_blocks(facts, grown), db=database)
        case steps.Control(arm=arm):
            if _virtual(facts) is not None:
                return None  # how far equal servers differ there is what the profile says
            controlled = _with_control(_with_played_pairs(_replay(facts), played), arm)
            return _command(facts, _in_blocks(facts, controlled), db=database)
        case steps.MorePairs(pairs=pairs):
            return _more(facts, pairs, played)
        case steps.Swap(pairs=pairs):
            return _swap_command(facts, pairs, played)
        case steps.Restarts(restarts=starts):
            return _restart_command(facts, starts, played)
        case steps.Calibrate():
            traces = [trace.path for trace in _replay(facts).traces]
            return shlex.join(("agentload", "calibrate", *traces, "--model", _model(facts)))
        case steps.ArmsFile(arm=arm):
            return _arms_file_command(facts, "-", more=(arm,))
        case steps.CapacitySearch() | steps.Lengths() | steps.Questions():
            joined_run = _run_to_join(step, facts, joins=joins)
            return _command(facts, _study_beside(step, facts), db=database, into=joined_run)
        case _:
            assert_never(step)


class OwnServers(NamedTuple):
    """The commands of a decision on the reader's own servers."""

    described: str
    """Writes a file of their arms."""
    decided: str
    """Plays the run's load on them."""
    minutes: float | None
    """What the decision takes at most; None for a benchmark, which has no budget."""


def on_own_servers(
    facts: RunFacts,
    policy: Policy = USUAL,
    *,
    agents: int | None = None,
    reference: str | None = None,
) -> OwnServers:
    """Return the commands that write an arms file and play the run's load on it.

    A benchmark is repeated by its own rules, without policy or budget. The *policy* and *agents* at
    the peak are the reader's; without a service level it is that of a run with --capacity.
    """
    described = _arms_file_command(facts, _ARMS_FILE)
    replay = _replay(facts)
    servers = Live(endpoints=_ARMS_FILE)
    if replay.benchmark is not None:
        own = msgspec.structs.replace(replay, servers=servers)
        return OwnServers(described, _command(facts, own, db=DATABASE), None)
    # A decision makes its blocks as short as its budget
    # needs, and repeats sessions with new content.
    load = msgspec.structs.replace(
        replay.load, duration_s=None, max_calls=None, max_tokens=None, history="fixed"
    )
    study = Decide(
        traces=replay.traces,
        servers=servers,
        reference=reference,
        slo=_level(policy.slo(None)) or level_of_run(facts),
        agents=agents,
        price_usd=facts.price_usd,
        decide_by=policy.decide_by if agents or policy.decide_by == "tasks" else None,
        load=load,
        tokenizer=replay.tokenizer,
        min_change=policy.min_change,
        accuracy_margin=policy.accuracy_margin,
        seed=replay.seed,
        request=replay.request,
    )
    # A file of arms may name more of them than the run had: a shorter budget may not hold them.
    if facts.budget_s is not None and facts.budget_s > study.budget_s:
        study = extend(study, budget_s=facts.budget_s)
    return OwnServers(described, _command(facts, study, db=DATABASE), study.budget_s / 60)


def _level(said: ServiceLimits | None) -> Slo | None:
    """Return the advisor's service level as studies have it."""
    if said is None:
        return None
    return Slo(ttft_ms=said.ttft_ms, tpot_ms=said.tpot_ms, turn_ms=said.turn_ms)


def commands_of_run(facts: RunFacts) -> tuple[str, ...]:
    """Return the commands that make the run again in an empty folder, with what was added to it.

    Where a job or an older version made the run, that is the command which was typed.
    """
    made = facts.made
    study = facts.study
    verb = next(iter(made.command.split()[1:]), None)
    if study is None or verb != argv(study)[0]:
        return (made.command,) if made.command else ()
    # A decision asks all that it needs: pairs, step times, trials and questions.
    decided = [each for each in facts.additions if isinstance(each, Decide)]
    others = [each for each in facts.additions if not isinstance(each, Decide)]
    if decided:
        study = decided[-1]
    # Its name is in every prompt: a run of another name sends other bytes.
    first = command(study, db=made.database, run_id=made.run, spelled=facts.spelled)
    more = (_command(facts, each, db=made.database, into=made.run) for each in others)
    return (first, *more)


def level_of_run(facts: RunFacts) -> Slo | None:
    """Return the service level of the last search next to a run, or of a run with --capacity."""
    searched = [each.slo for each in facts.additions if isinstance(each, Search) and each.slo]
    if searched:
        return searched[-1]
    replay = _replay(facts)
    return None if replay.capacity is None else replay.slo


def silent_options(facts: RunFacts) -> tuple[str, ...]:
    """List the options that a defaults file sets here although the run did without them.

    No command can leave them out.
    """
    return lost_options(_replay(facts), facts.spelled)


def _probe_command(facts: RunFacts) -> str | None:
    """Return the probe of the run's servers; None where none runs by itself.

    Such are launched and emulated servers.
    """
    servers = _servers(facts)
    is_apart = servers.launch or servers.endpoints.startswith(EMULATED)
    if is_apart:
        return None
    return _command(facts, Probe(servers=servers))


def _swap_command(facts: RunFacts, pairs: int, played: int) -> str:
    """Return the replay in which arms change machines."""
    changed: dict[str, object] = {"swap": True, "aa": None}
    if _replay(facts).design == "sequential":
        changed["design"] = "interleaved"
    if _servers(facts).launch:
        changed["launch"] = False
    return _more(facts, pairs, played, **changed)


def _restart_command(facts: RunFacts, starts: int, played: int) -> str | None:
    """Return the replay in which each arm is started *starts* times.

    Or the command for the arms file that it needs; None where nobody starts servers, or nobody
    plays that many pairs.
    """
    if starts > MOST_PAIRS:
        return None
    servers = _servers(facts)
    if servers.endpoints.startswith(EMULATED):
        return None  # an emulated server's starts are its profile's
    if servers.endpoints != _ENDPOINTS and not is_arms_file(servers.endpoints):
        # who answers at a URL can be started from a file
        return _arms_file_command(facts, _ARMS_FILE)
    # A run that starts its servers for every pair keeps
    # doing so; none starts them less often than before.
    each_pair = servers.launch and servers.restarts is None
    often = max(starts, servers.restarts or 0) if servers.launch else starts
    return _more(
        facts,
        starts,
        played,
        launch=True,
        restarts=None if each_pair else often,
        design="interleaved",
        warmup=False,
        swap=False,
    )


def _command(
    facts: RunFacts,
    study: Study,
    *,
    db: str | None = None,
    resume: str | None = None,
    into: str | None = None,
) -> str:
    return command(study, db=db, resume=resume, into=into, spelled=facts.spelled)


def _arms_file_command(facts: RunFacts, out: str, *, more: tuple[str, ...] = ()) -> str:
    """Return the command that writes an arms file of the run's arms and *more*.

    The file has the usual arms where the run has none to write.
    """
    arms = well_known_arms(facts)
    named = ("--arms", ",".join(dict.fromkeys((*arms, *more)))) if arms else ()
    described = ("agentload", "endpoints", "init", "--model", _model(facts), *named)
    return shlex.join((*described, "--out", out))


def well_known_arms(facts: RunFacts) -> tuple[str, ...]:
    """Return the arms of the run that a suggested arms file has.

    Empty where fewer than two can be written: the file then has the usual ones.
    """
    arms = tuple(each.arm for each in facts.made.servers if each.arm in WELL_KNOWN)
    # Calibrated arms wait for their weights, so the file has them behind a #.
    ready = [each for each in arms if not WELL_KNOWN[each].is_calibrated]
    return arms if len(ready) > 1 else ()


def _model(facts: RunFacts) -> str:
    return _servers(facts).model or facts.made.model or _MODEL


def _virtual(facts: RunFacts) -> Replay | None:
    """Return the simulation that the run was."""
    match facts.study:
        case Replay(servers=Virtual()) as study:
            return study
        case _:
            return None


def _servers(facts: RunFacts) -> Live:
    """Return the servers of the run; those of a simulation are its profile's, emulated."""
    match None if facts.study is None else facts.study.servers:
        case Live(endpoints=said) as servers if said:
            return servers
        case Virtual(profile=profile, arms=arms):
            named = say.join((profile, "+".join(arms)), "/")
            return Live(endpoints=f"{EMULATED}{named}")
        case _:
            return Live(endpoints=_ENDPOINTS)


def _replay(facts: RunFacts) -> Replay:
    """Return the replay that the run was, or the one that plays its load on live servers."""
    named = tuple(TraceRef(path=path) for path in facts.made.traces or (_TRACE,))
    match facts.study:
        case Replay() as study:
            return msgspec.structs.replace(
                study, servers=_servers(facts), traces=study.traces or named
            )
        case Search(traces=traces, load=load, seed=seed):
            return Replay(traces=traces, servers=_servers(facts), load=load, seed=seed)
        case Sweep(seed=seed):
            # What a sweep asks is made for it, so no trace
            # holds it: the reader's own takes its place.
            return Replay(traces=(TraceRef(path=_TRACE),), servers=_servers(facts), seed=seed)
        case _:
            return Replay(traces=named, servers=_servers(facts))


def _with_control(study: Replay, arm: str) -> Replay:
    """Return a replay that plays an arm twice, under two names."""
    # The copy would share the machine of its twin, so they take turns.
    alone = {"design": "interleaved"} if study.design == "parallel" else {}
    return extend(study, aa=arm, swap=False, **alone)


def _with_played_pairs(study: Replay, played: int) -> Replay:
    """Return a replay with as many pairs as the run has by now.

    That is more than were asked for first where the run was extended.
    """
    return extend(study, pairs=max(study.pairs, played))


def _in_blocks(facts: RunFacts, wanted: Replay) -> Replay:
    """Return a replay whose blocks are those of the run, however many pairs play them.

    A trace that is cut into more parts is another load: fewer sessions run at the same time.
    """
    began = facts.study
    return _acceptable(given_pairs(began, wanted) if isinstance(began, Replay) else wanted)


def _acceptable(study: P) -> P:
    """Return a study that plans accept.

    Each machine has as many pairs, and there are no more starts than pairs.
    """
    if isinstance(study, Replay) and study.swap:
        blocks = study.blocks or study.pairs
        even = blocks + blocks % 2
        study = extend(
            study,
            pairs=even * ceil(study.pairs / even),
            blocks=None if study.blocks is None else even,
        )
    if isinstance(study.servers, Live) and study.servers.restarts is not None:
        return extend(study, restarts=min(study.servers.restarts, study.pairs))
    return study


def _more(facts: RunFacts, pairs: int, played: int, **changes: object) -> str:
    """Return the command after which *pairs* pairs have been played in all.

    Where *changes* make another plan of the run, it starts a run of its own.
    """
    began = _virtual(facts) or _replay(facts)  # a simulation is given more by a longer one
    wanted = extend(began, pairs=pairs, **changes)
    if began != facts.study or differences(began, wanted):
        return _command(facts, _in_blocks(facts, wanted), db=facts.made.database)
    if played < began.pairs and pairs <= began.pairs:
        # The run was stopped before its own plan was played.
        wanted = began
    else:
        # As many were played already, so the step counts pairs of a class
        # that only some of them held: add them to those played.
        more = played + pairs if pairs <= played else pairs
        if began.swap:  # whole swap cycles: as many pairs on each machine
            more = ceil(more / began.pairs) * began.pairs
        wanted = extend(wanted, pairs=more)
    if isinstance(began.servers, Virtual):
        return _command(facts, _in_blocks(facts, wanted), db=facts.made.database)
    return _command(facts, wanted, db=facts.made.database, resume=facts.made.run)


def _study_beside(
    step: steps.CapacitySearch | steps.Lengths | steps.Questions, facts: RunFacts
) -> Search | Sweep | Ask:
    """Return the study of what is measured next to the run, on its servers."""
    servers = _servers(facts)
    replay = _replay(facts)
    match step:
        case steps.CapacitySearch():
            limits = _limits(step, replay)
            trial_s = step.trial_s
            chosen: Live | Virtual = servers
            load = Load(wait_cap_s=replay.load.wait_cap_s)
            simulated = _virtual(facts)
            if simulated is not None and isinstance(simulated.servers, Virtual):
                of = simulated.servers
                chosen = Virtual(profile=of.profile, arms=of.arms, noise=of.noise)
                limits = {"slo": SLO} | limits
                trial_s = max(trial_s, _TRIAL_S)
                load = _of_sessions(simulated.load)
            return Search(
                traces=replay.traces, servers=chosen, load=load, trial_s=trial_s, **limits
            )
        case steps.Lengths(lengths=lengths):
            return _acceptable(Sweep(servers=servers, contexts=lengths))
        case steps.Questions():
            asked = facts.study if isinstance(facts.study, Ask) else _questions(facts, replay, step)
            items = None if step.items is None else ceil(step.items / asked.repetitions)
            return extend(
                asked,
                own=None,
                screen=False,
                traces=(),
                contexts=step.lengths,
                items=items,
                aa=step.aa or asked.aa,
            )


def _of_sessions(load: Load) -> Load:
    """Return what a load says of sessions, without how many there are and for how long."""
    return Load(
        wait_scale=load.wait_scale,
        wait_cap_s=load.wait_cap_s,
        max_context_tokens=load.max_context_tokens,
        cancel_share=load.cancel_share,
        retries=load.retries,
    )


def _questions(facts: RunFacts, replay: Replay, step: steps.Questions) -> Ask:
    """Return the questions to the servers of a replay, made like those that have answers.

    Several share a context unless it is too short for that.
    """
    are_long = min(step.lengths, default=0) >= SHORTEST
    asked = Ask(
        servers=replay.servers,
        tokenizer=replay.tokenizer,
        per_context=facts.per_context if are_long else 1,
        seed=replay.seed,
        request=replay.request,
        timeouts=replay.timeouts,
    )
    form = facts.asked
    if form is None:
        return asked
    return extend(
        asked,
        tasks=asked.tasks if {*form.tasks} == {*asked.tasks} else form.tasks,
        depths=form.depths or asked.depths,
        repetitions=form.repetitions,
        per_context=form.per_context if are_long else 1,
        seed=form.seed,
    )


def _run_to_join(step: steps.Step, facts: RunFacts, *, joins: bool) -> str | None:
    """Return the run that a step adds to: one with calls, or with questions to the same arms."""
    match step, facts.study:
        case steps.Questions(aa=again), Ask(screen=False, aa=asked):
            if joins or again in (None, asked):
                return facts.made.run
            return None
        case _:
            return facts.made.run if joins else None


def _limits(step: steps.CapacitySearch, replay: Replay) -> dict[str, Any]:
    """Return the service level of a search: the step's, else that of a run with --capacity."""
    said = step.limits
    limits = _level(said)
    if said is not None and limits != Slo():
        return {"slo": limits, "share": said.share}
    if replay.capacity is None:
        return {}
    return {"slo": replay.slo}
