"""Where a matrix keeps what: one folder, a folder in it for each model, the same places each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from agentload.builtin import find
from agentload.matrix.described import Workload
from agentload.model.trace import Session, Trace
from agentload.tracefile.files import read
from agentload.workloads import catalog


@dataclass(frozen=True, slots=True)
class Places:
    """The folder of a matrix."""

    root: Path

    @property
    def policy(self) -> Path:
        """Return the policy that its reports are decided by."""
        return self.root / "policy.yaml"

    def trace(self, workload: str) -> Path:
        """Return the file of a workload's trace."""
        return self.root / "traces" / f"{workload}.jsonl"

    def state(self, model: str) -> Path:
        """Return the file that says what was done of a model: it lies with what was measured, and goes where that goes."""
        return self.root / model / "state.json"

    def database(self, model: str) -> Path:
        """Return a model's database: its only run is the model's, so that nothing has to be remembered to go on with it."""
        return self.root / model / "agentload.duckdb"

    def endpoints(self, model: str, arm: str | None = None) -> Path:
        """Return the arms file of a model, or of one of its arms alone."""
        return self.root / model / ("endpoints.yaml" if arm is None else f"arms/{arm}.yaml")

    def logs(self, model: str, step: str) -> Path:
        """Return the folder of a step's servers' logs."""
        return self.root / model / "logs" / step.replace("/", "-")

    def said(self, model: str, step: str) -> Path:
        """Return the file with what a step printed."""
        return self.root / model / "steps" / f"{step.replace('/', '-')}.txt"

    def report(self, model: str) -> Path:
        """Return the folder of a model's report."""
        return self.root / model / "report"


@dataclass(frozen=True, slots=True)
class _Labelled:
    sessions: Trace
    name: str

    def __iter__(self) -> Iterator[Session]:
        return (replace(session, workload=self.name) for session in self.sessions.sessions)


def trace_of(workload: Workload) -> Trace:
    """Return the trace of a workload; one that holds several classes keeps them. Raises AgentloadError where there is none."""
    if workload.generate is not None:
        made = catalog.trace(workload.generate, seed=workload.seed, options=workload.options, ctx_scale=workload.scale)
    else:
        made = read(find("traces", workload.trace or workload.name))
    classes = {session.workload for session in made.sessions}
    sessions = _Labelled(made, workload.name) if len(classes) == 1 else made.sessions
    return Trace(header=replace(made.header, name=workload.name), sessions=sessions)


def has_sessions(trace: Trace) -> bool:
    """Tell whether there is anything to play."""
    return any(True for _ in islice(trace.sessions, 1))
