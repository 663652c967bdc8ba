"""Check references between sessions: spawned sessions, awaited turns and taken answers.

Sessions come one by one. A reference may reach 10,000 sessions back or forward.
A cycle needs a forward reference, so whole sessions are kept only from the
first open reference until all are resolved, and are then searched for cycles.
"""

from collections import OrderedDict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from agentload.model.record import Record
from agentload.model.trace import Session, TurnRef

REACH: Final = 10_000


class Problem(Record):
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
        self._unsorted: list[tuple[Session, _Place | None]] = []
        """Sessions that may wait for each other, each with the turn that spawns it."""
        self._met = 0
        self._last_start_s = 0.0

    def meet(self, session: Session) -> Iterator[Problem]:
        """Add the next session; yield problems with it, or with turns that waited for it."""
        self._met += 1
        self._lengths[session.session] = len(session.turns)
        if len(self._lengths) > REACH:
            self._lengths.popitem(last=False)
        parent = self._spawned.pop(session.session, None)
        yield from self._check_start(session, parent)
        for awaited in self._awaited.pop(session.session, ()):
            ref = TurnRef(session=session.session, turn=awaited.turn)
            yield from self._check_turn(awaited.by, ref)
        for index, turn in enumerate(session.turns):
            place = _Place(session.session, index, session.line)
            for ref in turn.after:
                yield from self._check_wait(place, ref)
            for child in turn.spawn:
                yield from self._check_spawn(place, child)
        yield from self._check_sources(session, parent)
        yield from self._check_circles(session, parent)
        yield from self._missing_sessions(REACH)

    def finish(self) -> Iterator[Problem]:
        """Yield the references still open after the last session."""
        yield from self._missing_children()
        yield from self._missing_sessions(-1)

    def _check_start(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        """Check that a session starts by the clock, after the ones before it, or is spawned."""
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
        yield from self._missing_children()
        if session.start_s < self._last_start_s:
            what = (
                f"starts at {session.start_s:g} s, earlier than the session before it "
                f"({self._last_start_s:g} s)"
            )
            yield _of(session, what)
        self._last_start_s = max(self._last_start_s, session.start_s)

    def _missing_children(self) -> Iterator[Problem]:
        """Yield the spawned sessions that have not come before a session of another family."""
        for child, parent in self._spawned.items():
            yield parent.problem(f"spawns session {child}, which does not follow it")
        self._spawned.clear()

    def _check_spawn(self, parent: _Place, child: str) -> Iterator[Problem]:
        if child in self._spawned:
            yield parent.problem(f"spawns session {child} again")
        elif child in self._lengths:
            yield parent.problem(f"spawns session {child}, which came before it")
        else:
            self._spawned[child] = parent

    def _check_wait(self, by: _Place, ref: TurnRef) -> Iterator[Problem]:
        """Check what a turn waits for; that of a session that may still come is checked then."""
        if ref.session in self._lengths:
            yield from self._check_turn(by, ref)
        else:
            self._awaited.setdefault(ref.session, []).append(_Awaited(by, ref.turn, self._met))

    def _check_turn(self, by: _Place, ref: TurnRef) -> Iterator[Problem]:
        length = self._lengths[ref.session]
        if ref.turn >= length:
            what = f"waits for turn {ref.turn} of session {ref.session}, which has only {length}"
            yield by.problem(what)

    def _check_sources(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        """Check that turns take only answers that they wait for.

        A turn waits for those before it, and with the first one of a session for its parent.
        """
        done = {} if parent is None else {parent.session: parent.turn}
        for index, turn in enumerate(session.turns):
            done[session.session] = index - 1
            for ref in turn.after:
                done[ref.session] = max(done.get(ref.session, -1), self._number(ref))
            for segment in turn.add:
                source = segment.source
                if source is None or done.get(source.session, -1) >= self._number(source):
                    continue
                what = (
                    f"takes the answer of turn {source.turn} of session {source.session} "
                    "without waiting for it: name it in 'after'"
                )
                yield _Place(session.session, index, session.line).problem(what)

    def _number(self, ref: TurnRef) -> int:
        """Return the number of a turn, of which -1 is a session's last one."""
        if ref.turn == -1:
            return self._lengths.get(ref.session, REACH) - 1
        return ref.turn

    def _check_circles(self, session: Session, parent: _Place | None) -> Iterator[Problem]:
        """Check that no turns wait for each other, as soon as all that they wait for is there."""
        refs = (ref for turn in session.turns for ref in turn.after)
        waits_for_itself = any(ref.session == session.session for ref in refs)
        is_open = bool(self._awaited or self._spawned)
        if is_open or self._unsorted or waits_for_itself:
            self._unsorted.append((session, parent))
        if is_open:
            return
        try:
            TopologicalSorter(_dependencies(self._unsorted)).prepare()
        except CycleError as error:
            circle = " → ".join(f"{place.session}/{place.turn}" for place in error.args[1])
            yield _of(session, f"waits for itself: {circle}")
        self._unsorted.clear()

    def _missing_sessions(self, reach: int) -> Iterator[Problem]:
        """Yield who waits for sessions that have not come while *reach* others did."""
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
    """Return the turns that each turn waits for."""
    lengths = {session.session: len(session.turns) for session, _ in sessions}
    graph: dict[_Place, list[_Place]] = {}
    for session, parent in sessions:
        for index, turn in enumerate(session.turns):
            # Sessions before the first open reference cannot wait for anything here.
            before = [
                _Place(ref.session, ref.turn % lengths[ref.session])
                for ref in turn.after
                if ref.session in lengths
            ]
            if index:
                before.insert(0, _Place(session.session, index - 1))
            elif parent is not None:
                before.insert(0, _Place(parent.session, parent.turn))
            graph[_Place(session.session, index)] = before
    return graph
