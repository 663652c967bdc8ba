"""Check that a trace can be played: its references, waits, lengths and keys.

Every session is read once. Keys and names are kept as eight bytes
each; only after a clash is the trace read again to find it.
"""

from array import array
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final, get_args

import numpy as np
import numpy.typing as npt

from agentload.errors import TraceError
from agentload.model.check import problem
from agentload.model.record import Record
from agentload.model.trace import Header, Key, Role, Segment, Session, Trace, Turn
from agentload.tracefile.references import Problem, References

MOST_PROBLEMS: Final = 100
CONTEXT_TOLERANCE: Final = 0.02
"""Share by which a context may differ from the recorded one.

A calibrated tokenizer ratio has the same tolerance.
"""

OURS: Final = frozenset(
    {"model", "messages", "tools", "max_tokens", "stream", "stream_options", "return_token_ids"}
)
"""Fields of a request that the replay sets: with other values, answers could not be measured."""

_ROLES: Final = {role: number for number, role in enumerate(get_args(Role))}
_ROLE_BITS: Final = 3


class CheckReport(Record):
    """The result of a check."""

    sessions: int
    turns: int
    off_context: int
    """Turns whose context is more than 2% off the recorded one."""
    off_order: int
    """Turns whose tools do not follow the leading system text, where every server puts them."""
    problem_count: int
    problems: tuple[Problem, ...]
    """At most the first hundred."""


def check(trace: Trace) -> CheckReport:
    """Read a trace and report its problems; raises `TraceError` if it cannot be read."""
    reading = _Reading(trace.header)
    kept: list[Problem] = []
    count = 0
    for each in chain(_prefixes(trace.header), reading.problems(trace), _clashes(trace, reading)):
        count += 1
        if len(kept) < MOST_PROBLEMS:
            kept.append(each)
    return CheckReport(
        sessions=len(reading.names),
        turns=reading.turns,
        off_context=reading.off_context,
        off_order=reading.off_order,
        problem_count=count,
        problems=tuple(kept),
    )


def refuse(trace: Trace, *, name: str) -> None:
    """Raise TraceError with the first problem of a trace, which cannot be played; read it once.

    *name* is the file that it is read from.
    """
    report = check(trace)
    if not report.problem_count:
        return
    said = report.problems[0].within(name)
    others = report.problem_count - 1
    if others:
        said += f", and {others:,} more problem{'' if others == 1 else 's'}"
    raise TraceError(said, hint=f"agentload trace check {name}")


class _Reading:
    """One pass over a trace."""

    def __init__(self, header: Header) -> None:
        self.header = header
        self.turns = 0
        self.off_context = 0
        self.off_order = 0
        self.names = array("q")
        self.keys = array(
            "q", (_key(segment) for segments in header.prefixes.values() for segment in segments)
        )

    def problems(self, trace: Trace) -> Iterator[Problem]:
        references = References()
        for session in trace.sessions:
            self.turns += len(session.turns)
            self.names.append(hash(session.session))
            yield from references.meet(session)
            yield from self._session(session)
        yield from references.finish()

    def _session(self, session: Session) -> Iterator[Problem]:
        if session.prefix is not None and session.prefix not in self.header.prefixes:
            known = ", ".join(self.header.prefixes) or "none"
            yield Problem(
                session=session.session,
                what=f"starts with prefix '{session.prefix}', not in the header (it has {known})",
                line=session.line,
            )
            return
        prefix = self.header.prefix_of(session)
        lengths = [segment.tokens for segment in prefix]
        stages = list(_stages((), prefix))
        for index, turn in enumerate(session.turns):
            for what in self._turn(turn, lengths, stages):
                yield Problem(session=session.session, turn=index, what=what, line=session.line)

    def _turn(self, turn: Turn, lengths: list[int], stages: list[int]) -> Iterator[str]:
        """Yield what is wrong with a turn.

        *lengths* and *stages* are those of the segments before it, and then of its context.
        """
        if turn.keep is not None and turn.keep > len(lengths):
            yield f"keeps {turn.keep} segments of a context of {len(lengths)}"
        if turn.keep is not None:
            del lengths[turn.keep :]
        del stages[len(lengths) :]
        stages += _stages(stages, turn.add)
        self.off_order += bool(stages) and stages[-1] < 0
        for segment in turn.add:
            lengths.append(segment.tokens)
            self.keys.append(_key(segment))
            if segment.tokens < 0 or segment.plant is not None:
                yield from _segment(segment)
        yield from _request(turn, lengths)
        if turn.context is not None:
            difference = abs(sum(lengths) - turn.context)
            self.off_context += difference > CONTEXT_TOLERANCE * turn.context


def _stages(before: Sequence[int], segments: Sequence[Segment]) -> Iterator[int]:
    """Yield the stage after each segment: 1 system text, 2 tools, 3 conversation.

    Once the order is broken, stages are negative. Servers put all tools after the leading
    system text, so a trace in another order shares other prefixes there.
    """
    stage = before[-1] if before else 1
    for segment in segments:
        at = abs(stage)
        match segment.role:
            case "tools":
                stage = 2 if stage in {1, 2} else -at
            case "system":
                stage = -2 if at == 2 else stage
            case _:
                stage = 3 if stage > 0 else -3
        yield stage


def _request(turn: Turn, lengths: list[int]) -> Iterator[str]:
    if not lengths:
        yield "sends nothing"
    if turn.output < 1:
        yield f"asks for {turn.output} tokens"
    if turn.thinking is not None and turn.thinking > turn.output:
        yield f"thinks {turn.thinking} of {turn.output} tokens"
    ours = sorted(OURS & {name for name, _ in turn.asks})
    if ours:
        yield f"asks for {', '.join(ours)}, which the replay sets"
    if turn.wait_s < 0:
        yield f"waits {turn.wait_s:g} s"
    for number, check in enumerate(turn.check):
        if (wrong := problem(check)) is not None:
            yield f"check {number}: {wrong}"


def _segment(segment: Segment) -> Iterator[str]:
    if segment.tokens < 0:
        yield f"segment {segment.key!r} has {segment.tokens} tokens"
    if segment.plant is not None and segment.role in {"tools", "image"}:
        yield f"segment {segment.key!r}: nothing can be planted in {segment.role}"
    if segment.plant is not None and len(segment.plant.split()) > segment.tokens:
        yield (
            f"segment {segment.key!r}: the plant has more words than the segment tokens "
            f"({segment.tokens})"
        )


def _prefixes(header: Header) -> Iterator[Problem]:
    for name, segments in header.prefixes.items():
        for segment in segments:
            for what in _segment(segment):
                yield Problem(session=f"(prefix {name})", what=what, line=1)


def _key(segment: Segment) -> int:
    """Return the hash of a key, with the role in the lowest bits."""
    return hash(segment.key) >> _ROLE_BITS << _ROLE_BITS | _ROLES[segment.role]


def _clashes(trace: Trace, reading: _Reading) -> Iterator[Problem]:
    """Read the trace again to find names and keys that are used twice."""
    names = _repeats(np.asarray(reading.names))
    keys = _repeats(np.unique(np.asarray(reading.keys)) >> _ROLE_BITS)
    if not names and not keys:
        return
    named: set[str] = set()
    roles: dict[Key, Role] = {}
    for segments in trace.header.prefixes.values():
        roles |= {segment.key: segment.role for segment in segments}
    for session in trace.sessions:
        if session.session in named:
            what = "has the name of an earlier session"
            yield Problem(session=session.session, what=what, line=session.line)
        elif hash(session.session) in names:
            named.add(session.session)
        for index, turn in enumerate(session.turns):
            for segment in turn.add:
                if hash(segment.key) >> _ROLE_BITS not in keys:
                    continue
                role = roles.setdefault(segment.key, segment.role)
                if role != segment.role:
                    what = f"key {segment.key!r} is {segment.role} here and {role} before"
                    yield Problem(session=session.session, turn=index, what=what, line=session.line)


def _repeats(values: npt.NDArray[np.int64]) -> set[int]:
    """Return the values that are there more than once."""
    distinct, counts = np.unique(values, return_counts=True)
    return set(distinct[counts > 1].tolist())
