"""The traces of a matrix's workloads, each named as its workload is, so that two of one generator are two classes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from agentload.builtin import find
from agentload.matrix.described import Workload
from agentload.model.trace import Session, Trace
from agentload.tracefile.files import read
from agentload.workloads import catalog


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
