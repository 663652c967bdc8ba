"""Gather all that a run's rows say into the advisor's evidence."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import MappingProxyType

import duckdb
import polars as pl

from advisor.evidence import Evidence, Observation, PairLoad, Telemetry, WorkloadClass
from agentload.errors import EvidenceError
from agentload.evidence import (
    capacity,
    described,
    grades,
    hardware,
    health,
    observations,
    plays,
    servers,
    starts,
    telemetry,
)
from agentload.evidence.observations import controls
from agentload.evidence.screen import screen
from agentload.evidence.trace import own_calls, with_contexts
from agentload.model.controls import SAME, is_control
from agentload.model.profile import ArmProfile, Price
from agentload.model.rows import RunRow
from agentload.store import tables
from agentload.study.kinds import Replay, Study, Sweep
from agentload.study.stored import Notes, study_of
from agentload.study.stored import notes as notes_of


def gather(
    connection: duckdb.DuckDBPyConnection,
    run_id: str,
    *,
    reference: str | None = None,
    profiles: Mapping[str, ArmProfile] = MappingProxyType({}),
    price: Price | None = None,
    ideal_hit_rates: Mapping[str, float] = MappingProxyType({}),
) -> Evidence:
    """Read a run from an open database; raise
    `EvidenceError` when nothing in it can carry a decision.

    `reference` is the arm in use today (default: the first). `profiles`, by arm, add what
    no server tells: geometry, GPU, page sizes. `ideal_hit_rates`, by workload, come from
    the trace: what a cache without bounds would hit (default: those in the run's options).
    """
    run = next(iter(tables.rows(connection, RunRow, run_id=run_id)), None)
    if run is None:
        raise EvidenceError(f"no run '{run_id}' in the database", hint="agentload runs list")
    study, noted = study_of(run), notes_of(run.options)
    arms = servers.servers(connection, run_id)
    own = [each for each in arms if not is_control(each.arm)]
    names = [each.arm for each in own]
    first = reference or next(iter(names), None)
    if first is None:
        raise EvidenceError(
            f"run {run_id} holds nothing to decide on: it has no arms", hint="play it again"
        )
    if first not in names:
        raise EvidenceError(
            f"run {run_id} has no arm '{first}'", hint=f"its arms: {', '.join(names) or 'none'}"
        )
    played = plays.plays(connection, run_id)
    frame = observations.with_batches(plays.attempts(connection, run_id, played), played)
    counted = observations.counted(frame)
    told = health.notes(played, counted)
    everything = counted
    swept, counted = observations.parted(counted)
    loaded = observations.without(played, everything, counted)
    answers, same_answers = grades.accuracy(connection, run_id, names, first)
    screened, unscreened = screen(connection, run_id, names)
    if not counted.height and not answers and not screened and not unscreened:
        raise EvidenceError(
            f"run {run_id} holds nothing to decide on: "
            f"{'; '.join(told) or 'no block was finished'}",
            hint="play it again",
        )
    profile = profiles.get(first) or next(iter(profiles.values()), None)
    shared = described.deployment(arms, first, profile, price)
    watts, unknown = hardware.power(connection, run_id, own, loaded)
    clocks = hardware.clocks(connection, run_id, loaded)
    where = plays.machines(arms, played)
    compared = tuple(
        replace(
            described.described(each, profiles.get(each.arm)),
            machine=where.only.get(each.arm),
            past_checks_ms=starts.checks_ms(connection, run, each),
            twin=_is_twin(each.arm, first, noted.caveats, profiles),
        )
        for each in own
    )
    # The first call behind a priming one is meant to find its context.
    is_cold = (not isinstance(study, Replay) or study.cache == "cold") and not frame["prime"].any()
    server = dict(telemetry.of_servers(connection, run_id, names, loaded, counted, is_cold=is_cold))
    points = list(
        capacity.capacity(connection, run_id, names, counted["workload"].unique().to_list())
    )
    unfilled: tuple[str, ...] = ()
    if isinstance(study, Replay) and study.capacity is not None:
        pools = {arm.name: capacity.pool(arm, frame, played, server[arm.name]) for arm in compared}
        points += [
            capacity.point(study, arm, counted, played, figures=server[arm], found=found)
            for arm, found in pools.items()
        ]
        for arm, found in pools.items():
            share = server[arm].pool_filled_share if found.is_full is None else found.share
            server[arm] = replace(
                server[arm], pool_filled_share=share, fill_minutes=noted.fill_minutes.get(arm)
            )
        unfilled = tuple(capacity.notes(pools))
    trace = tuple(own_calls(noted.trace_shape))
    return Evidence(
        run=run_id,
        kind=run.kind,
        model=described.model(run.model, arms, profile),
        deployment=replace(shared, machines=where.names, swapped=where.is_swapped),
        reference=first,
        arms=compared,
        workloads=with_contexts(_workloads(counted, first), trace),
        trace=trace,
        observations=_observations(
            counted,
            names,
            where.names,
            ideal_hit_rates or noted.ideal_hit_rates,
            begins_midway=_begins_midway(study),
        ),
        sweeps=observations.sweeps(swept, names),
        server=tuple(
            (arm, _with_gpus(figures, watts.get(arm), clocks.get(arm, hardware.Clocks())))
            for arm, figures in server.items()
        ),
        accuracy=answers,
        aa_accuracy=same_answers,
        canary=grades.canary(connection, run_id),
        followed=grades.followed(connection, run_id, names, first),
        screen=screened,
        aa=controls(counted, where.names, arms),
        starts=starts.of_profile(study, profile)
        if run.kind != "measured"
        else starts.of_history(connection, run),
        looks=starts.looks(played, _planned_pairs(study), starts.asked(connection, run_id)),
        planned_answers=grades.came_in_sequence(connection, run_id, study),
        capacity=tuple(points),
        pair_load=_pair_load(study, noted),
        twin_changes=capacity.twin_changes(connection, run_id),
        alone=capacity.alone(connection, run_id, names),
        probes=capacity.isolation(connection, run_id, names),
        health=health.health(connection, run_id, names, played, counted),
        dated=datetime.fromtimestamp(run.created_ns / 1e9, tz=UTC).date().isoformat()
        if run.created_ns
        else None,
        notes=(
            *noted.caveats,
            *unfilled,
            *told,
            *described.differences(arms),
            *(unknown if run.kind == "measured" else ()),
        ),
    )


def _pair_load(study: Study | None, noted: Notes) -> PairLoad | None:
    """Return the load under which pairs were played, where they are windows."""
    if not isinstance(study, Replay) or study.windows is None:
        return None
    load = study.load
    return PairLoad(
        sessions=load.sessions,
        rate_per_s=load.rate_per_s,
        speed=load.speed,
        user_wait_s=load.wait_cap_s.get("user"),
        user_wait_scale=load.wait_scale.get("user", 1.0),
        cuts_waits=noted.cuts_waits,
        held_tokens=noted.held_tokens,
        sessions_of_hours=noted.sessions_of_hours,
    )


def _planned_pairs(study: Study | None) -> int | None:
    """Return how many pairs a run began with: one that was given more is cut as it was then."""
    match study:
        case Replay(pairs=pairs, blocks=blocks):
            return blocks or pairs
        case Sweep(pairs=pairs):
            return pairs
        case _:
            return None


def _begins_midway(study: Study | None) -> bool:
    """Tell whether blocks are windows, which begin in
    the middle of sessions and end before their plan.
    """
    return isinstance(study, Replay) and (study.capacity, study.windows) != (None, None)


def _is_twin(
    arm: str, reference: str, caveats: tuple[str, ...], profiles: Mapping[str, ArmProfile]
) -> bool:
    """Tell whether an arm is the reference under another name: as the
    run found when it met the servers, or by the profiles they follow.
    """
    mine, theirs = profiles.get(arm), profiles.get(reference)
    if arm == reference:
        return False
    if mine is not None and theirs is not None and replace(mine, name=theirs.name) == theirs:
        return True
    return any(
        f"{one} and {other} {SAME}" in caveats
        for one, other in ((arm, reference), (reference, arm))
    )


def _with_gpus(figures: Telemetry, watts: float | None, found: hardware.Clocks) -> Telemetry:
    return replace(
        figures,
        watts=watts,
        throttled_share=found.slowed,
        power_capped_share=found.capped,
        clock_mhz=found.mhz,
    )


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
    begins_midway: bool,
) -> tuple[Observation, ...]:
    groups = counted.filter(pl.col("arm").is_in(arms)).partition_by("workload", "arm", as_dict=True)
    order = sorted(groups, key=lambda key: (key[0], arms.index(key[1])))
    return tuple(
        Observation(
            workload=workload,
            arm=arm,
            calls=observations.calls(groups[workload, arm], machines),
            telemetry=telemetry.of_workload(
                groups[workload, arm], ideal_hit_rates.get(workload), begins_midway=begins_midway
            ),
        )
        for workload, arm in order
    )
