"""Say how fast the arms of a decision are, by their profiles or as assumed of servers."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentload.emulator.steptime import decode_s, prefill_s
from agentload.layout.cost import assumed_prefill_s
from agentload.layout.timeline import ASSUMED_TOKEN_S, NOMINAL, ServerPace, turn_seconds, wait_s
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.model.shape import TraceShape
from agentload.model.trace import Trace
from agentload.study.parts import Load

CHUNK: Final = 1024
"""New tokens behind a context, by which the time of one prompt token is taken."""
ROUNDS: Final = 4
"""Rounds of an iteration: how many answers come at once depends on how long they take."""


class Rates(Record):
    """Hold the profiles of the arms; none of real servers."""

    profiles: tuple[ArmProfile, ...]

    def prefill_s(self, tokens: int) -> float:
        """Return the seconds in which a prompt is read, by the slowest profile."""
        known = [prefill_s(each, tokens) for each in self.profiles]
        return max(known, default=assumed_prefill_s(tokens))

    def decode_s(self, batch: int, context: int) -> float:
        """Return the seconds of a decode step, by the slowest profile."""
        known = [decode_s(each, batch, context) for each in self.profiles]
        return max(known, default=ASSUMED_TOKEN_S)

    def pace(
        self, trace: Trace, shapes: Sequence[TraceShape], load: Load, sessions: int
    ) -> ServerPace:
        """Return how fast pairs are played.

        Contexts are those of the trace, and as many answers come at once as the waits of the load
        leave.
        """
        if not self.profiles:
            return NOMINAL
        calls = sum(each.calls for each in shapes)
        tokens = sum(each.calls * statistics.fmean(each.context_tokens) for each in shapes)
        context = round(tokens / calls)
        chunks_s = [
            prefill_s(each, context + CHUNK) - prefill_s(each, context) for each in self.profiles
        ]
        found = ServerPace(
            token_s=ASSUMED_TOKEN_S, prompt_token_s=statistics.fmean(chunks_s) / CHUNK
        )
        planned = load.planned()
        turns = [turn for session in trace.sessions for turn in session.turns]
        waits_s = sum(wait_s(planned, turn) for turn in turns)
        for _ in range(ROUNDS):
            answers_s = sum(turn_seconds(planned, turn, found) for turn in turns) - waits_s
            at_once = max(1, round(sessions * answers_s / (answers_s + waits_s)))
            steps_s = [decode_s(each, at_once, context) for each in self.profiles]
            found = replace(found, token_s=statistics.fmean(steps_s))
        return found
