"""Play a plan in virtual time and store it like a live run."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from msgspec import field

from agentload import __version__
from agentload.dispatch.stretches import stretches
from agentload.endpoints.identity import Identity
from agentload.kvmath.pool import pool_of
from agentload.model.controls import original
from agentload.model.plan import Plan
from agentload.model.profile import ArmProfile, Noise
from agentload.model.record import Record
from agentload.model.rows import ArmRow, BlockRow, FingerprintRow, LegRow, Row
from agentload.run.record import PlayedOn, Stored, again, run_row
from agentload.serve.facts import Facts
from agentload.store.loader import FLUSHED, rewrite
from agentload.study.change import extend
from agentload.study.document import json_text
from agentload.study.kinds import Ask, Decide, Replay
from agentload.study.stored import Notes
from agentload.telemetry.log_lines import StartUp

SAMPLE_S: Final = 10.0
"""Virtual seconds between samples of the servers' metrics."""
PART: Final = "leg001"
"""Name of the journal of a simulated run; what is added to the run has journals of its own."""


class Simulation(Record):
    """Everything that a simulation depends on; equal values give equal bytes."""

    study: Replay
    plan: Plan
    arms: Mapping[str, ArmProfile]
    trace_hash: str
    database: Path
    notes: Notes = field(default_factory=Notes)
    slowness: Mapping[str, float] = field(default_factory=dict)
    """Factor on step times, by machine name; empty without machines."""
    played: Sequence[Row] | None = None
    """Rows that `decide` has simulated already; None: play the plan."""

    def rows(self) -> Iterator[Row]:
        """Yield the rows of the run, its description first."""
        plan = self.plan
        first = next(iter(self.arms.values()))
        described = run_row(
            plan.run,
            self.study,
            plan=plan,
            trace_hash=self.trace_hash,
            on=PlayedOn(kind="simulated", model=first.model.name),
            created_ns=0,
            command=again(self.study, self.database),
            notes=self.notes,
        )
        yield replace(described, name=f"{plan.header.name} on {first.profile}")
        numbers = {each[0].index: number for number, each in enumerate(stretches(plan.rounds))}
        yield from opening(plan.run, self.arms, stretch=0 if len(numbers) > 1 else None)
        ended_ns = 0
        played = iter(self.played or ())
        if self.played is None:
            # imported here: runs on servers need no engine
            from agentload.virtual.shell import Shell

            noise_seed = self.study.noise_seed
            played = Shell(
                plan,
                self.arms,
                seed=plan.seed if noise_seed is None else noise_seed,
                sample_s=SAMPLE_S,
                slowness=self.slowness,
            ).play()
        for row in played:
            # Once a stretch, before its first block; `opening` has those of the first, number 0.
            if isinstance(row, BlockRow) and (stretch := numbers.pop(row.round, 0)):
                yield from _fingerprints(
                    plan.run, self.arms, stretch=stretch, at_ns=row.started_ns, round_=row.round
                )
            ended_ns = max(ended_ns, getattr(row, "ended_ns", None) or 0)
            yield row
        yield closing(plan.run, ended_ns=ended_ns)


def opening(
    run: str, arms: Mapping[str, ArmProfile], *, stretch: int | None = None
) -> Iterator[Row]:
    """Yield the first rows of a simulated run: its own part, its arms and their servers.

    *stretch* is the number of the first stretch; None where no arm changes its machine.
    """
    yield _leg(run)
    for position, (name, arm) in enumerate(arms.items()):
        yield ArmRow(
            run_id=run,
            arm=name,
            position=position,
            url=None,
            model=arm.model.name,
            profile=f"{arm.profile}/{original(name)}",
        )
    yield from _fingerprints(run, arms, stretch=stretch, at_ns=0, round_=0)


def closing(run: str, *, ended_ns: int) -> LegRow:
    """Return the last row of a simulated run: its own part has ended."""
    return replace(_leg(run), ended_ns=ended_ns, status="done")


def _leg(run: str) -> LegRow:
    return LegRow(run_id=run, leg=1, host="virtual", boot_id=None, monotonic_ns=0, wall_ns=0)


def _fingerprints(
    run: str, arms: Mapping[str, ArmProfile], *, stretch: int | None, at_ns: int, round_: int
) -> Iterator[FingerprintRow]:
    """Yield what each server says it is.

    The number of the *stretch* stands in for `process_start_s`, so that a change of machines looks
    like a restart.
    """
    for name, arm in arms.items():
        # A model without a published shape, or with weights of an
        # unknown size and no pool size given, has no facts to state.
        if not arm.model.groups or (
            arm.model.weight_gib is None and arm.server.kv_cache_memory_bytes is None
        ):
            continue
        facts = identity(arm).facts() | ({} if stretch is None else {"process_start_s": stretch})
        text = json.dumps(facts, sort_keys=True)
        yield FingerprintRow(
            run_id=run, leg=1, arm=name, at_ns=at_ns, moment="before", round=round_, facts=text
        )


def simulated_id(
    study: Replay | Ask | Decide, arms: Sequence[ArmProfile], *, trace_hash: str = ""
) -> str:
    """Name a simulation by what it depends on: the same question twice is the same run."""
    # Paths are left out: trace_hash stands for what they hold.
    asked = study if isinstance(study, Ask) else extend(study, traces=())
    parts = (__version__, trace_hash, *map(repr, arms), json_text(asked))
    return "sim-" + hashlib.blake2b("\x1f".join(parts).encode(), digest_size=5).hexdigest()


def identity(arm: ArmProfile) -> Identity:
    """Return what the arm's server would say it is."""
    facts = Facts(arm=arm, pool=pool_of(arm), created=0)
    return Identity(
        models=(facts.model,),
        version=facts.version,
        max_model_len=arm.server.max_model_len,
        cache_config={name: str(value) for name, value in facts.cache_config().items()},
        log=StartUp(attention_backend=facts.backend, flash_version=facts.flash_version),
    )


def without_noise(arms: Sequence[ArmProfile]) -> dict[str, ArmProfile]:
    """Return the arms by name, without noise."""
    return {arm.name: replace(arm, noise=Noise()) for arm in arms}


def store(simulation: Simulation, *, on_rows: Callable[[int], None] = lambda _: None) -> Stored:
    """Write a simulation's journal and load it, in place of an equal run that is there.

    *on_rows* receives the number of rows so far, every `FLUSHED` rows.
    """

    def counted() -> Iterator[Row]:
        for count, row in enumerate(simulation.rows()):
            yield row
            if count % FLUSHED == 0:
                on_rows(count)

    run = simulation.plan.run
    rewrite(counted(), simulation.database, run_id=run, name=PART)
    return Stored(run_id=run)
