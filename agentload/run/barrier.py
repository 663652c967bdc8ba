"""What happens between two rounds: blocks closed, servers
asked who they are, counters compared, what is finished loaded.

Nothing but counting is done while a block is played, so nothing here can disturb a
measurement. An arm that has stopped answering is noticed at once, and may be waited for.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, Literal

from agentload.dispatch.dispatcher import PlayEnd
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import told
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.model.commands import Send, Settle, Status
from agentload.model.rows import CallRow, Row
from agentload.run.known import (
    Between,
    Tally,
    dated,
    differences,
    is_restarted,
    newly_missing,
    remembered,
)
from agentload.run.record import fingerprint, scraped
from agentload.study.kinds import OnDead

PATIENCE_S = 600.0  # a large model takes minutes to load
CUT = "stopped before its end"
DEAD_AFTER: Final = (
    5  # failures in a row without any answer between them; one alone may be a full accept queue
)
SILENT: Final[frozenset[Status]] = frozenset({"refused", "reset", "connect_timeout"})
UNANSWERED: Final[frozenset[Status]] = SILENT | {"first_timeout", "idle_timeout"}
"""Of an overloaded server, or of one that hangs: then it does not say who it is, either."""
UNHEARD: Final[frozenset[Status]] = UNANSWERED | {"busy", "total_timeout"}
"""Of a priming call: the server does not hold what it should, and
the first call behind it is another one than on the other arms.
"""
# calls, all of a run so far; a few that are too long for a server leave the others to be measured
REFUSED_AFTER: Final = 20
BUSY: Final = frozenset({408, 409, 425, 429})
"""Of 4xx answers, those that another time is answered otherwise."""
WAIT_S: Final = 2.0
IN_A_ROW: Final = 3
"""Pairs that are invalid for one reason, one after the other: the next would be, too."""
LOOKS = 10
LOOK_S = 0.2  # a server's counters settle within this many looks after its last answer


@dataclass(slots=True, kw_only=True)
class Barrier:
    """Settle a round: returns the pairs that are void
    because their server changed, died or was not ours alone.
    """

    run_id: str
    leg: int
    endpoints: dict[str, Endpoint]
    before: InitVar[Mapping[str, Identity]]
    pair_size: int
    write: Callable[[Row], None]
    samples: Callable[[], Iterable[Row]]
    on_dead: OnDead
    lost: Callable[[str], None]
    """Is told once of an arm that has stopped answering."""
    given_up: Callable[[str], None]
    """Is told why a server takes no call of ours, once that is certain."""
    on_invalid: Callable[[str], None]
    """Is told why no pair will be valid although servers answer, once that is certain."""
    pair_done: Callable[[int], Awaitable[None]]
    is_stopping: Callable[[], bool]
    notice: Callable[[str], None]
    goes_on: str
    """The command line that goes on with the run."""
    dead: set[str] = field(init=False, default_factory=set)
    _failures: Counter[str] = field(init=False, default_factory=Counter)
    """In a row, by arm."""
    _last: dict[str, Status] = field(init=False, default_factory=dict)
    """How the last call ended, by arm."""
    _refused: Counter[str] = field(init=False, default_factory=Counter)
    """Calls by arm, as long as it takes none; below 0 once it answered otherwise."""
    _known: dict[str, Identity] = field(init=False, default_factory=dict)
    _first: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    """What each arm was when it told so first: what is another one since is another arm."""
    _present: tuple[str, ...] = field(init=False)
    _is_relayed: bool = field(init=False, default=False)
    _played: Counter[int] = field(init=False, default_factory=Counter)
    _unprimed: dict[str, Status] = field(init=False, default_factory=dict)
    """How a context of the block that an arm plays failed to be primed."""
    _invalid: list[str] = field(init=False, default_factory=list)
    """Why pairs were invalid since the last that was not, without the numbers in it."""
    _tally: Tally = field(init=False, default_factory=Tally)
    _between: Between = field(init=False, default_factory=Between)

    def __post_init__(self, before: Mapping[str, Identity]) -> None:
        """Hold servers to be what they were *before*."""
        self._present = tuple(self.endpoints)
        for arm, identity in before.items():
            self._met(arm, identity)

    def started(self, endpoint: Endpoint, identity: Identity, round_: int) -> None:
        """Note that an arm's server was started for a round, and that no other runs."""
        arm = endpoint.name
        self._present, self._is_relayed = (arm,), True
        self.endpoints[arm] = endpoint
        self._met(arm, identity)
        self._revived(arm)
        self._note(arm, identity, round_, "before")
        self._sample(arm, identity)

    def sent(self, send: Send) -> None:
        """Take no notice: only what ended was counted."""

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note a call of ours that has just ended."""
        self.called(send.call.model, ended)

    def called(self, model: str | None, ended: CallRow) -> None:
        """Note a call of ours, for a *model*, that the server
        will have counted, and count failures in a row.
        """
        arm = ended.arm
        self._between.ended(ended)
        self._tally.ended(self.endpoints[arm], model, ended)
        self._last[arm] = ended.status
        if ended.prime and not ended.tail and ended.status in UNHEARD:
            self._unprimed[arm] = ended.status
        self._heard(arm, ended.http_status, ended.error)
        if ended.status not in SILENT or ended.http_status is not None:
            self._failures[arm] = 0
            return
        self._failures[arm] += 1
        if self._failures[arm] >= DEAD_AFTER and arm not in self.dead:
            self.dead.add(arm)
            self.lost(arm)

    def _heard(self, arm: str, code: int | None, error: str | None) -> None:
        if code is None or self._refused[arm] < 0:
            return
        is_refused = 400 <= code < 500 and code not in BUSY
        self._refused[arm] = self._refused[arm] + 1 if is_refused else -1
        if self._refused[arm] == REFUSED_AFTER:
            self.given_up(f"{arm} refused each of its first {REFUSED_AFTER} calls: {code}: {error}")

    def _revived(self, arm: str) -> None:
        self.dead.discard(arm)
        self._failures[arm] = 0

    async def __call__(
        self,
        settle: Settle,
        ends: tuple[PlayEnd, ...],
        *,
        fault: str | None = None,
        again: bool = False,
    ) -> tuple[tuple[int, str], ...]:
        """Close the round's blocks and say which pairs must be played again.

        *fault* is what nodes that played it found wrong; *again*: it has the pair played again.
        """
        reasons = dict(
            zip(
                self._present,
                await asyncio.gather(*(self._look(arm, settle.round) for arm in self._present)),
                strict=True,
            )
        )
        given_up = self.dead
        for row in await asyncio.to_thread(lambda: list(self.samples())):
            self.write(row)
        void: dict[int, str] = {}
        for end in ends:
            # What servers counted of a shard that is gone looks like somebody else's requests.
            unprimed = self._unprimed.pop(end.play.arm, None)
            missing = (
                None
                if unprimed is None
                else f"{end.play.arm}: a context could not be primed ({unprimed})"
            )
            reason = (fault if again else None) or reasons[end.play.arm] or missing
            if reason is not None and end.play.arm not in given_up:
                void[end.play.pair] = reason
            self.write(
                end.row(
                    run_id=self.run_id,
                    leg=self.leg,
                    void=reason or fault or (None if end.is_whole else CUT),
                )
            )
            self._played[end.play.pair] += 1
        for pair in {end.play.pair for end in ends}:
            if pair in void:
                self._played[pair] = 0
                self._invalid.append(re.sub(r"\d+", "#", void[pair]))
                is_hopeless = (
                    len(self._invalid) >= IN_A_ROW and len(set(self._invalid[-IN_A_ROW:])) == 1
                )
                if is_hopeless and settle.next_round is not None:
                    self.on_invalid(
                        f"{IN_A_ROW} pairs in a row were invalid, for one reason: {void[pair]}"
                    )
            elif self._played[pair] == self.pair_size and all(end.is_whole for end in ends):
                self._invalid.clear()
                await self.pair_done(pair)
        return tuple(sorted(void.items()))

    async def _look(self, arm: str, round_: int) -> str | None:
        """Note who the server is now, and say what makes the block that it may have played void."""
        endpoint, known, between = self.endpoints[arm], self._known[arm], self._between.reason(arm)
        if arm in self.dead:
            if self.on_dead == "wait" and self._is_relayed:
                self._revived(arm)  # it will be: what comes next starts it anew
            elif self.on_dead == "wait":
                back = await awaited(
                    endpoint,
                    patience_s=PATIENCE_S,
                    goes_on=self.goes_on,
                    is_stopping=self.is_stopping,
                )
                if back is not None:
                    self._met(arm, back)
                    self._revived(arm)
            return f"{arm} died during the block"
        try:
            said, strangers = await self._settled(endpoint, known)
        except EndpointError as error:
            if self._last.get(arm) not in UNANSWERED:
                return f"{arm} did not answer after the block: {error.message}"
            self.dead.add(arm)
            self.lost(arm)
            return await self._look(arm, round_)
        if missing := newly_missing(said, known):
            self.notice(
                f"{arm} is held to be what it was: after the block it did not answer "
                f"{'; '.join(missing)}"
            )
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
        """Ask until the server is idle, has counted what we sent
        and tells all that it told before, or stays as it is.

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
                is_even = (
                    now.counters.get("running", 0.0) == 0
                    and self._tally.beyond(endpoint, now.counters) >= 0
                )
                if is_even and not newly_missing(now, known):
                    return now, 0.0
                looks.append(now)
            if left:
                await asyncio.sleep(LOOK_S)
        return looks[-1], self._strangers(endpoint, looks)

    def _strangers(self, endpoint: Endpoint, looks: Sequence[Identity]) -> float:
        """Count what a server works on: some gauges stay where
        they were when it fell idle, tokens come from work alone.
        """
        before, now = looks[len(looks) // 2].counters, looks[-1].counters
        works = (
            "output_tokens" in before and now.get("output_tokens", 0.0) > before["output_tokens"]
        )
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
        return self._tally.fault(self.endpoints[arm], said.counters)

    def _met(self, arm: str, identity: Identity) -> None:
        """Hold what comes next against what a server says now."""
        self._known[arm] = identity
        self._tally.read(self.endpoints[arm], identity.counters)
        self._learn(arm, identity)

    def _learn(self, arm: str, identity: Identity) -> None:
        self._first[arm] = {**told(identity.facts()), **self._first.get(arm, {})}

    def _note(
        self, arm: str, identity: Identity, round_: int, moment: Literal["before", "after"]
    ) -> None:
        self.write(fingerprint(self.run_id, self.leg, arm, identity, moment=moment, round_=round_))

    def _sample(self, arm: str, identity: Identity) -> None:
        for row in scraped(self.run_id, self.leg, self.endpoints[arm], identity):
            self.write(row)


async def awaited(
    endpoint: Endpoint, *, patience_s: float, goes_on: str, is_stopping: Callable[[], bool]
) -> Identity | None:
    """Ask until the endpoint answers, or nobody wants it any more.

    Raises EndpointError when it stays silent.
    """
    until_s = time.monotonic() + patience_s
    while not is_stopping():
        try:
            return await identify(endpoint)
        except EndpointError as error:
            if time.monotonic() + WAIT_S > until_s:
                raise EndpointError(
                    f"{endpoint.name} stayed dead for {patience_s:.0f} s: {error.message}",
                    hint=f"start it again, then: {goes_on}",
                ) from error
        await asyncio.sleep(WAIT_S)
    return None
