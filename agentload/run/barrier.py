"""Settle the blocks between two rounds: which pairs are valid, which are played again.

Servers are identified again, their counters compared with our calls, and finished pairs loaded.
While a block is played calls are only counted, so nothing here can disturb a measurement. An arm
that has stopped answering is noticed at once, and may be waited for.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any, Final, Literal, Protocol

from agentload.dispatch.dispatcher import PlayEnd
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.facts import reported_facts
from agentload.endpoints.identity import Identity, identify
from agentload.errors import EndpointError
from agentload.model.commands import Send, Settle, Status
from agentload.model.record import Record
from agentload.model.rows import CallRow, Row
from agentload.run.known import (
    Between,
    Tally,
    differences,
    is_restarted,
    newly_missing,
    with_date,
    with_memory,
)
from agentload.run.record import counter_rows, fingerprint
from agentload.study.kinds import OnDead

PATIENCE_S: Final = 600.0  # a large model takes minutes to load
CUT: Final = "stopped before its end"
DEAD_AFTER: Final = 5
"""Failures in a row after which an arm is dead; one alone may be a full accept queue."""
SILENT: Final[frozenset[Status]] = frozenset({"refused", "reset", "connect_timeout"})
UNANSWERED: Final[frozenset[Status]] = SILENT | {"first_timeout", "idle_timeout"}
"""Statuses of calls to an overloaded or hanging server, which then does not say who it is."""
UNHEARD: Final[frozenset[Status]] = UNANSWERED | {"busy", "total_timeout"}
"""Statuses of priming calls that leave a context out of the server's cache.

The first call after such a priming is not the call that the other arms get.
"""
REFUSED_AFTER: Final = 20
"""Refused calls, without any other answer before them, after which an arm takes none.

A few calls may be too long; the others are measured then.
"""
BUSY: Final = frozenset({408, 409, 425, 429})
"""Codes of 4xx answers that may differ at another time."""
WAIT_S: Final = 2.0
START_AGAIN: Final = "start it again, then"
IN_A_ROW: Final = 3
"""Pairs in a row, invalid for one reason, after which the next would be, too."""
LOOKS: Final = 10
"""Looks within which a server's counters settle after its last answer."""
LOOK_S: Final = 0.2


class Host(Protocol):
    """Play the rounds, and hear what becomes certain between them."""

    def notice(self, text: str) -> None:
        """Hear what a reader of the run should know."""

    def lost(self, arm: str, why: str) -> None:
        """Hear, once, that an arm has stopped answering, and how its last call ended."""

    def refused(self, why: str) -> None:
        """Hear why a server takes no call of ours, once that is certain."""

    def invalid(self, why: str) -> None:
        """Hear why no pair will be valid although servers answer, once that is certain."""

    async def pair_done(self) -> None:
        """Hear that every arm has played a pair."""

    def is_stopping(self) -> bool:
        """Tell whether nothing more is to be played."""


class Rounds(Record):
    """Hold what the rounds of one part of a run share."""

    run_id: str
    leg: int
    pair_size: int
    on_dead: OnDead
    goes_on: str
    """Command line that resumes the run."""
    write: Callable[[Row], None]
    samples: Callable[[], Iterable[Row]]


@dataclass(slots=True, kw_only=True)
class Barrier:
    """Settle a round; each call returns the invalid pairs with the reason.

    A pair is invalid where its server changed, died, lacked a primed context or was not ours alone.
    """

    rounds: Rounds
    host: Host
    endpoints: dict[str, Endpoint]
    before: InitVar[Mapping[str, Identity]]
    dead: set[str] = field(init=False, default_factory=set)
    _failures: Counter[str] = field(init=False, default_factory=Counter)
    """Failed calls in a row, by arm."""
    _last: dict[str, CallRow] = field(init=False, default_factory=dict)
    """Last call, by arm."""
    _refused: Counter[str] = field(init=False, default_factory=Counter)
    """Refused calls by arm while it takes none; below 0 once it answered otherwise."""
    _known: dict[str, Identity] = field(init=False, default_factory=dict)
    _first: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    """First stated value of each fact, by arm: another value later is another arm."""
    _present: tuple[str, ...] = field(init=False)
    _is_relayed: bool = field(init=False, default=False)
    _played: Counter[int] = field(init=False, default_factory=Counter)
    _unprimed: dict[str, Status] = field(init=False, default_factory=dict)
    """Status of the failed priming call in the block that an arm plays."""
    _invalid: list[str] = field(init=False, default_factory=list)
    """Reasons of the invalid pairs since the last valid one, with "#" for numbers."""
    _tally: Tally = field(init=False, default_factory=Tally)
    _between: Between = field(init=False, default_factory=Between)

    def __post_init__(self, before: Mapping[str, Identity]) -> None:
        """Take the servers to be what they were *before*."""
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
        """Ignore calls that are sent: only ended ones are counted."""

    def ended(self, send: Send, ended: CallRow) -> None:
        """Note a call of ours that has just ended."""
        self.called(send.call.model, ended)

    def called(self, model: str | None, ended: CallRow) -> None:
        """Count an ended call of ours, for a *model*, and the failures in a row of its arm."""
        arm = ended.arm
        self._between.ended(ended)
        self._tally.ended(self.endpoints[arm], model, ended)
        self._last[arm] = ended
        if ended.prime and not ended.tail and ended.status in UNHEARD:
            self._unprimed[arm] = ended.status
        self._heard(arm, ended.http_status, ended.error)
        if ended.status not in SILENT or ended.http_status is not None:
            self._failures[arm] = 0
            return
        self._failures[arm] += 1
        if self._failures[arm] >= DEAD_AFTER and arm not in self.dead:
            self._lose(ended)

    def _lose(self, last: CallRow) -> None:
        """Give an arm up whose *last* call had no answer."""
        self.dead.add(last.arm)
        self.host.lost(last.arm, f"{last.status}: {last.error}")

    def _heard(self, arm: str, code: int | None, error: str | None) -> None:
        if code is None or self._refused[arm] < 0:
            return
        is_refused = 400 <= code < 500 and code not in BUSY
        self._refused[arm] = self._refused[arm] + 1 if is_refused else -1
        if self._refused[arm] == REFUSED_AFTER:
            self.host.refused(
                f"{arm} refused each of its first {REFUSED_AFTER} calls: {code}: {error}"
            )

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
        """Close the round's blocks and return each pair to play again, with the reason.

        *fault* is what nodes that played it found wrong; *again* repeats the pair for it.
        """
        looks = await asyncio.gather(*(self._look(arm, settle.round) for arm in self._present))
        reasons = dict(zip(self._present, looks, strict=True))
        for row in await asyncio.to_thread(lambda: list(self.rounds.samples())):
            self.rounds.write(row)
        void: dict[int, str] = {}
        for end in ends:
            arm = end.play.arm
            reason = self._reason(arm, reasons[arm], fault if again else None)
            if reason is not None and arm not in self.dead:
                void[end.play.pair] = reason
            self._close(end, reason or fault)
        is_whole = all(end.is_whole for end in ends)
        for pair in {end.play.pair for end in ends}:
            if pair in void:
                self._count_invalid(pair, void[pair], is_last=settle.next_round is None)
            elif is_whole and self._played[pair] == self.rounds.pair_size:
                self._invalid.clear()
                await self.host.pair_done()
        return tuple(sorted(void.items()))

    def _reason(self, arm: str, seen: str | None, fault: str | None) -> str | None:
        """Return why an arm's block is invalid: by a node's *fault*, as *seen* on its server, or
        because a context could not be primed; the next block may be.
        """
        unprimed = self._unprimed.pop(arm, None)
        # The server counted the calls of a lost node, too, which look like foreign
        # requests: the node's own fault comes first.
        if fault or seen or unprimed is None:
            return fault or seen
        return f"{arm}: a context could not be primed ({unprimed})"

    def _close(self, end: PlayEnd, void: str | None) -> None:
        """Write the row of a block that has ended, and count it for its pair."""
        void = void or (None if end.is_whole else CUT)
        self.rounds.write(end.row(run_id=self.rounds.run_id, leg=self.rounds.leg, void=void))
        self._played[end.play.pair] += 1

    def _count_invalid(self, pair: int, reason: str, *, is_last: bool) -> None:
        """Count an invalid pair; where pairs before it had the same reason, none will be valid."""
        self._played[pair] = 0
        self._invalid.append(re.sub(r"\d+", "#", reason))
        latest = self._invalid[-IN_A_ROW:]
        is_hopeless = len(latest) == IN_A_ROW and len(set(latest)) == 1
        if is_hopeless and not is_last:
            self.host.invalid(f"{IN_A_ROW} pairs in a row were invalid, for one reason: {reason}")

    async def _look(self, arm: str, round_: int) -> str | None:
        """Record who the server is now; return why the block it played is invalid, or None."""
        endpoint = self.endpoints[arm]
        known = self._known[arm]
        between = self._between.reason(arm)
        if arm in self.dead:
            if self.rounds.on_dead == "wait":
                await self._wait_for(arm)
            return f"{arm} died during the block"
        try:
            said, strangers = await self._settled(endpoint, known)
        except EndpointError as error:
            last = self._last.get(arm)
            if last is None or last.status not in UNANSWERED:
                return f"{arm} did not answer after the block: {error.message}"
            self._lose(last)
            return await self._look(arm, round_)
        if missing := newly_missing(said, known):
            self.host.notice(
                f"{arm} is held to be what it was: after the block it did not answer "
                f"{'; '.join(missing)}"
            )
        now = (
            with_date(said, time.time()) if is_restarted(known, said) else with_memory(said, known)
        )
        fault = self._fault(arm, said, now, strangers)
        self._known[arm] = now
        self._learn(arm, now)
        if said.counters:
            self._tally.read(endpoint, said.counters)
        self._note(arm, now, round_, "after")
        self._sample(arm, said)
        return fault or between

    async def _wait_for(self, arm: str) -> None:
        """Wait until a dead arm answers again; one that the next round starts is not waited for."""
        if self._is_relayed:
            self._revived(arm)
            return
        back = await wait_for(
            self.endpoints[arm],
            patience_s=PATIENCE_S,
            goes_on=self.rounds.goes_on,
            is_stopping=self.host.is_stopping,
        )
        if back is not None:
            self._met(arm, back)
            self._revived(arm)

    async def _settled(self, endpoint: Endpoint, known: Identity) -> tuple[Identity, float]:
        """Ask, `LOOKS` times at most, until the server is idle and its counters and facts agree.

        Returns the last answer and how many requests that are not ours the server still works on.
        """
        looks: list[Identity] = []
        until_s = time.monotonic() + LOOKS * LOOK_S
        for left in reversed(range(LOOKS)):
            try:
                now = await identify(endpoint, known=known)
            except EndpointError:  # possibly a passing fault of a gateway
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
        """Count running requests that are not ours; 0 unless the server writes tokens.

        Some gauges keep their value when a server falls idle; tokens come from work alone.
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
            changes = ("its counters started again",)
        if changes:
            return f"{arm} changed during the block: {', '.join(changes)}"
        if strangers:
            return f"{arm} still works on {strangers:.0f} requests that are not ours"
        return self._tally.fault(self.endpoints[arm], said.counters)

    def _met(self, arm: str, identity: Identity) -> None:
        """Compare what comes next with what a server says now."""
        self._known[arm] = identity
        self._tally.read(self.endpoints[arm], identity.counters)
        self._learn(arm, identity)

    def _learn(self, arm: str, identity: Identity) -> None:
        self._first[arm] = {**reported_facts(identity.facts()), **self._first.get(arm, {})}

    def _note(
        self, arm: str, identity: Identity, round_: int, moment: Literal["before", "after"]
    ) -> None:
        self.rounds.write(
            fingerprint(
                self.rounds.run_id, self.rounds.leg, arm, identity, moment=moment, round_=round_
            )
        )

    def _sample(self, arm: str, identity: Identity) -> None:
        for row in counter_rows(self.rounds.run_id, self.rounds.leg, self.endpoints[arm], identity):
            self.rounds.write(row)


async def wait_for(
    endpoint: Endpoint, *, patience_s: float, goes_on: str, is_stopping: Callable[[], bool]
) -> Identity | None:
    """Ask until the endpoint answers; return None once the run is stopping.

    Raises EndpointError after *patience_s* seconds of silence.
    """
    until_s = time.monotonic() + patience_s
    while not is_stopping():
        try:
            return await identify(endpoint)
        except EndpointError as error:
            if time.monotonic() + WAIT_S > until_s:
                cure = f"{error.hint} Then" if "certificate" in error.message else START_AGAIN
                raise EndpointError(
                    f"{endpoint.name} stayed dead for {patience_s:.0f} s: {error.message}",
                    hint=f"{cure}: {goes_on}",
                ) from error
        await asyncio.sleep(WAIT_S)
    return None
