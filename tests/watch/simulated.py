"""Executions whose runs are played in virtual time:
everything but the sockets is that of `agentload watch run`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from agentload.layout.plan import of_study
from agentload.model.controls import control_of
from agentload.model.profile import ArmProfile
from agentload.model.rows import CallRow, Row, RunRow
from agentload.run.files import read_traces, trace_hash
from agentload.run.lay import with_end
from agentload.run.servers import arms_of
from agentload.run.simulate import Simulation
from agentload.store import journal
from agentload.store.loader import load
from agentload.store.places import journal_folder
from agentload.study.change import extend
from agentload.study.kinds import Replay
from agentload.study.parts import Live, Load, TraceRef
from agentload.study.stored import Notes
from agentload.watch import execute as executing
from agentload.watch.books import Executed
from agentload.watch.execute import execute
from agentload.watch.job import Job, JobBudget
from agentload.watch.play import Playthrough, bounded_study
from agentload.watch.schedule import SECOND, Schedule

NIGHT_NS = 86_400 * SECOND
START_NS = 1_795_226_400 * SECOND  # 2026-11-21 02:00 UTC
STEP_TIMES = (
    "decode_ms",
    "decode_ms_per_token",
    "prefill_ms_per_token",
    "prefill_ms_per_pair",
    "weights_ms",
    "host_ms_per_token",
)
STUDY = Replay(
    traces=(TraceRef(path="demo-rag"),),
    servers=Live(endpoints="prod=http://127.0.0.1:1/v1"),
    pairs=4,
    load=Load(sessions=1),
)
JOB = Job(name="nightly", study=STUDY, schedule=Schedule(cron="0 2 * * *"))
SHORT = replace(
    JOB,
    study=extend(STUDY, traces=(TraceRef(path="demo-chat"),), pairs=3),
    budget=JobBudget(calls=12),
)
(ARM,) = arms_of("gpt-oss-20b-h100", ["bf16"])


def slower(arm: ArmProfile, by: float) -> ArmProfile:
    """Return the arm with every step longer by this share."""
    assert arm.step is not None
    times = {name: getattr(arm.step, name) * (1 + by) for name in STEP_TIMES}
    return replace(arm, step=replace(arm.step, **times))


def upgraded(arm: ArmProfile, version: str) -> ArmProfile:
    """Return the arm behind another version of its software."""
    return replace(arm, server=replace(arm.server, software=f"vLLM {version}"))


def unheard(_: str) -> None:
    """Listen to no notice."""


@dataclass(slots=True)
class Nights:
    """A job's server and the nights on which it is executed."""

    folder: Path
    job: Job = SHORT
    arm: ArmProfile = ARM
    marred: bool = False
    """Let our own machine have been too slow to stamp chunks one by one."""
    held_tokens: float | None = None
    """Let windows hold so many tokens of context at once."""
    now_ns: int = START_NS
    runs: int = 0
    executed: list[Executed] = field(default_factory=list)

    @property
    def database(self) -> Path:
        """Return where all of it is kept."""
        return self.folder / "watch.duckdb"

    def night(self, *, later: int = 1) -> Executed:
        """Execute the job, so many nights after the last time."""
        self.now_ns += later * NIGHT_NS
        self.executed.append(execute(self.job, self.database, notice=unheard))
        return self.executed[-1]

    def play(
        self,
        job: Job,
        *,
        run: str,
        database: Path,
        is_controlled: bool,
        notice: Callable[[str], None],
    ) -> Playthrough:
        """Stand in for the sockets."""
        trace, refs = read_traces(job.study.traces)
        arms = ["prod", *([control_of("prod")] if is_controlled else [])]
        study = with_end(bounded_study(job.study, job.budget.calls, 1))
        made = of_study(extend(study, aa=None), trace, arms, run=run)
        self.runs += 1
        simulation = Simulation(
            study=study,
            plan=replace(made, seed=self.runs),
            arms=dict.fromkeys(arms, self.arm),
            trace_hash=trace_hash(refs),
            database=database,
            notes=Notes(job=job.name, held_tokens=self.held_tokens),
        )
        path = journal_folder(database, run) / "leg001.journal"
        path.parent.mkdir(parents=True)
        with journal.Writer(path) as writer:
            for row in simulation.rows():
                writer.append(self._kept(row))
        load([path], database)
        return Playthrough(arms=("prod",), outcome="done")

    def _kept(self, row: Row) -> Row:
        match row:
            case RunRow():
                return replace(row, seed=0)  # the scatter is another each night, the plan is not
            case CallRow() if self.marred and row.chunks is not None:
                return replace(row, coalesced_reads=len(row.chunks))
        return row


def nights(monkeypatch: pytest.MonkeyPatch, folder: Path, *, job: Job = SHORT) -> Nights:
    """Return a job that is executed in virtual time."""
    made = Nights(folder=folder, job=job)
    monkeypatch.setattr(executing, "play", made.play)
    monkeypatch.setattr(time, "time_ns", lambda: made.now_ns)
    return made
