"""What happens between two rounds: blocks closed, servers asked who they are, counters read, what is finished loaded.

Nothing here runs while a block is played, so nothing here can disturb a measurement.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.model.commands import Settle
from agentload.model.rows import BlockRow, FingerprintRow, Row
from agentload.replay.dispatcher import PlayEnd

WATCHED = ("version", "models", "kv_cache_dtype", "skip_layers", "prefix_caching", "block_size", "pool_tokens", "process_start_s")
"""Facts that must not change while an arm is compared."""


class Barrier:
    """Settle a round: returns the pairs that are void because their server changed."""

    def __init__(
        self,
        *,
        run_id: str,
        leg: int,
        endpoints: Mapping[str, Endpoint],
        before: Mapping[str, Identity],
        pair_size: int,
        write: Callable[[Row], None],
        pair_done: Callable[[int], Awaitable[None]],
    ) -> None:
        self._run_id = run_id
        self._leg = leg
        self._endpoints = endpoints
        self._known = dict(before)
        self._pair_size = pair_size
        self._write = write
        self._pair_done = pair_done
        self._played: Counter[int] = Counter()

    async def __call__(self, settle: Settle, ends: tuple[PlayEnd, ...]) -> tuple[tuple[int, str], ...]:
        """Close the round's blocks and say which pairs must be played again."""
        arms = sorted({end.play.arm for end in ends})
        changes = dict(zip(arms, await asyncio.gather(*(self._changed(arm, settle.round) for arm in arms)), strict=True))
        void: dict[int, str] = {}
        for end in ends:
            pair, reason = end.play.pair, changes[end.play.arm]
            if reason is not None:
                void[pair] = reason
            self._write(self._block(end, reason))
            self._played[pair] += 1
        for pair in {end.play.pair for end in ends}:
            if pair in void:
                self._played[pair] = 0
            elif self._played[pair] == self._pair_size:
                await self._pair_done(pair)
        return tuple(sorted(void.items()))

    async def _changed(self, arm: str, round_: int) -> str | None:
        """Note who the server is now, and say what changed since it was last asked."""
        known = self._known[arm].facts()
        try:
            now = await identify(self._endpoints[arm])
        except EndpointError as error:
            return f"{arm} did not answer after the block: {error.message}"
        self._known[arm] = now
        facts = now.facts()
        self._write(
            FingerprintRow(
                run_id=self._run_id,
                leg=self._leg,
                arm=arm,
                at_ns=time.monotonic_ns(),
                moment="after",
                round=round_,
                facts=json.dumps(facts, sort_keys=True),
            )
        )
        changed = [name for name in WATCHED if facts[name] != known[name]]
        if not changed:
            return None
        return f"{arm} changed during the block: " + ", ".join(f"{name} {known[name]} → {facts[name]}" for name in changed)

    def _block(self, end: PlayEnd, void: str | None) -> BlockRow:
        return BlockRow(
            run_id=self._run_id,
            leg=self._leg,
            pair=end.play.pair,
            block=end.play.block,
            arm=end.play.arm,
            round=end.round,
            started_ns=end.started_ns,
            drain_ns=end.drain_ns,
            ended_ns=end.ended_ns,
            salt=end.play.salt,
            void=void,
        )
