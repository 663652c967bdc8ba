"""What happens between two rounds: blocks closed, servers asked who they are, counters compared, what is finished loaded.

Nothing here runs while a block is played, so nothing here can disturb a measurement.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from agentload.dispatch.dispatcher import PlayEnd
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import told
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.model.commands import Send, Settle
from agentload.model.rows import BlockRow, CallRow, Row
from agentload.run.counts import Between, Tally
from agentload.run.known import dated, differences, is_restarted, newly_missing, remembered
from agentload.run.record import fingerprint, scraped
from agentload.run.vigil import Vigil, awaited
from agentload.study.kinds import OnDead

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
        notice: Callable[[str], None],
        goes_on: str,
    ) -> None:
        self._goes_on = goes_on
        self._run_id = run_id
        self._leg = leg
        self._endpoints = dict(endpoints)
        self._known: dict[str, Identity] = {}
        self._first: dict[str, dict[str, Any]] = {}
        """What each arm was when it told so first: what is another one since is another arm."""
        self._present = tuple(endpoints)
        self._is_relayed = False
        self._pair_size = pair_size
        self._write = write
        self._samples = samples
        self._vigil = vigil
        self._on_dead = on_dead
        self._pair_done = pair_done
        self._is_stopping = is_stopping
        self._notice = notice
        self._played: Counter[int] = Counter()
        self._tally = Tally()
        self._between = Between()
        for arm, identity in before.items():
            self._met(arm, identity)

    def started(self, endpoint: Endpoint, identity: Identity, round_: int) -> None:
        """Note that an arm's server was started for a round, and that no other runs."""
        arm = endpoint.name
        self._present, self._is_relayed = (arm,), True
        self._endpoints[arm] = endpoint
        self._met(arm, identity)
        self._vigil.revived(arm)
        self._note(arm, identity, round_, "before")
        self._sample(arm, identity)

    def sent(self, send: Send) -> None:
        """Take no notice: only what ended was counted."""

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note a call of ours that the server will have counted."""
        self._between.ended(ended)
        self._tally.ended(self._endpoints[send.arm], send, ended)

    async def __call__(self, settle: Settle, ends: tuple[PlayEnd, ...]) -> tuple[tuple[int, str], ...]:
        """Close the round's blocks and say which pairs must be played again."""
        reasons = dict(zip(self._present, await asyncio.gather(*(self._look(arm, settle.round) for arm in self._present)), strict=True))
        given_up = self._vigil.dead
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
        endpoint, known, between = self._endpoints[arm], self._known[arm], self._between.reason(arm)
        if arm in self._vigil.dead:
            if self._on_dead == "wait" and self._is_relayed:
                self._vigil.revived(arm)  # it will be: what comes next starts it anew
            elif self._on_dead == "wait":
                back = await awaited(endpoint, patience_s=PATIENCE_S, goes_on=self._goes_on, is_stopping=self._is_stopping)
                if back is not None:
                    self._met(arm, back)
                    self._vigil.revived(arm)
            return f"{arm} died during the block"
        try:
            said, strangers = await self._settled(endpoint, known)
        except EndpointError as error:
            return f"{arm} did not answer after the block: {error.message}"
        if missing := newly_missing(said, known):
            self._notice(f"{arm} is held to be what it was: after the block it did not answer {'; '.join(missing)}")
        now = dated(said, time.time()) if is_restarted(known, said) else remembered(said, known)
        fault = self._fault(arm, said, now, strangers)
        self._known[arm] = now
        self._learn(arm, now)
        if said.counters:
            self._tally.read(endpoint, said.counters)
        self._note(arm, now, round_, "after")
        self._sample(arm, said)
        return fault or between

    async def _settled(self, endpoint: Endpoint, known: Identity) -> tuple[Identity, float]:
        """Ask until the server is idle, has counted what we sent and tells all that it told before, or stays as it is.

        Returns with what it said how many requests it still works on that nobody of ours waits for.
        """
        looks: list[Identity] = []
        until_s = time.monotonic() + LOOKS * LOOK_S
        for left in reversed(range(LOOKS)):
            try:
                now = await identify(endpoint, known=known)
            except EndpointError:  # a gateway's bad moment, it may be
                if not left or time.monotonic() > until_s:
                    raise
            else:
                is_even = now.counters.get("running", 0.0) == 0 and self._tally.beyond(endpoint, now.counters) >= 0
                if is_even and not newly_missing(now, known):
                    return now, 0.0
                looks.append(now)
            if left:
                await asyncio.sleep(LOOK_S)
        return looks[-1], self._strangers(endpoint, looks)

    def _strangers(self, endpoint: Endpoint, looks: Sequence[Identity]) -> float:
        """Count what a server works on: some gauges stay where they were when it fell idle, tokens come from work alone."""
        before, now = looks[len(looks) // 2].counters, looks[-1].counters
        works = "output_tokens" in before and now.get("output_tokens", 0.0) > before["output_tokens"]
        return max(0.0, now.get("running", 0.0) - self._tally.perhaps(endpoint)) if works else 0.0

    def _fault(self, arm: str, said: Identity, now: Identity, strangers: float) -> str | None:
        known = self._known[arm]
        changes = differences(self._first[arm], known.facts(), now.facts())
        if not changes and is_restarted(known, said):
            changes = ("its counters began anew",)
        if changes:
            return f"{arm} changed during the block: {', '.join(changes)}"
        if strangers:
            return f"{arm} still works on {strangers:.0f} requests that are not ours"
        return self._tally.fault(self._endpoints[arm], said.counters)

    def _met(self, arm: str, identity: Identity) -> None:
        """Hold what comes next against what a server says now."""
        self._known[arm] = identity
        self._tally.read(self._endpoints[arm], identity.counters)
        self._learn(arm, identity)

    def _learn(self, arm: str, identity: Identity) -> None:
        self._first[arm] = {**told(identity.facts()), **self._first.get(arm, {})}

    def _note(self, arm: str, identity: Identity, round_: int, moment: Literal["before", "after"]) -> None:
        self._write(fingerprint(self._run_id, self._leg, arm, identity, moment=moment, round_=round_))

    def _sample(self, arm: str, identity: Identity) -> None:
        for row in scraped(self._run_id, self._leg, self._endpoints[arm], identity):
            self._write(row)

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
