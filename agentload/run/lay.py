"""Lay a study out on its arms: read traces, reach or start servers, make the plan.

Nothing is measured here. Servers and arms in virtual time are laid out alike; what differs is
in `_Ground`: names, windows, pools, machines.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import msgspec

from agentload.endpoints.endpoint import Endpoint, beginnings, replica_pairs, without_fellows
from agentload.endpoints.identity import identify_all
from agentload.errors import PlanError, UsageError
from agentload.kvmath.pool import pool_of
from agentload.layout.agentx import RULES
from agentload.layout.cost import Cost, cost, too_long
from agentload.layout.coverage import trace_shapes
from agentload.layout.long_run import Fills, LongRun, long_run
from agentload.layout.plan import laid_windows, of_study, with_starts
from agentload.layout.steady import steady
from agentload.layout.traces import sweep
from agentload.layout.windows import WINDOW_S, held_tokens, sessions_of_hours
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.plan import Budget, Plan
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.remote.seats import check, check_division
from agentload.run.arms import Arms, read_arms, with_control
from agentload.run.files import read_traces, trace_hash
from agentload.run.past import added_pairs, added_plan
from agentload.run.place import StudyPlace
from agentload.run.play import Playing
from agentload.run.servers import pools, profile_arm, window
from agentload.run.simulate import Simulation, simulated_id, without_noise
from agentload.store.places import began
from agentload.study.change import extend, resumption
from agentload.study.kinds import Replay, Sweep
from agentload.study.parts import Live, Virtual
from agentload.study.quantity import lengths_text
from agentload.study.stored import Notes, study_of

Notice = Callable[[str], None]


class Prepared(Record):
    """Hold what is played."""

    playing: Playing | Simulation
    cost: Callable[[], Cost]
    """Adds up what is played, which takes a while."""
    fills: Fills | None = None
    """Times at which the pools are full, for a run that is laid out to fill them."""
    beyond: str | None = None
    """Warning of turns longer than a model takes, as far as known before servers are asked."""


@contextmanager
def lay_out(
    study: Replay | Sweep,
    place: StudyPlace,
    *,
    is_dry: bool = False,
    notice: Notice = lambda _: None,
) -> Iterator[Prepared]:
    """Yield what is played; emulated servers run as long as the block.

    When *is_dry* nobody is started or asked.
    """
    if isinstance(study.servers, Virtual):
        assert isinstance(study, Replay), study
        yield simulation(study, place)
        return
    noise = study.servers.noise
    if isinstance(study, Sweep):
        arms = read_arms(study.servers)
        with arms.up(noise=noise, seed=study.seed, is_dry=is_dry) as found:
            yield _sweep(study, place, arms, found, is_dry=is_dry, notice=notice)
        return
    arms = read_arms(study.servers, tokenizer=study.tokenizer)
    seed = study.seed if study.noise_seed is None else study.noise_seed
    machines = 2 if study.swap else 1
    with arms.up(noise=noise, seed=seed, is_dry=is_dry, machines=machines) as found:
        yield _replay(study, place, arms, found, notice=notice)


class _Ground(Record):
    """Hold what the plan of a replay depends on besides the study and its traces."""

    names: tuple[str, ...]
    window: int | None
    """Shortest window of the arms, in tokens; None where unknown."""
    pools: Callable[[], Mapping[str, float | None]]
    machines: tuple[str, ...] = ()
    replicas: tuple[str, ...] = ()
    compares: bool | None = None
    """Whether turns have the recorded answers; None where no recorded words are played."""
    first: Replay | None = None
    """Study that the resumed run began with; None for a new run."""


class _Layout(Record):
    """Hold a replay that is laid out on its ground."""

    study: Replay
    plan: Plan
    trace_hash: str
    notes: Notes
    fills: Fills | None
    beyond: str | None


def _lay(study: Replay, ground: _Ground, *, run: Callable[[Replay], str]) -> _Layout:
    """Lay a replay out; *run* returns the run's name for the study with hashes of its traces."""
    trace, refs = read_traces(
        study.traces,
        lenient=study.lenient,
        max_context_tokens=study.load.max_context_tokens,
        compares=ground.compares,
    )
    beyond = too_long(trace.header, trace.sessions, ground.window, may_cut=study.benchmark is None)
    study = with_end(extend(study, traces=refs))
    shape = trace_shapes(trace, study.load.planned())
    if ground.first is not None:
        study = resumption(ground.first, study)
    name = run(study)
    stock = None if study.windows is None else steady(trace, study.load.planned())
    laid = None if stock is None else laid_windows(study, stock)
    fills = None
    if study.capacity is not None:
        long = _long_run(study, study.capacity, trace, ground)
        laid, fills = long.laid, long.fills
        study = extend(study, duration_s=long.laid.load.budget.seconds)
    made = of_study(
        study,
        trace,
        ground.names,
        run=name,
        laid=laid,
        machines=ground.machines,
        replicas=ground.replicas,
    )
    notes = Notes(
        fill_minutes={} if fills is None else dict(fills.minutes),
        trace_shape=shape,
        held_tokens=None if stock is None else held_tokens(stock, seed=study.seed),
        sessions_of_hours=None if stock is None else sessions_of_hours(stock),
    )
    return _Layout(
        study=study, plan=made, trace_hash=trace_hash(refs), notes=notes, fills=fills, beyond=beyond
    )


def _long_run(study: Replay, agents: int, trace: Trace, ground: _Ground) -> LongRun:
    """Lay out windows that fill the pools; a resumed run keeps the length that it had."""
    load = study.load
    lasted_s = None
    if ground.first is not None:
        lasted_s = load.duration_s
        load = msgspec.structs.replace(load, duration_s=None)
    return long_run(
        trace,
        load.planned(),
        agents=agents,
        pairs=study.pairs,
        began=study.blocks,
        seed=study.seed,
        pools=ground.pools(),
        lasted_s=lasted_s,
    )


def with_end(study: Replay) -> Replay:
    """Return a study whose windows end, after their usual time if it names no other end."""
    if study.load.planned().budget != Budget():
        return study
    if study.benchmark is not None:
        return extend(study, duration_s=RULES[study.benchmark].lasts_s)
    if study.windows is None:
        return study
    return extend(study, duration_s=WINDOW_S)


def simulation(study: Replay, place: StudyPlace) -> Prepared:
    """Lay a replay out in virtual time."""
    assert isinstance(study.servers, Virtual), study.servers
    if study.load.history == "recorded":
        raise UsageError(
            "a profile says how fast arms are, not what they say",
            hint="--history fixed, or replay on servers",
        )
    arms = read_arms(study.servers).profiles
    slowness = _machines(study, study.servers, arms)
    ground = _Ground(
        names=tuple(arm.name for arm in arms),
        window=min(arm.server.max_model_len for arm in arms),
        pools=lambda: {arm.name: float(pool_of(arm).tokens) for arm in arms},
        machines=tuple(slowness),
    )
    made = _lay(
        study,
        ground,
        run=lambda pinned: (
            place.run or simulated_id(pinned, arms, trace_hash=trace_hash(pinned.traces))
        ),
    )
    playing = Simulation(
        study=made.study,
        plan=made.plan,
        arms={arm.name: arm for arm in arms} if study.servers.noise else without_noise(arms),
        trace_hash=made.trace_hash,
        database=place.database,
        notes=made.notes,
        slowness=slowness,
    )
    return Prepared(
        playing=playing, cost=partial(cost, made.plan), fills=made.fills, beyond=made.beyond
    )


def _machines(study: Replay, servers: Virtual, arms: Sequence[ArmProfile]) -> dict[str, float]:
    """Return how many times as long a step takes on each machine; 1.0 each by default.

    Empty where the arms are not placed on machines.
    """
    found = dict(servers.machines)
    if not found and (study.swap or study.design == "parallel"):
        found = {f"m{number + 1}": 1.0 for number in range(len(arms))}
    if found and len(found) != len(arms):
        raise UsageError(
            f"{len(arms)} arms need as many machines, got {len(found)}",
            hint="--arms bf16,fp8 --machines m1=1,m2=1.08",
        )
    return found


def _replay(
    study: Replay, place: StudyPlace, arms: Arms, found: tuple[Endpoint, ...], *, notice: Notice
) -> Prepared:
    check(study)
    if (said := _replicas_left_out(found)) is not None:
        notice(said)
    if not replica_pairs(found):
        found = tuple(map(without_fellows, found))
    served = with_control(found, study.aa)
    made = _lay(
        study, _ground(study, place, found, served, notice=notice), run=lambda _: place.name
    )
    check_division(study, made.plan)
    expected = cost(made.plan)
    playing = Playing(
        study=made.study,
        plan=made.plan,
        endpoints=served,
        database=place.database,
        trace_hash=made.trace_hash,
        is_resumed=place.resume is not None,
        launching=arms.launching,
        notes=msgspec.structs.replace(
            made.notes,
            calls=expected.calls_by_arm,
            free_lengths=tuple(each.name for each in found if not each.force_lengths),
        ),
    )
    return Prepared(playing=playing, cost=lambda: expected, fills=made.fills, beyond=made.beyond)


def _ground(
    study: Replay,
    place: StudyPlace,
    found: tuple[Endpoint, ...],
    served: tuple[Endpoint, ...],
    *,
    notice: Notice,
) -> _Ground:
    """Return the ground of a replay on servers.

    *served* are the *found* endpoints with their controls.
    """
    assert isinstance(study.servers, Live), study.servers
    forced = ", ".join(each.name for each in found if each.force_lengths)
    compares = not forced if study.load.history == "recorded" else None
    if compares is False:
        notice(
            f"replies are not compared with recorded ones: lengths are forced on {forced} "
            "(force_lengths: false in the arms file)"
        )
    row = None if place.resume is None else began(place.database, place.resume)
    first = None if row is None else study_of(row)
    replicas = replica_pairs(served)
    is_placed = study.swap or study.design == "parallel" or _are_apart(found, study.servers)
    return _Ground(
        names=tuple(endpoint.name for endpoint in served),
        window=_longest(found, are_up=False),
        pools=lambda: pools(served),
        machines=beginnings(served) if is_placed and not replicas else (),
        replicas=replicas,
        compares=compares,
        first=first if isinstance(first, Replay) else None,
    )


def _replicas_left_out(arms: Sequence[Endpoint]) -> str | None:
    """Say which replicas are left out because numbers are unequal; None where all play."""
    pairs = len(replica_pairs(arms)) or 1
    most = max(len(each.servers) for each in arms)
    if pairs == most:
        return None
    counts = ", ".join(f"{each.name} {len(each.servers)}" for each in arms)
    return (
        f"unequal numbers of replicas ({counts}): a start counts where each arm has its own, so "
        f"the first {pairs} of each play"
    )


def _are_apart(arms: tuple[Endpoint, ...], servers: Live) -> bool:
    """Tell whether each arm has a server of its own all the time.

    A difference may then be that of their GPUs; emulated servers have none.
    """
    return (
        not servers.launch
        and len({arm.url for arm in arms}) > 1
        and all(arm.profile is None for arm in arms)
    )


def _sweep(
    study: Sweep,
    place: StudyPlace,
    arms: Arms,
    served: tuple[Endpoint, ...],
    *,
    is_dry: bool,
    notice: Notice,
) -> Prepared:
    launching, contexts = arms.launching, study.contexts
    if not is_dry:
        longest = _longest(served, are_up=launching is None)
        contexts = _fitting(contexts, longest, study.output_tokens, notice)
    # Pairs that earlier sweeps added to the run are counted,
    # so that the orders of its arms stay balanced.
    whole = study
    if place.into is not None:
        before = added_pairs(place.database, place.into)
        whole = extend(study, pairs=study.pairs + before, launch=False)
    swept = sweep(contexts, pairs=whole.pairs, output=study.output_tokens, seed=study.seed)
    made = of_study(whole, swept, [arm.name for arm in served], run=place.name)
    if place.into is not None:
        made = added_plan(made, place.database)
        made = made if launching is None else with_starts(made, study.servers.restarts)
    expected = cost(made)
    playing = Playing(
        study=study,
        plan=made,
        endpoints=served,
        database=place.database,
        trace_hash=f"{CONTEXT_SWEEP} {lengths_text(study.contexts)} x {study.output_tokens}",
        into=place.into,
        launching=launching,
        notes=Notes(calls=expected.calls_by_arm),
    )
    return Prepared(playing=playing, cost=lambda: expected)


def _longest(arms: tuple[Endpoint, ...], *, are_up: bool) -> int | None:
    """Return the shortest model length; None where unknown.

    Servers that are up are asked; otherwise the arms file or the profile counts.
    """
    if are_up:
        return window(asyncio.run(identify_all(arms)))
    said = [
        window((), arms),
        *(profile_arm(arm.profile).server.max_model_len for arm in arms if arm.profile is not None),
    ]
    return min((length for length in said if length is not None), default=None)


def _fitting(
    contexts: tuple[int, ...], longest: int | None, output: int, notice: Notice
) -> tuple[int, ...]:
    """Return the lengths that every server takes. Raises PlanError where none fits."""
    if longest is None:
        return contexts
    fitting = tuple(context for context in contexts if context + output <= longest)
    if not fitting:
        raise PlanError(
            f"no length of {contexts[0]:,} or more fits a model length of {longest:,}",
            hint="--contexts with shorter ones",
        )
    if len(fitting) < len(contexts):
        last = longest - output
        # A slope is measured best at the end of the window.
        fitting = (*fitting, last) if last > fitting[-1] * 1.25 else fitting
        notice(f"a model length of {longest:,} takes prompts of up to {last:,} tokens")
    return fitting
