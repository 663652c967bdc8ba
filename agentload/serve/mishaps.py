"""Decide what goes wrong with each request and when the server dies, from a script of faults."""

import asyncio
from collections.abc import Callable
from typing import Final

from agentload.emulator.faults import (
    KINDS,
    Busy,
    Crash,
    Cut,
    Fault,
    InBand,
    OfRequest,
    OutOfMemory,
    Restart,
    Stall,
    Trickle,
    faults_of_request,
)
from agentload.model.profile import ArmProfile

Breaking = Cut | Stall | InBand | Crash
"""Faults that strike a stream after some tokens."""

_NAMES: Final = {kind: name for name, kind in KINDS.items()}


class Mishaps:
    """Hold a server's script of faults.

    Its clock starts with the first request and runs at the engine's speed.
    """

    def __init__(
        self,
        script: tuple[Fault, ...],
        *,
        seed: int,
        speed: float,
        die: Callable[[float | None], None],
    ) -> None:
        self._script = script
        self._seed = seed
        self._speed = speed
        self._count = 0
        self._start_s = 0.0
        self._die = die
        self.deaths = 0
        """How often the server has died."""

    def die(self, down_s: float | None) -> None:
        """Kill the server for some seconds; None: for good."""
        self.deaths += 1
        self._die(down_s)

    def of_next(self) -> tuple[OfRequest, ...]:
        """Return the faults of the request that has just come."""
        if not self._script:
            return ()
        loop = asyncio.get_running_loop()
        self._count += 1
        if self._count == 1:
            self._start_s = loop.time()
            for fault in self._script:
                if isinstance(fault, Restart):
                    loop.call_later(fault.at_s / self._speed, self.die, fault.down_s)
        return faults_of_request(
            self._script,
            seed=self._seed,
            number=self._count,
            at_s=(loop.time() - self._start_s) * self._speed,
        )

    async def stall(self, fault: Stall) -> None:
        """Wait as long as the fault says; "for ever" ends when the client leaves."""
        if fault.seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(fault.seconds / self._speed)


def most_tokens(script: tuple[Fault, ...]) -> int | None:
    """Return how many tokens in the KV cache kill the engine; None: no number does."""
    return min((fault.tokens for fault in script if isinstance(fault, OutOfMemory)), default=None)


def breaking(faults: tuple[OfRequest, ...], *, tokens: int) -> tuple[Breaking, ...]:
    """Return the faults that strike an answer of *tokens* tokens before its end, in order."""
    found = [
        fault for fault in faults if isinstance(fault, Breaking) and fault.after_tokens < tokens
    ]
    return tuple(sorted(found, key=lambda fault: fault.after_tokens))


def busy(faults: tuple[OfRequest, ...]) -> Busy | None:
    """Return the fault that declines a request; None if none does."""
    return next((fault for fault in faults if isinstance(fault, Busy)), None)


def is_overtaxed(arm: ArmProfile, prompt_logprobs: int | None) -> bool:
    """Tell whether the server dies of the prompt log probabilities that a request wants."""
    most = arm.logprobs.crash_above
    return most is not None and prompt_logprobs is not None and prompt_logprobs > most


def name(faults: tuple[OfRequest, ...]) -> str | None:
    """Return the names of faults as their script has them; None when there are none."""
    return "+".join(_NAMES[type(fault)] for fault in faults) or None


def byte_s(faults: tuple[OfRequest, ...]) -> float | None:
    """Return the seconds that each byte of the answer takes; None: not slowed."""
    return next((fault.ms_per_byte / 1000 for fault in faults if isinstance(fault, Trickle)), None)
