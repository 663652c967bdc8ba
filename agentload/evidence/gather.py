"""Gather all that a run's rows say into the advisor's evidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import duckdb
import numpy as np
import polars as pl

from advisor.evidence import (
    Arm,
    Evidence,
    Observation,
    OwnCalls,
    StartHistory,
    Telemetry,
    WorkloadClass,
)
from advisor.loads import CapacityPoint, PairLoad
from agentload.errors import EvidenceError
from agentload.evidence import (
    capacity,
    described,
    fill,
    grades,
    hardware,
    health,
    observations,
    plays,
    starts,
    telemetry,
)
from agentload.evidence.plays import Machines, PlayedBlock
from agentload.evidence.screen import screen
from agentload.evidence.servers import ArmServer
from agentload.evidence.view import RunView
from agentload.model.controls import SAME, is_control
from agentload.model.profile import ArmProfile, Price
from agentload.model.record import Record
from agentload.model.shape import TraceShape
from agentload.study.kinds import Replay, Study, Sweep
from agentload.study.parts import Load
from agentload.study.stored import Notes


class _Subject(Record):
    """A run, and what is known of it in addition to its rows."""

    connection: duckdb.DuckDBPyConnection
    view: RunView
    study: Study | None
    noted: Notes
    servers: tuple[ArmServer, ...]
    """Controls included."""
    arms: list[str]
    reference: str
    profiles: Mapping[str, ArmProfile]

    @property
    def profile(self) -> ArmProfile | None:
        """Return the profile that describes what all arms share."""
        return self.profiles.get(self.reference) or next(iter(self.profiles.values()), None)

    @property
    def compared(self) -> list[ArmServer]:
        """Return the servers of the arms, without controls."""
        return [each for each in self.servers if not is_control(each.arm)]


class _Calls(Record):
    """The calls of a run, by what they are evidence of."""

    attempts: pl.DataFrame
    """All of them, priming ones included."""
    counted: pl.DataFrame
    """Those that count, of the workloads."""
    swept: pl.DataFrame
    """Those that count, of a context sweep."""
    plays: tuple[PlayedBlock, ...]
    """All but those that measured something apart."""
    notes: tuple[str, ...]


def gather(
    connection: duckdb.DuckDBPyConnection,
    view: RunView,
    *,
    reference: str | None = None,
    profiles: Mapping[str, ArmProfile] = MappingProxyType({}),
    price: Price | None = None,
    ideal_hit_rates: Mapping[str, float] = MappingProxyType({}),
) -> Evidence:
    """Gather the evidence of a run; raise `EvidenceError` where nothing can carry a decision.

    `connection` is the database that *view* was read from. `reference` is the arm in use today
    (default: the first). `profiles`, by arm, add what no server reports: geometry, GPU, page sizes.
    `ideal_hit_rates`, by workload, come from the trace: what a cache without bounds would hit
    (default: those in the run's options).
    """
    subject = _subject(connection, view, reference, profiles)
    calls = _calls(connection, view)
    graded = grades.graded_answers(connection, view.name)
    answers, same_answers = grades.accuracy(graded, subject.arms, subject.reference)
    if view.run.kind != "measured":
        answers = grades.without_unread_checks(answers)
    screened, unscreened = screen(view, subject.arms)
    if not (calls.counted.height or answers or screened or unscreened):
        why = "; ".join(calls.notes) or "no block was finished"
        raise EvidenceError(
            f"run {view.name} holds nothing to decide on: {why}", hint="play it again"
        )
    where = plays.machines(subject.servers, view.plays)
    arms = _arms(subject, where)
    figures, unpowered = _figures(subject, calls)
    figures, points, unfilled = _capacity(subject, calls, arms, figures)
    trace = tuple(_own_calls(subject.noted.trace_shape))
    shared = described.deployment(subject.servers, subject.reference, subject.profile, price)
    return Evidence(
        run=view.name,
        kind=view.run.kind,
        model=described.model(view.run.model, subject.servers, subject.profile),
        deployment=replace(shared, machines=where.names, swapped=where.is_swapped),
        reference=subject.reference,
        arms=arms,
        workloads=_with_contexts(_workloads(calls.counted, subject.reference), trace),
        trace=trace,
        observations=_observations(
            calls.counted,
            subject.arms,
            where.names,
            ideal_hit_rates or subject.noted.ideal_hit_rates,
            is_part=_plays_part(subject.study),
        ),
        sweeps=observations.sweeps(calls.swept, subject.arms),
        server=tuple(figures.items()),
        accuracy=answers,
        aa_accuracy=same_answers,
        canary=grades.canary(view),
        followed=grades.recorded_replies(graded, subject.arms, subject.reference),
        screen=screened,
        aa=observations.controls(calls.counted, where.names, subject.servers),
        starts=_starts(subject),
        looks=starts.looks(
            view.plays, _planned_pairs(subject.study), starts.pairs_by_part(view.legs)
        ),
        planned_answers=grades.came_in_sequence(view),
        capacity=points,
        pair_load=window_load(subject.study, subject.noted),
        twin_changes=capacity.twin_changes(view),
        alone=capacity.single_sessions(view, subject.arms),
        health=health.health(connection, view, calls.counted),
        free_lengths=subject.noted.free_lengths,
        dated=_dated(view),
        notes=(
            *subject.noted.caveats,
            *unfilled,
            *calls.notes,
            *described.differences(subject.servers),
            *unpowered,
        ),
    )


def _subject(
    connection: duckdb.DuckDBPyConnection,
    view: RunView,
    reference: str | None,
    profiles: Mapping[str, ArmProfile],
) -> _Subject:
    """Describe the run; raise `EvidenceError` where the reference is no arm of it."""
    names = view.arm_names
    if not names and reference is None:
        raise EvidenceError(
            f"run {view.name} holds nothing to decide on: it has no arms", hint="play it again"
        )
    first = reference or names[0]
    if first not in names:
        raise EvidenceError(
            f"run {view.name} has no arm '{first}'", hint=f"its arms: {', '.join(names) or 'none'}"
        )
    return _Subject(
        connection=connection,
        view=view,
        study=view.study(),
        noted=view.notes(),
        servers=view.servers(),
        arms=names,
        reference=first,
        profiles=profiles,
    )


def _calls(connection: duckdb.DuckDBPyConnection, view: RunView) -> _Calls:
    """Read the calls of a run, and separate them by what they are evidence of."""
    attempts = observations.with_batches(
        plays.attempts(connection, view.name, view.plays), view.plays
    )
    everything = observations.last_attempts(attempts)
    swept, counted = observations.sweep_and_workloads(everything)
    return _Calls(
        attempts=attempts,
        counted=counted,
        swept=swept,
        plays=observations.plays_under_load(view.plays, everything, counted),
        notes=health.notes(view.plays, everything),
    )


def _arms(subject: _Subject, where: Machines) -> tuple[Arm, ...]:
    """Describe the arms, each with the starts of equal servers in other runs."""
    past_ms = starts.checks_ms(subject.connection, subject.view.run, subject.compared)
    return tuple(
        replace(
            described.describe_arm(each, subject.profiles.get(each.arm)),
            machine=where.only.get(each.arm),
            past_checks_ms=past_ms[each.arm],
            twin=_is_twin(each.arm, subject),
        )
        for each in subject.compared
    )


def _is_twin(arm: str, subject: _Subject) -> bool:
    """Tell whether an arm is the reference under another name.

    It is if the run found so when it met the servers, or if both follow the same profile.
    """
    reference = subject.reference
    profiles = subject.profiles
    if arm == reference:
        return False
    mine = profiles.get(arm)
    theirs = profiles.get(reference)
    if mine is not None and theirs is not None and replace(mine, name=theirs.name) == theirs:
        return True
    same = {f"{arm} and {reference} {SAME}", f"{reference} and {arm} {SAME}"}
    return not same.isdisjoint(subject.noted.caveats)


def _figures(subject: _Subject, calls: _Calls) -> tuple[dict[str, Telemetry], Sequence[str]]:
    """Return the figures of each arm's servers and GPUs, and notes on unknown energy."""
    connection = subject.connection
    run = subject.view.name
    # After a priming call, the first call is meant to find its context: a hit is not impossible.
    is_cold = not isinstance(subject.study, Replay) or subject.study.cache == "cold"
    servers = telemetry.of_servers(
        connection,
        run,
        subject.arms,
        calls.plays,
        calls.counted,
        is_cold=is_cold and not calls.attempts["prime"].any(),
    )
    watts, notes = hardware.power(connection, run, subject.compared, calls.plays)
    clocks = hardware.clocks(connection, run, calls.plays)
    figures = {
        arm: _with_gpus(found, watts.get(arm), clocks.get(arm, hardware.Clocks()))
        for arm, found in servers
    }
    return figures, notes if subject.view.run.kind == "measured" else ()


def _with_gpus(figures: Telemetry, watts: float | None, found: hardware.Clocks) -> Telemetry:
    return replace(
        figures,
        watts=watts,
        throttled_share=found.slowed,
        power_capped_share=found.capped,
        clock_mhz=found.mhz,
    )


def _capacity(
    subject: _Subject, calls: _Calls, arms: Sequence[Arm], figures: Mapping[str, Telemetry]
) -> tuple[dict[str, Telemetry], tuple[CapacityPoint, ...], tuple[str, ...]]:
    """Return figures with how far pools filled, the steps of searches, and notes.

    A run that was to fill its pools is a step of its own where no search for the mix was made: a
    search says what an arm carries by itself, and may have another service level. Notes say what
    is not tested.
    """
    view = subject.view
    study = subject.study
    told = dict(figures)
    points = capacity.capacity(view, subject.arms, calls.counted["workload"].unique().to_list())
    if not isinstance(study, Replay) or study.capacity is None:
        return told, points, ()
    pools = {
        arm.name: fill.pool_fill(arm, calls.attempts, view.plays, figures[arm.name]) for arm in arms
    }
    searched = {each.arm for each in points if each.workload is None}
    for arm, found in pools.items():
        own = figures[arm]
        if arm not in searched:
            points += (fill.point(study, arm, calls.counted, view.plays, figures=own, pool=found),)
        told[arm] = replace(
            own,
            pool_filled_share=own.pool_filled_share if found.is_full is None else found.full_share,
            fill_minutes=subject.noted.fill_minutes.get(arm),
        )
    untested = {arm: found for arm, found in pools.items() if arm not in searched}
    return told, points, tuple(fill.notes(untested))


def _starts(subject: _Subject) -> StartHistory | None:
    """Return what starts add: by its profile for an emulated server, else by other runs."""
    if subject.view.run.kind == "measured":
        return starts.of_history(subject.connection, subject.view.run)
    return starts.of_profile(subject.study, subject.profile)


def _dated(view: RunView) -> str | None:
    """Return the day of a run; a simulation has none."""
    if not view.run.created_ns:
        return None
    return datetime.fromtimestamp(view.run.created_ns / 1e9, tz=UTC).date().isoformat()


def pair_load(load: Load) -> PairLoad:
    """Return the load under which pairs are played, as it was asked for."""
    return PairLoad(
        sessions=load.sessions,
        rate_per_s=load.rate_per_s,
        speed=load.speed,
        user_wait_s=load.wait_cap_s.get("user"),
        user_wait_scale=load.wait_scale.get("user", 1.0),
    )


def window_load(study: Study | None, noted: Notes) -> PairLoad | None:
    """Return the load under which pairs were played, where they are windows."""
    if not isinstance(study, Replay) or study.windows is None:
        return None
    return replace(
        pair_load(study.load),
        cuts_waits=noted.cuts_waits,
        held_tokens=noted.held_tokens,
        sessions_of_hours=noted.sessions_of_hours,
    )


def _planned_pairs(study: Study | None) -> int | None:
    """Return how many pairs a run was planned with, before any were added.

    Without a fixed plan of pairs, None.
    """
    match study:
        case Replay(pairs=pairs, blocks=blocks):
            return blocks or pairs
        case Sweep(pairs=pairs):
            return pairs
        case _:
            return None


def _plays_part(study: Study | None) -> bool:
    """Tell whether blocks start in the middle of sessions, or end before their plan.

    Windows do both, as runs that fill pools or follow a benchmark's rules; a budget ends a block.
    """
    if not isinstance(study, Replay):
        return False
    load = study.load
    midway = (study.capacity, study.windows, study.benchmark)
    budget = (load.max_calls, load.max_tokens, load.duration_s)
    return any(each is not None for each in (*midway, *budget))


def _workloads(counted: pl.DataFrame, reference: str) -> tuple[WorkloadClass, ...]:
    names = counted["workload"].unique().sort().to_list()
    own = counted.filter(pl.col("arm") == reference)
    busy = plays.total(own, "busy_s")
    out = []
    for name in names:
        calls = own.filter(pl.col("workload") == name)
        batch = calls["batch_sequences"].fill_nan(None).mean()
        out.append(
            WorkloadClass(
                name=name,
                gpu_time_share=min(1.0, plays.total(calls, "busy_s") / busy) if busy > 0 else None,
                batch=float(str(batch)) if batch is not None else None,
            )
        )
    return tuple(out)


def _observations(
    counted: pl.DataFrame,
    arms: list[str],
    machines: Sequence[str],
    ideal_hit_rates: Mapping[str, float],
    *,
    is_part: bool,
) -> tuple[Observation, ...]:
    groups = counted.filter(pl.col("arm").is_in(arms)).partition_by("workload", "arm", as_dict=True)
    order = sorted(groups, key=lambda key: (key[0], arms.index(key[1])))
    return tuple(
        Observation(
            workload=workload,
            arm=arm,
            calls=observations.calls(groups[workload, arm], machines),
            telemetry=telemetry.of_workload(
                groups[workload, arm], ideal_hit_rates.get(workload), is_part=is_part
            ),
        )
        for workload, arm in order
    )


def _own_calls(shapes: Sequence[TraceShape]) -> Iterator[OwnCalls]:
    """Yield the trace's calls, class by class."""
    for each in shapes:
        yield OwnCalls(
            workload=each.workload,
            calls=each.calls,
            context_tokens=np.asarray(each.context_tokens, dtype=np.float64),
            new_tokens=np.asarray(each.new_tokens, dtype=np.float64),
            output_tokens=np.asarray(each.output_tokens, dtype=np.float64),
            wait_s=np.asarray(each.wait_s, dtype=np.float64),
            hit_rate=np.asarray(each.hit_rate, dtype=np.float64),
            is_whole=each.is_whole,
            tasks=each.tasks,
            task_turns=np.asarray(each.task_turns, dtype=np.int64),
            tool_s=each.tool_s,
            checked=each.checked,
        )


def _with_contexts(
    workloads: Sequence[WorkloadClass], trace: Sequence[OwnCalls]
) -> tuple[WorkloadClass, ...]:
    """Return the classes with the contexts of the user's own calls, where the trace has them."""
    contexts = {each.workload: each.context_tokens for each in trace}
    return tuple(replace(each, context_tokens=contexts.get(each.name)) for each in workloads)
