"""What happens between two rounds: blocks closed, servers asked who they are, counters compared, what is finished loaded.

Nothing here runs while a block is played, so nothing here can disturb a measurement.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Literal

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.experiment.legs.between import Between
from agentload.experiment.legs.vigil import OnDead, Vigil, awaited
from agentload.model.commands import Send, Settle
from agentload.model.rows import BlockRow, CallRow, FingerprintRow, Row
from agentload.replay.dispatcher import PlayEnd

WATCHED = (
    "version",
    "models",
    "kv_cache_dtype",
    "skip_layers",
    "prefix_caching",
    "block_size",
    "pool_tokens",
    "process_start_s",
    "replicas",
)
"""Facts that must not change while an arm is compared."""
COUNTED = frozenset({"ok", "short", "long", "garbage"})
"""Ends that a server counts as a success of its own."""
UNCOUNTED = frozenset({"refused", "connect_timeout", "busy", "http_error", "not_sent"})
"""Ends that it never counts as one. All others it may have: it can be done with a call that we gave up."""
PATIENCE_S = 600.0  # a large model takes minutes to load
CUT = "stopped before its end"
LOOKS = 10
LOOK_S = 0.2  # a server's counters settle within this many looks after its last answer


class Barrier:
    """Settle a round: returns the pairs that are void because their server changed or was not ours alone."""

    def __init__(
        self,
        *,
        run_id: str,
        leg: int,
        endpoints: Mapping[str, Endpoint],
        before: Mapping[str, Identity],
        pair_size: int,
        write: Callable[[Row], None],
        samples: Callable[[], Iterable[Row]],
        vigil: Vigil,
        on_dead: OnDead,
        pair_done: Callable[[int], Awaitable[None]],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._run_id = run_id
        self._leg = leg
        self._endpoints = dict(endpoints)
        self._known = dict(before)
        self._present = tuple(endpoints)
        self._is_relayed = False
        self._pair_size = pair_size
        self._write = write
        self._samples = samples
        self._vigil = vigil
        self._on_dead = on_dead
        self._pair_done = pair_done
        self._is_stopping = is_stopping
        self._played: Counter[int] = Counter()
        self._ours: Counter[str] = Counter()  # by URL: an arm and its control share a server
        self._perhaps: Counter[str] = Counter()
        self._between = Between()

    def started(self, endpoint: Endpoint, identity: Identity, round_: int) -> None:
        """Note that an arm's server was started for a round, and that no other runs."""
        arm = endpoint.name
        self._present, self._is_relayed = (arm,), True
        self._endpoints[arm] = endpoint
        self._known[arm] = identity
        self._vigil.revived(arm)
        self._note(arm, identity, round_, "before")

    def sent(self, send: Send) -> None:
        """Take no notice: only what ended was counted."""

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note a call of ours that the server will have counted."""
        url = self._endpoints[send.arm].url
        self._between.ended(ended)
        if ended.status in COUNTED:
            self._ours[url] += 1
        elif ended.status not in UNCOUNTED:
            self._perhaps[url] += 1

    async def __call__(self, settle: Settle, ends: tuple[PlayEnd, ...]) -> tuple[tuple[int, str], ...]:
        """Close the round's blocks and say which pairs must be played again."""
        reasons = dict(zip(self._present, await asyncio.gather(*(self._look(arm, settle.round) for arm in self._present)), strict=True))
        given_up = self._vigil.dead
        self._ours.clear()
        self._perhaps.clear()
        for row in await asyncio.to_thread(lambda: list(self._samples())):
            self._write(row)
        void: dict[int, str] = {}
        for end in ends:
            if (reason := reasons[end.play.arm]) is not None and end.play.arm not in given_up:
                void[end.play.pair] = reason
            self._write(self._block(end, reasons[end.play.arm] or (None if end.is_whole else CUT)))
            self._played[end.play.pair] += 1
        for pair in {end.play.pair for end in ends}:
            if pair in void:
                self._played[pair] = 0
            elif self._played[pair] == self._pair_size and all(end.is_whole for end in ends):
                await self._pair_done(pair)
        return tuple(sorted(void.items()))

    async def _look(self, arm: str, round_: int) -> str | None:
        """Note who the server is now, and say what makes the block that it may have played void."""
        known, ours = self._known[arm], self._ours[self._endpoints[arm].url]
        between = self._between.reason(arm)
        if arm in self._vigil.dead:
            if self._on_dead == "wait" and self._is_relayed:
                self._vigil.revived(arm)  # it will be: what comes next starts it anew
            elif self._on_dead == "wait":
                back = await awaited(self._endpoints[arm], patience_s=PATIENCE_S, run_id=self._run_id, is_stopping=self._is_stopping)
                if back is not None:
                    self._known[arm] = back
                    self._vigil.revived(arm)
            return f"{arm} died during the block"
        try:
            now = await self._settled(arm, known, ours)
        except EndpointError as error:
            return f"{arm} did not answer after the block: {error.message}"
        self._known[arm] = now
        self._note(arm, now, round_, "after")
        facts, before = now.facts(), known.facts()
        changed = [name for name in WATCHED if facts[name] != before[name]]
        if changed:
            return f"{arm} changed during the block: " + ", ".join(f"{name} {before[name]} → {facts[name]}" for name in changed)
        foreign = _foreign(known, now, ours + self._perhaps[self._endpoints[arm].url])
        return f"{arm} answered {foreign:.0f} requests that were not ours" if foreign > 0 else between

    async def _settled(self, arm: str, known: Identity, ours: int) -> Identity:
        """Ask until the server is idle and has counted what we sent, or stays as it is."""
        for _ in range(LOOKS):
            now = await identify(self._endpoints[arm], known=known)
            if now.counters.get("running", 0.0) == 0 and _foreign(known, now, ours) >= 0:
                break
            await asyncio.sleep(LOOK_S)
        return now

    def _note(self, arm: str, identity: Identity, round_: int, moment: Literal["before", "after"]) -> None:
        facts = json.dumps(identity.facts(), sort_keys=True)
        at_ns = time.monotonic_ns()
        self._write(FingerprintRow(run_id=self._run_id, leg=self._leg, arm=arm, at_ns=at_ns, moment=moment, round=round_, facts=facts))

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
            warmup=end.play.warmup,
            void=void,
            machine=end.play.machine,
        )


def _foreign(before: Identity, after: Identity, ours: int) -> float:
    """Count the successes that the server saw and we did not send; 0 where it does not count."""
    if "requests_done" not in before.counters or "requests_done" not in after.counters:
        return 0.0
    return after.counters["requests_done"] - before.counters["requests_done"] - ours
