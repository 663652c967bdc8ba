"""Read the user's sessions once, and cut them to what all arms of a decision take."""

from functools import cached_property
from typing import Final

from msgspec import field

from agentload.errors import PlanError
from agentload.layout.coverage import trace_shapes
from agentload.layout.steady import Steady, steady
from agentload.layout.traces import shorten
from agentload.model.record import Record
from agentload.model.shape import TraceShape
from agentload.model.trace import Trace
from agentload.model.walk import context_tokens
from agentload.run.files import read_traces
from agentload.study.kinds import Decide

LEAVE_OUT: Final = "leave that arm out to decide between the others on all of the trace"


class UserTrace(Record, dict=True, eq=False, kw_only=False):
    """Hold the sessions of a study, with the waits that they have."""

    study: Decide
    _cuts: dict[int | None, Trace] = field(default_factory=dict)
    _stocks: dict[int | None, Steady] = field(default_factory=dict)

    @cached_property
    def whole(self) -> Trace:
        """All sessions.

        Raises PlanError where none is short enough for the user's own limit.
        """
        most = self.study.load.max_context_tokens
        found = read_traces(self.study.traces, max_context_tokens=most)[0]
        sessions = tuple(found.sessions)
        if not sessions and most is not None:
            raise PlanError(
                f"every session begins with more than the {most:,} tokens of --max-context",
                hint="a larger --max-context",
            )
        if self.study.decide_by == "tasks" and all(len(each.turns) == 1 for each in sessions):
            raise PlanError(
                "--decide-by tasks needs sessions: every one of this trace has a single turn",
                hint="--decide-by latency --agents 400, or a trace that keeps sessions together",
            )
        return Trace(header=found.header, sessions=sessions)

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest context of the trace, its answer included."""
        longest = 0
        for session in self.whole.sessions:
            contexts = context_tokens(self.whole.header, session)
            for tokens, turn in zip(contexts, session.turns, strict=True):
                longest = max(longest, tokens + turn.output)
        return longest

    @cached_property
    def shapes(self) -> tuple[TraceShape, ...]:
        """Shapes of the calls, also of those that are longer than an arm takes."""
        return trace_shapes(self.whole, self.study.load.planned())

    def up_to(self, tokens: int | None, *, narrowest: str) -> Trace:
        """Return the sessions as far as the *narrowest* arm takes them.

        Raises PlanError where nothing is left.
        """
        if tokens is None or tokens == self.study.load.max_context_tokens:
            return self.whole
        if tokens not in self._cuts:
            kept = tuple(shorten(self.whole, tokens))
            if not kept:
                raise PlanError(
                    f"every session begins with more than the {tokens:,} tokens that "
                    f"{narrowest} takes",
                    hint=LEAVE_OUT,
                )
            self._cuts[tokens] = Trace(header=self.whole.header, sessions=kept)
        return self._cuts[tokens]

    def stock(self, tokens: int | None, *, narrowest: str) -> Steady:
        """Return the sessions up to these tokens, laid out once."""
        if tokens not in self._stocks:
            trace = self.up_to(tokens, narrowest=narrowest)
            self._stocks[tokens] = steady(trace, self.study.load.planned())
        return self._stocks[tokens]
