"""The sequences that decode together: how many, with how much context, who ends when, and who needs a new block in which step."""

from __future__ import annotations

import heapq

from agentload.emulator.inflight import InFlight

NEVER = 1 << 62


class Batch:
    """Keep the decoding calls so that a jump over many steps costs no more than one."""

    def __init__(self, *, growth: int, block_steps: int) -> None:
        self.growth = growth
        """Tokens that a sequence's context gains in a step."""
        self.size = 0
        self.context = 0
        """Cached tokens of all sequences."""
        self.first_end = NEVER
        """Step with which the next call ends, or an earlier one if that call has left."""
        self._ends: list[tuple[int, int, InFlight]] = []  # heap by last step
        self._serial = 0
        self._phases = [0] * block_steps  # sequences by the steps, modulo, in which they need a block

    def join(self, call: InFlight, *, room: int) -> None:
        """Add a call whose first token leaves with `call.first_step`; its last block has room for so many more steps."""
        self.size += 1
        self.context += call.computed
        self._serial += 1
        call.ticket = self._serial
        heapq.heappush(self._ends, (call.last_step, call.ticket, call))
        self.first_end = min(self.first_end, call.last_step)
        call.phase = (call.first_step + 1 + room) % len(self._phases)
        self._phases[call.phase] += 1

    def leave(self, call: InFlight, step: int) -> int:
        """Remove a call after a step; return how many blocks it has taken since it joined."""
        steps = step - call.first_step
        self.size -= 1
        self.context -= call.computed + steps * self.growth
        self._phases[call.phase] -= 1
        period = len(self._phases)
        return (step - call.phase) // period - (call.first_step - call.phase) // period

    def ended(self, step: int) -> list[InFlight]:
        """Take the calls whose last token left by a step off the list; they have yet to leave."""
        done = []
        while self._ends and (self._ends[0][0] <= step or not _is_listed(self._ends[0])):
            entry = heapq.heappop(self._ends)
            if _is_listed(entry):
                done.append(entry[2])
        self.first_end = self._ends[0][0] if self._ends else NEVER
        return done

    def next_end(self) -> int:
        """Return the step with which the next call ends."""
        while not _is_listed(self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0]

    def blocks(self, after: int, steps: int) -> int:
        """Return how many blocks are needed in the *steps* steps after one."""
        phases = self._phases
        if steps == 1:
            return phases[(after + 1) % len(phases)]
        period = len(phases)
        cycles, left = divmod(steps, period)
        start = (after + 1) % period
        end = start + left
        return cycles * self.size + sum(phases[start:end]) + (sum(phases[: end - period]) if end > period else 0)

    def steps_within(self, after: int, free: int, most: int) -> int:
        """Return for how many of the next *most* steps *free* blocks suffice."""
        period = len(self._phases)
        if (most // period + 1) * self.size <= free or self.blocks(after, most) <= free:
            return most
        cycles, left = divmod(free, self.size)
        steps = cycles * period
        while True:
            left -= self._phases[(after + steps + 1) % period]
            if left < 0:
                return min(steps, most)
            steps += 1


def _is_listed(entry: tuple[int, int, InFlight]) -> bool:
    _, ticket, call = entry
    return call.state == "decode" and call.ticket == ticket
