"""From a study to what is played: traces read, servers reached or started, the plan laid out.

Nothing is measured here.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from agentload.endpoints.endpoint import (
    Endpoint,
    beginnings,
    check_environment,
    replica_pairs,
    without_fellows,
)
from agentload.endpoints.identity import identify_all
from agentload.endpoints.launch import kept
from agentload.endpoints.read import Emulated, read
from agentload.errors import PlanError, UsageError
from agentload.kvmath.pool import pool_of
from agentload.layout.cost import Cost, cost, too_long
from agentload.layout.coverage import trace_shapes
from agentload.layout.long_run import Fills, long_run
from agentload.layout.plan import laid_windows, of_study, with_starts
from agentload.layout.traces import sweep
from agentload.layout.windows import WINDOW_S, Laid, Steady, held_tokens, sessions_of_hours, steady
from agentload.model.apart import CONTEXT_SWEEP
from agentload.model.plan import Budget
from agentload.model.profile import ArmProfile
from agentload.model.trace import Trace
from agentload.prompts.local import from_file
from agentload.prompts.tokenizer import Tokenizer
from agentload.remote.cluster import check
from agentload.run.ask import Eval
from agentload.run.files import read_traces, trace_hash
from agentload.run.past import began, beside, taken
from agentload.run.play import Playing
from agentload.run.questions import (
    Asking,
    Questions,
    QuestionsCost,
    asking_of,
    described,
    digest,
    fitting,
    generated,
    measured,
    questions_cost,
    supplied,
)
from agentload.run.record import new_run_id
from agentload.run.relay import Launching
from agentload.run.servers import arms_of, asking, pools, profiled, reached, window, with_control
from agentload.run.simulate import Simulation, quiet, simulated_id
from agentload.store.places import DATABASE
from agentload.store.runs import run_named
from agentload.study.change import extended, resumed
from agentload.study.document import tag
from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live, Virtual
from agentload.study.quantity import listed
from agentload.study.stored import Notes, study_of

EMULATED_SPEED: Final = 1000.0
ALONE: Final = "leave it out: the study is a run of its own"
ANEW: Final = "leave it out: in virtual time the same study is the same run, made again"
Notice = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where the rows of a study go, and what they are added to."""

    database: Path = Path(DATABASE)
    run: str | None = None
    """What the run is called; None: by the clock, or by what it depends on."""
    resume: str | None = None
    """The run that is gone on with."""
    into: str | None = None
    """The run beside which it is kept."""

    @property
    def name(self) -> str:
        """Return what the run is called."""
        return self.resume or self.into or self.run or new_run_id()


def place_of(
    study: Study,
    *,
    db: Path | str = DATABASE,
    run_id: str | None = None,
    resume: str | None = None,
    into: str | None = None,
) -> Place:
    """Say where a study's rows go.

    Raises UsageError where they cannot go there, StoreError where a run to join is not there.
    """
    database = Path(db)
    if resume is not None and into is not None:
        raise UsageError(
            "--resume goes on with a run of its own kind, --into adds to another: give one of them",
            hint=ALONE,
        )
    if into is not None:
        _check_joins(study)
    if resume is not None and not (
        isinstance(study, Ask | Replay | Decide) and isinstance(study.servers, Live)
    ):
        said = (
            "--resume goes on with a replay on servers, with questions to them, or with a decision"
        )
        raise UsageError(said, hint=ANEW if isinstance(study.servers, Virtual) else ALONE)
    if run_id is not None and (resume or into):
        raise UsageError(
            "--run-id names a new run, --resume and --into one that there is: give one of them",
            hint="leave out --run-id",
        )
    if run_id is not None and isinstance(study, Search | Probe):
        raise UsageError(
            f"--run-id names a run, and a {tag(type(study))} is none",
            hint="--into keeps it beside one",
        )
    return Place(
        database=database,
        run=run_id,
        resume=resume,
        into=None if into is None else run_named(database, into),
    )


def _check_joins(study: Study) -> None:
    """Raise UsageError for a study that is not kept beside another run."""
    match study:
        case Replay(servers=Virtual()):
            raise UsageError("--into does nothing without --find", hint="agentload simulate --help")
        case Replay():
            raise UsageError(
                "--into keeps sweeps, searches, questions and probes beside a run, and "
                "this is a replay",
                hint=ALONE,
            )
        case Search(find="max-rate"):
            raise UsageError(
                "--into keeps searches for max-concurrency, and this is one for max-rate",
                hint="leave out --into",
            )
        case Probe(matrix=False):
            raise UsageError("--into does nothing without --matrix", hint="agentload probe --help")
        case _:
            pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What is played, and what it costs."""

    playing: Playing | Simulation
    cost: Cost
    fills: Fills | None = None
    """When the pools are full, of a run that is laid out to fill them."""
    beyond: str | None = None
    """How many turns are longer than a model takes,
    as far as that is known before servers are asked.
    """


def launching(servers: Live) -> Launching | None:
    """Say how servers are started; None where they run already."""
    return (
        Launching(logs=Path(servers.logs), start_s=servers.start_timeout_s)
        if servers.launch
        else None
    )


def endpoints_of(servers: Live, *, tokenizer: str | None = None) -> tuple[Endpoint, ...] | Emulated:
    """Read what a study's endpoints name.

    Raises UsageError for arms to be started without a command, EndpointError for missing keys.
    """
    found = read(
        servers.endpoints, model=servers.model, key_env=servers.api_key_env, tokenizer=tokenizer
    )
    check_environment(
        () if isinstance(found, Emulated) else (server for each in found for server in each.servers)
    )
    if servers.launch:
        launchable(found, option="--launch")
    return found


def arms_named(servers: Live | Virtual) -> tuple[str, ...]:
    """Return the names of the arms."""
    match servers:
        case Virtual(profile=profile, arms=names):
            return tuple(arm.name for arm in arms_of(profile, names))
        case Live():
            found = endpoints_of(servers)
            if isinstance(found, Emulated):
                return tuple(arm.name for arm in arms_of(found.profile, found.arms))
            return tuple(endpoint.name for endpoint in found)


def launchable(endpoints: tuple[Endpoint, ...] | Emulated, *, option: str) -> tuple[Endpoint, ...]:
    """Return endpoints that can be started. Raises UsageError naming one that cannot."""
    if isinstance(endpoints, Emulated):
        raise UsageError(
            f"{option} starts the servers of an arms file; emulated ones are started anyway",
            hint=f"leave {option} out",
        )
    if missing := next((endpoint.name for endpoint in endpoints if endpoint.launch is None), None):
        raise UsageError(
            f"{option}: {missing} has no launch command",
            hint="launch: vllm serve MODEL --port 8000, in an arms file",
        )
    return endpoints


def simulation(
    study: Replay, place: Place, *, stock: Steady | None = None, held_tokens: float | None = None
) -> Prepared:
    """Lay a replay out in virtual time; *stock* is what its windows
    are drawn from, where that and what they hold are known.
    """
    assert isinstance(study.servers, Virtual), study.servers
    if study.load.history == "recorded":
        raise UsageError(
            "a profile says how fast arms are, not what they say",
            hint="--history fixed, or replay on servers",
        )
    arms = arms_of(study.servers.profile, study.servers.arms)
    trace, refs = read_traces(
        study.traces, lenient=study.lenient, max_context_tokens=study.load.max_context_tokens
    )
    beyond = too_long(trace.header, trace.sessions, min(arm.server.max_model_len for arm in arms))
    study = bounded(extended(study, traces=refs))
    shape = trace_shapes(trace, study.load.planned())
    slowness = _machines(study, arms)
    name = place.run or simulated_id(study, arms, trace_hash=trace_hash(refs))
    stock = stock or _stock(study, trace)
    long = None
    if study.capacity is not None:
        sizes = {arm.name: float(pool_of(arm).tokens) for arm in arms}
        load = study.load.planned()
        long = long_run(
            trace,
            load,
            agents=study.capacity,
            pairs=study.pairs,
            began=study.blocks,
            seed=study.seed,
            pools=sizes,
        )
        study = extended(study, duration_s=long.laid.load.budget.seconds)
    laid, fills = (_laid(study, stock), None) if long is None else (long.laid, long.fills)
    made = of_study(
        study, trace, [arm.name for arm in arms], run=name, laid=laid, machines=tuple(slowness)
    )
    played = Simulation(
        study=study,
        plan=made,
        arms={arm.name: arm for arm in arms} if study.servers.noise else quiet(arms),
        trace_hash=trace_hash(refs),
        database=place.database,
        notes=Notes(
            fill_minutes={} if fills is None else dict(fills.minutes),
            trace_shape=shape,
            held_tokens=held_tokens or _held_tokens(study, stock),
            sessions_of_hours=None if stock is None else sessions_of_hours(stock),
        ),
        slowness=slowness,
    )
    return Prepared(playing=played, cost=cost(made), fills=fills, beyond=beyond)


def _machines(study: Replay, arms: Sequence[ArmProfile]) -> dict[str, float]:
    assert isinstance(study.servers, Virtual), study.servers
    is_named = study.swap or study.design == "parallel"
    found = study.servers.machines or (
        {f"m{number + 1}": 1.0 for number in range(len(arms))} if is_named else {}
    )
    if found and len(found) != len(arms):
        raise UsageError(
            f"{len(arms)} arms need as many machines, got {len(found)}",
            hint="--arms bf16,fp8 --machines m1=1,m2=1.08",
        )
    return dict(found)


def bounded(study: Replay) -> Replay:
    """Return a study whose windows have an end."""
    is_endless = study.load.planned().budget == Budget()
    return (
        extended(study, duration_s=WINDOW_S) if study.windows is not None and is_endless else study
    )


@contextmanager
def prepared(
    study: Replay | Sweep, place: Place, *, is_dry: bool = False, notice: Notice = lambda _: None
) -> Iterator[Prepared]:
    """Yield what is played on live servers; emulated ones run as long as the block.

    When *is_dry* nobody is started or asked.
    """
    servers = study.servers
    assert isinstance(servers, Live), servers
    tokenizer = study.tokenizer if isinstance(study, Replay) else None
    wanted = endpoints_of(servers, tokenizer=tokenizer)
    machines = 2 if isinstance(study, Replay) and study.swap else 1
    own = study.noise_seed if isinstance(study, Replay) else None
    noise_seed = study.seed if own is None else own
    with reached(
        wanted, noise=servers.noise, seed=noise_seed, is_dry=is_dry, machines=machines
    ) as found:
        if isinstance(study, Sweep):
            yield _sweep(study, place, found, is_dry=is_dry, notice=notice)
        else:
            yield _replay(study, servers, place, found, notice=notice)


def _replay(
    study: Replay, servers: Live, place: Place, found: tuple[Endpoint, ...], *, notice: Notice
) -> Prepared:
    check(study)
    if (said := unpaired(found)) is not None:
        notice(said)
    if not replica_pairs(found):
        found = tuple(map(without_fellows, found))
    served = with_control(found, study.aa)
    replicas = replica_pairs(served)
    forced = ", ".join(each.name for each in found if each.force_lengths)
    compares = None if study.load.history != "recorded" else not forced
    trace, refs = read_traces(
        study.traces,
        lenient=study.lenient,
        max_context_tokens=study.load.max_context_tokens,
        compares=compares,
    )
    if compares is False:
        notice(
            f"replies are not compared with recorded ones: lengths are forced on {forced} "
            "(force_lengths: false in the arms file)"
        )
    beyond = too_long(trace.header, trace.sessions, _longest(found, are_up=False))
    study = bounded(extended(study, traces=refs))
    shape = trace_shapes(trace, study.load.planned())
    row = None if place.resume is None else began(place.database, place.resume)
    first = None if row is None else study_of(row)
    if isinstance(first, Replay):
        study = resumed(first, study)
    stock = _stock(study, trace)
    long = None
    if study.capacity is not None:
        is_going_on = isinstance(first, Replay)
        long = long_run(
            trace,
            (
                msgspec.structs.replace(study.load, duration_s=None) if is_going_on else study.load
            ).planned(),
            agents=study.capacity,
            pairs=study.pairs,
            began=study.blocks,
            seed=study.seed,
            pools=pools(served),
            lasted_s=study.load.duration_s if is_going_on else None,
        )
        study = extended(study, duration_s=long.laid.load.budget.seconds)
    laid, fills = (_laid(study, stock), None) if long is None else (long.laid, long.fills)
    made = of_study(
        study,
        trace,
        [endpoint.name for endpoint in served],
        run=place.name,
        laid=laid,
        machines=()
        if replicas or not (study.swap or study.design == "parallel" or _are_apart(found, servers))
        else beginnings(served),
        replicas=replicas,
    )
    expected = cost(made)
    playing = Playing(
        study=study,
        plan=made,
        endpoints=served,
        database=place.database,
        trace_hash=trace_hash(refs),
        is_resumed=place.resume is not None,
        launching=launching(servers),
        notes=Notes(
            calls=expected.calls_by_arm,
            fill_minutes={} if fills is None else dict(fills.minutes),
            trace_shape=shape,
            held_tokens=_held_tokens(study, stock),
            sessions_of_hours=None if stock is None else sessions_of_hours(stock),
        ),
    )
    return Prepared(playing=playing, cost=expected, fills=fills, beyond=beyond)


def unpaired(arms: Sequence[Endpoint]) -> str | None:
    """Say which replicas are left out, where arms have unequal numbers of them."""
    pairs, most = len(replica_pairs(arms)) or 1, max(len(each.servers) for each in arms)
    if pairs == most:
        return None
    counts = ", ".join(f"{each.name} {len(each.servers)}" for each in arms)
    return (
        f"unequal numbers of replicas ({counts}): a start counts where each arm has its own, so "
        f"the first {pairs} of each play"
    )


def _stock(study: Replay, trace: Trace) -> Steady | None:
    """Return what windows are drawn from; None of whole sessions."""
    return None if study.windows is None else steady(trace, study.load.planned())


def _laid(study: Replay, stock: Steady | None) -> Laid | None:
    return None if stock is None else laid_windows(study, stock)


def _held_tokens(study: Replay, stock: Steady | None) -> float | None:
    """Return what windows hold of contexts at once; None of whole sessions."""
    return None if stock is None else held_tokens(stock, seed=study.seed)


def _are_apart(arms: tuple[Endpoint, ...], servers: Live) -> bool:
    """Tell whether each arm has a server of its own all the time:
    then a difference may be that of their GPUs. A stand-in has none.
    """
    return (
        not servers.launch
        and len({arm.url for arm in arms}) > 1
        and all(arm.profile is None for arm in arms)
    )


def _sweep(
    study: Sweep, place: Place, served: tuple[Endpoint, ...], *, is_dry: bool, notice: Notice
) -> Prepared:
    starting = launching(study.servers)
    contexts = study.contexts
    if not is_dry:
        contexts = _fitting(
            contexts, _longest(served, are_up=starting is None), study.output_tokens, notice
        )
    # Those that were played beside the run before are
    # counted, so that the orders of its arms stay balanced.
    whole = (
        study
        if place.into is None
        else extended(study, pairs=study.pairs + taken(place.database, place.into), launch=False)
    )
    swept = sweep(contexts, pairs=whole.pairs, output=study.output_tokens, seed=study.seed)
    made = of_study(whole, swept, [arm.name for arm in served], run=place.name)
    if place.into is not None:
        made = beside(made, place.database)
        made = made if starting is None else with_starts(made, study.servers.restarts)
    expected = cost(made)
    playing = Playing(
        study=study,
        plan=made,
        endpoints=served,
        database=place.database,
        trace_hash=f"{CONTEXT_SWEEP} {listed(study.contexts)} x {study.output_tokens}",
        into=place.into,
        launching=starting,
        notes=Notes(calls=expected.calls_by_arm),
    )
    return Prepared(playing=playing, cost=expected)


def _longest(arms: tuple[Endpoint, ...], *, are_up: bool) -> int | None:
    """Return what the shortest model length is, by the servers' word
    or, where they are not asked, by the arms file's or the profile's.
    """
    if are_up:
        return window(asyncio.run(identify_all(arms)))
    said = [
        window((), arms),
        *(profiled(arm.profile).server.max_model_len for arm in arms if arm.profile is not None),
    ]
    return min((length for length in said if length is not None), default=None)


def _fitting(
    contexts: tuple[int, ...], longest: int | None, output: int, notice: Notice
) -> tuple[int, ...]:
    """Return the lengths that every server takes."""
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
        # The end of the window is where a slope is told best.
        fitting = (*fitting, last) if last > fitting[-1] * 1.25 else fitting
        notice(f"a model length of {longest:,} takes prompts of up to {last:,} tokens")
    return fitting


@contextmanager
def evaluation(
    study: Ask, place: Place, *, is_dry: bool = False
) -> Iterator[tuple[Eval, QuestionsCost]]:
    """Yield the questions of an evaluation and what they
    cost; emulated servers run as long as the block.
    """
    assert isinstance(study.servers, Live), study.servers
    made_of = asking_of(study)
    wanted, starting = endpoints_of(study.servers), launching(study.servers)
    # Emulated answers depend on the prompt alone: nobody need wait for them.
    with reached(
        wanted, noise=False, seed=study.seed, is_dry=is_dry, speed=EMULATED_SPEED
    ) as found:
        served = asking(with_control(found, study.aa), study.request, study.timeouts)
        with ExitStack() as stack:
            if (
                starting is not None
                and study.own is None
                and study.tokenizer is None
                and not is_dry
            ):
                # The reference's server runs while it is asked how many tokens texts have.
                stack.enter_context(
                    kept(served[0], logs=starting.logs / "lengths", start_s=starting.start_s)
                ).up()
            counted_by = None if isinstance(wanted, Emulated) or is_dry else served[0]
            source, notes = _source(study, made_of, counted_by)
        expected = questions_cost(
            source,
            arms=len(served),
            concurrency=study.concurrency,
            thinking_tokens=study.thinking_tokens,
        )
        made = Eval(
            run=place.name,
            study=study,
            asked=source,
            endpoints=served,
            database=place.database,
            notes=msgspec.structs.replace(notes, arms=tuple(endpoint.name for endpoint in served)),
            goes_on="resume" if place.resume else "join" if place.into else "new",
            launching=starting,
        )
        yield made, expected


def _source(study: Ask, made: Asking, reference: Endpoint | None) -> tuple[Questions, Notes]:
    """Return what is asked, and what of it is kept with the run."""
    if study.own is not None:
        own = Path(study.own)
        return supplied(own, repetitions=made.repetitions), Notes(digest=digest(own))
    measured_by: dict[str, Tokenizer] = {}
    if study.tokenizer is not None:
        measured_by = dict.fromkeys(made.tasks, from_file(Path(study.tokenizer)))
    elif reference is not None:  # the emulated model's tokens are words
        measured_by = asyncio.run(measured(reference, made.tasks, seed=made.seed))
    return fitting(generated(made, lengths=measured_by)), Notes(
        lengths=described(measured_by) or None
    )  # as it is read back
