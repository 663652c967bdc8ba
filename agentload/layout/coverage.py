"""Describe a trace's calls under a load, as the shape that played calls are compared with."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from agentload.layout.timeline import wait_s
from agentload.model.plan import Load
from agentload.model.shape import POINTS, TraceShape
from agentload.model.trace import Session, Trace
from agentload.tracefile.reuse import IdealCache

Number = TypeVar("Number", int, float)

MOST_CALLS: Final = 50_000
"""Calls of a trace that are read: a second's work.

A longer trace is described by its first calls, and its shape says so.
"""


@dataclass(slots=True)
class _Columns:
    context_tokens: list[int] = field(default_factory=list)
    new_tokens: list[int] = field(default_factory=list)
    output_tokens: list[int] = field(default_factory=list)
    wait_s: list[float] = field(default_factory=list)
    hit_rate: list[float] = field(default_factory=list)
    task_turns: list[int] = field(default_factory=list)
    tool_s: float = 0.0
    checked: int = 0

    def add_task(self, session: Session, load: Load) -> None:
        """Add a session that no other one spawned."""
        waits = (wait_s(load, turn) for turn in session.turns[1:] if turn.wait == "tool")
        self.task_turns.append(len(session.turns))
        self.tool_s += sum(waits)
        self.checked += any(turn.check for turn in session.turns)


def trace_shapes(trace: Trace, load: Load, *, most: int = MOST_CALLS) -> tuple[TraceShape, ...]:
    """Return the shape of each workload of a trace, ordered by name.

    The load says how long users and tools wait.
    """
    found: dict[str, _Columns] = {}
    cache = IdealCache()
    calls = 0
    is_whole = True
    for session in trace.sessions:
        calls += len(session.turns)
        if calls > most and found:
            is_whole = False
            break
        own = found.setdefault(session.workload, _Columns())
        if session.start_s is not None:
            own.add_task(session, load)
        sizes = cache.calls(trace.header, session)
        for place, (turn, (prompt, known)) in enumerate(zip(session.turns, sizes, strict=True)):
            own.context_tokens.append(prompt + turn.output)
            own.new_tokens.append(prompt - known)
            own.output_tokens.append(turn.output)
            own.hit_rate.append(known / prompt if prompt else 0.0)
            if place:
                own.wait_s.append(wait_s(load, turn))
    return tuple(_shape(name, found[name], is_whole=is_whole) for name in sorted(found))


def _shape(workload: str, columns: _Columns, *, is_whole: bool) -> TraceShape:
    return TraceShape(
        workload=workload,
        calls=len(columns.context_tokens),
        context_tokens=_points(columns.context_tokens),
        new_tokens=_points(columns.new_tokens),
        output_tokens=_points(columns.output_tokens),
        wait_s=tuple(round(each, 2) for each in _points(columns.wait_s)),
        hit_rate=tuple(round(each, 3) for each in _points(columns.hit_rate)),
        is_whole=is_whole,
        tasks=len(columns.task_turns),
        task_turns=_points(columns.task_turns),
        tool_s=round(columns.tool_s / max(1, len(columns.task_turns)), 3),
        checked=columns.checked,
    )


def _points(values: Iterable[Number]) -> tuple[Number, ...]:
    """Return evenly spaced quantiles, each a value that occurred; of few values, all."""
    ordered = sorted(values)
    if len(ordered) <= POINTS:
        return tuple(ordered)
    step = (len(ordered) - 1) / (POINTS - 1)
    return tuple(ordered[round(place * step)] for place in range(POINTS))
