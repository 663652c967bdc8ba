"""Check references between sessions: spawned sessions, awaited turns and taken answers.

Sessions come one by one. A reference may reach 10,000 sessions back or forward.
A cycle needs a forward reference, so whole sessions are kept only from the
first open reference until all are resolved, and are then searched for cycles.
"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from agentload.model.trace import Session, TurnRef

REACH: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong and where; no turn means the whole session."""

    session: str
    turn: int | None = None
    what: str
    line: int | None = None
    """Line of the file; None for a trace that was not read from one."""

    def __str__(self) -> str:
        if self.turn is None:
            place = f"session {self.session}"
        else:
            place = f"session {self.session}, turn {self.turn}"
        return f"{place}: {self.what}"

    def within(self, name: str) -> str:
        """Say the problem after the file's name and the line, as everything about a file is."""
        return f"{name}:{self.line}: {self}"


class _Place(NamedTuple):
    session: str
    turn: int
    line: int | None = None

    def problem(self, what: str) -> Problem:
        return Problem(session=self.session, turn=self.turn, what=what, line=self.line)


class _Awaited(NamedTuple):
    """A turn that waits for a turn of a session not yet read."""

    by: _Place
    turn: int
    since: int


class References:
    """The sessions within reach and the open references."""

    def __init__(self) -> None:
        self._lengths: OrderedDict[str, int] = OrderedDict()
        self._spawned: dict[str, _Place] = {}
        self._awaited: dict[str, list[_Awaited]] = {}
        self._entangled: list[tuple[Session, _Place | None]] = []
        self._met = 0
        self._last_start_s = 0.0

    def meet(self, session: Session) -> Iterator[Problem]:
        """Add the next session; yield problems with it, or with turns that waited for it."""
        self._met += 1
        self._lengths[session.session] = len(session.turns)
        if len(self._lengths) > REACH:
            self._lengths.popitem(last=False)
        parent = self._spawned.pop(session.session, None)
        yield from self._started(session, parent)
        for awaited in self._awaited.pop(session.session, ()):
            yield from self._exists(awaited.by, TurnRef(session=session.session, turn=awaited.turn))
        for index, turn in enumerate(session.turns):
            for ref in turn.after:
                yield from self._depends(_Place(session.session, index, session.line), ref)
            for child in turn.spawn:
                yield from self._spawns(_Place(session.session, index, session.line), child)
        yield from self._takes(session, parent)
        yield from self._disentangled(session, parent)
        yield from self._lost(REACH)

    def finish(self) -> Iterator[Problem]:
        """Yield the references still open after the last session."""
        yield from self._orphaned()
        yield from self._lost(-1)

    def _started(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        if session.start_s is None:
            if parent is None:
                yield _of(session, "has no start_s, and no turn before it spawns it")
            return
        if parent is not None:
            what = (
                f"starts by the clock but is spawned by session {parent.session}, turn "
                f"{parent.turn}"
            )
            yield _of(session, what)
        yield from self._orphaned()
        if session.start_s < self._last_start_s:
            what = (
                f"starts at {session.start_s:g} s, earlier than the session before it "
                f"({self._last_start_s:g} s)"
            )
            yield _of(session, what)
        self._last_start_s = max(self._last_start_s, session.start_s)

    def _orphaned(self) -> Iterator[Problem]:
        for child, parent in self._spawned.items():
            yield parent.problem(f"spawns session {child}, which does not follow it")
        self._spawned.clear()

    def _spawns(self, parent: _Place, child: str) -> Iterator[Problem]:
        if child in self._spawned:
            yield parent.problem(f"spawns session {child} again")
        elif child in self._lengths:
            yield parent.problem(f"spawns session {child}, which came before it")
        else:
            self._spawned[child] = parent

    def _depends(self, by: _Place, ref: TurnRef) -> Iterator[Problem]:
        if ref.session in self._lengths:
            yield from self._exists(by, ref)
        else:
            self._awaited.setdefault(ref.session, []).append(_Awaited(by, ref.turn, self._met))

    def _exists(self, by: _Place, ref: TurnRef) -> Iterator[Problem]:
        length = self._lengths[ref.session]
        if ref.turn >= length:
            what = f"waits for turn {ref.turn} of session {ref.session}, which has only {length}"
            yield by.problem(what)

    def _takes(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        """Yield the answers that a turn takes without waiting for them."""
        done = {} if parent is None else {parent.session: parent.turn}
        for index, turn in enumerate(session.turns):
            done[session.session] = index - 1
            for ref in turn.after:
                last = self._lengths.get(ref.session, REACH) - 1 if ref.turn == -1 else ref.turn
                done[ref.session] = max(done.get(ref.session, -1), last)
            for segment in turn.add:
                source = segment.source
                if source is None:
                    continue
                if source.turn == -1:
                    wanted = self._lengths.get(source.session, REACH) - 1
                else:
                    wanted = source.turn
                if done.get(source.session, -1) < wanted:
                    what = (
                        f"takes the answer of turn {source.turn} of session {source.session} "
                        "without waiting for it: name it in 'after'"
                    )
                    yield _Place(session.session, index, session.line).problem(what)

    def _disentangled(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        own = any(ref.session == session.session for turn in session.turns for ref in turn.after)
        if self._entangled or self._awaited or self._spawned or own:
            self._entangled.append((session, parent))
        if self._awaited or self._spawned:
            return
        try:
            TopologicalSorter(_dependencies(self._entangled)).prepare()
        except CycleError as error:
            circle = " → ".join(f"{place.session}/{place.turn}" for place in error.args[1])
            yield _of(session, f"waits for itself: {circle}")
        self._entangled.clear()

    def _lost(self, reach: int) -> Iterator[Problem]:
        while self._awaited:
            missing, waiting = next(iter(self._awaited.items()))
            if self._met - waiting[0].since <= reach:
                return
            del self._awaited[missing]
            for awaited in waiting:
                yield awaited.by.problem(f"waits for session {missing}, which does not exist")


def _of(session: Session, what: str) -> Problem:
    return Problem(session=session.session, what=what, line=session.line)


def _dependencies(sessions: list[tuple[Session, _Place | None]]) -> dict[_Place, list[_Place]]:
    lengths = {session.session: len(session.turns) for session, _ in sessions}
    graph: dict[_Place, list[_Place]] = {}
    for session, parent in sessions:
        for index, turn in enumerate(session.turns):
            if index:
                before = [_Place(session.session, index - 1)]
            elif parent is not None:
                before = [_Place(parent.session, parent.turn)]
            else:
                before = []
            # Sessions before the first open reference cannot wait for anything here.
            before += [
                _Place(ref.session, ref.turn % lengths[ref.session])
                for ref in turn.after
                if ref.session in lengths
            ]
            graph[_Place(session.session, index)] = before
    return graph
