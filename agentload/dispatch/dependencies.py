"""Follow the sessions of a block and the turns that each next turn waits for.

A turn is due when everything it depends on is complete, plus its own wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.session import Player
from agentload.model.plan import Plan
from agentload.model.trace import Session, TurnRef

# How many ended sessions later turns may still refer to; the trace format allows no more.
REMEMBERED: Final = 10_000


class Dependencies:
    """Follow sessions from start to end; pass each turn to *due* once its instant is known."""

    def __init__(self, plan: Plan, *, due: Callable[[int, Player], None]) -> None:
        self.players: dict[str, Player] = {}
        """Sessions that have started and not ended."""
        self.parked: dict[str, Session] = {}
        """Sessions that wait for the turn which spawns them."""
        self.over: list[str] = []
        """Sessions that are over and not yet forgotten; the caller empties this list."""
        self._plan = plan
        self._due = due
        self._spawned_ns: dict[str, int] = {}
        self._ended: OrderedDict[str, list[int]] = OrderedDict()
        self._waiters: dict[tuple[str, int], list[Player]] = {}

    def begin(self, session: Session, at_ns: int) -> Player:
        """Start a session whose time has come."""
        player = self.player(session, at_ns)
        self.players[session.session] = player
        self.follow(player)
        return player

    def player(self, session: Session, at_ns: int = 0) -> Player:
        """Return a player of a session, without starting the session."""
        prefix = self._plan.header.prefixes.get(session.prefix, ()) if session.prefix else ()
        return Player(
            session, prefix, live_history=self._plan.load.history == "live", ready_ns=at_ns
        )

    def park(self, session: Session) -> None:
        """Keep a session until another one spawns it; start it if that has happened already."""
        self.parked[session.session] = session
        at_ns = self._spawned_ns.pop(session.session, None)
        if at_ns is not None:
            self._spawn(session.session, at_ns)

    def follow(self, player: Player) -> None:
        """Find what the next turn of a session waits for; schedule the turn if nothing."""
        for ref in player.session.turns[player.next_turn].after:
            done_ns = self._completed(ref)
            if done_ns is None:
                player.waiting_for += 1
                self._waiters.setdefault((ref.session, ref.turn), []).append(player)
            else:
                player.ready_ns = max(player.ready_ns, done_ns)
        if player.waiting_for == 0:
            self._schedule(player)

    def complete(self, player: Player, done_ns: int) -> None:
        """Note a completed turn: start what it spawns, release the turns that wait for it."""
        name = player.session.session
        turn = player.next_turn
        player.completed_ns.append(done_ns)
        player.ready_ns = done_ns
        for spawned in player.session.turns[turn].spawn:
            self._spawn(spawned, done_ns)
        self._release_waiters((name, turn), done_ns)
        if player.has_ended:
            self._release_waiters((name, -1), done_ns)

    def retire(self, player: Player) -> None:
        """Remove a session that has ended; remember when its turns were complete."""
        name = player.session.session
        del self.players[name]
        self.over.append(name)
        self._ended[name] = player.completed_ns
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def drop(self) -> list[Player]:
        """Remove every session; return those that had not ended."""
        left = list(self.players.values())
        self.over += self.players
        self.players.clear()
        self._waiters.clear()
        return left

    def _spawn(self, name: str, at_ns: int) -> None:
        session = self.parked.pop(name, None)
        if session is None:
            self._spawned_ns[name] = at_ns
        else:
            self.begin(session, at_ns)

    def _completed(self, ref: TurnRef) -> int | None:
        player = self.players.get(ref.session)
        if player is not None:
            return player.completed(ref.turn)
        ended = self._ended.get(ref.session)
        if ended is not None and ref.turn < len(ended):
            return ended[ref.turn]
        return None

    def _release_waiters(self, key: tuple[str, int], done_ns: int) -> None:
        for waiter in self._waiters.pop(key, ()):
            waiter.ready_ns = max(waiter.ready_ns, done_ns)
            waiter.waiting_for -= 1
            if waiter.waiting_for == 0:
                self._schedule(waiter)

    def _schedule(self, player: Player) -> None:
        turn = player.session.turns[player.next_turn]
        wait_s = turn.wait_s
        rule = self._plan.load.waits.get(turn.wait or "")
        if rule is not None:
            wait_s *= rule.scale
            wait_s = wait_s if rule.cap_s is None else min(wait_s, rule.cap_s)
        self._due(player.ready_ns + round(wait_s * SECOND), player)
