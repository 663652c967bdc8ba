"""The sessions of a block and what their turns wait for: a turn
is due when all that it depends on is complete, plus its wait.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from agentload.dispatch.arrivals import SECOND
from agentload.dispatch.session import Player
from agentload.model.plan import Plan
from agentload.model.trace import Session, TurnRef

# ended sessions that may still be referred to; the trace format promises no longer reach
REMEMBERED: Final = 10_000


class Dependencies:
    """Follow sessions from their begin to their end; *due*
    is told of each turn as soon as its instant is known.
    """

    def __init__(self, plan: Plan, *, due: Callable[[int, Player], None]) -> None:
        self.players: dict[str, Player] = {}
        """Sessions that have begun and not ended."""
        self.parked: dict[str, Session] = {}
        """Sessions whose spawning turn is not complete."""
        self.over: list[str] = []
        """Sessions whose play is over, and nobody was told yet."""
        self._plan = plan
        self._due = due
        self._spawned_ns: dict[str, int] = {}
        self._ended: OrderedDict[str, list[int]] = OrderedDict()
        self._waiters: dict[tuple[str, int], list[Player]] = {}

    def begin(self, session: Session, at_ns: int) -> Player:
        """Begin a session whose time has come."""
        player = self.player(session, at_ns)
        self.players[session.session] = player
        self.follow(player)
        return player

    def player(self, session: Session, at_ns: int = 0) -> Player:
        """Return what plays a session, without beginning it."""
        prefix = self._plan.header.prefixes.get(session.prefix, ()) if session.prefix else ()
        return Player(
            session, prefix, live_history=self._plan.load.history == "live", ready_ns=at_ns
        )

    def park(self, session: Session) -> None:
        """Take in a session that another one spawns, or has spawned."""
        self.parked[session.session] = session
        if (at_ns := self._spawned_ns.pop(session.session, None)) is not None:
            self._spawn(session.session, at_ns)

    def follow(self, player: Player) -> None:
        """Look what the next turn of a session waits for."""
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
        """Note that a session's turn is complete: what
        it spawns begins, and who waited for it goes on.
        """
        name, turn = player.session.session, player.next_turn
        player.completed_ns.append(done_ns)
        player.ready_ns = done_ns
        for spawned in player.session.turns[turn].spawn:
            self._spawn(spawned, done_ns)
        self._release_waiters((name, turn), done_ns)
        if player.has_ended:
            self._release_waiters((name, -1), done_ns)

    def retire(self, player: Player) -> None:
        """Let a session go that has ended."""
        name = player.session.session
        del self.players[name]
        self.over.append(name)
        self._ended[name] = player.completed_ns
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    def drop(self) -> list[Player]:
        """Let every session go, ended or not; return those that had not."""
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
        return ended[ref.turn] if ended is not None and ref.turn < len(ended) else None

    def _release_waiters(self, key: tuple[str, int], done_ns: int) -> None:
        for waiter in self._waiters.pop(key, ()):
            waiter.ready_ns = max(waiter.ready_ns, done_ns)
            waiter.waiting_for -= 1
            if waiter.waiting_for == 0:
                self._schedule(waiter)

    def _schedule(self, player: Player) -> None:
        turn = player.session.turns[player.next_turn]
        wait_s = turn.wait_s
        if (rule := self._plan.load.waits.get(turn.wait or "")) is not None:
            wait_s *= rule.scale
            wait_s = wait_s if rule.cap_s is None else min(wait_s, rule.cap_s)
        self._due(player.ready_ns + round(wait_s * SECOND), player)
