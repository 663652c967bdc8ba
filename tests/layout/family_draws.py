"""Small random traces: families with sub-agents, joins,
quoted answers, compaction, prefixes and waits of every kind.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from agentload.model.plan import ClosedLoop, Load, WaitScale
from agentload.model.trace import Header, Segment, Session, Trace, Turn, TurnRef, Wait

SHARED = {
    "P": (
        Segment(role="system", tokens=40, key="sys"),
        Segment(role="tools", tokens=20, key="tools"),
    )
}
HEADER = Header(name="drawn", prefixes=SHARED)
LOAD = Load(arrivals=ClosedLoop(sessions=2), waits={"user": WaitScale(cap_s=3.0)})

WAITS: tuple[Wait | None, ...] = (None, "tool", "user", "schedule")


@st.composite
def turns(draw: st.DrawFn, *, name: str, number: int, context: int) -> Turn:
    """Draw a turn of a session whose context before has so many segments."""
    first = number == 0
    add = []
    if not first and draw(st.booleans()):
        add.append(
            Segment(role="assistant", tokens=draw(st.integers(1, 30)), key=f"{name}.a{number}")
        )
    add += [
        Segment(role="user", tokens=draw(st.integers(1, 400)), key=f"{name}.{number}.{place}")
        for place in range(draw(st.integers(1, 2)))
    ]
    wait = draw(st.sampled_from(WAITS))
    return Turn(
        add=tuple(add),
        output=draw(st.integers(1, 300)),
        wait=wait,
        wait_s=draw(st.sampled_from((0.0, 0.5, 2.0, 8.0))) if wait else 0.0,
        keep=draw(st.integers(0, context)) if not first and draw(st.integers(0, 3)) == 0 else None,
    )


@st.composite
def sessions(draw: st.DrawFn, *, name: str, start_s: float | None) -> Session:
    """Draw a session that nobody waits for yet."""
    prefix = draw(st.sampled_from((None, "P")))
    made: list[Turn] = []
    context = len(SHARED["P"]) if prefix else 0
    for number in range(draw(st.integers(1, 4))):
        made.append(draw(turns(name=name, number=number, context=context)))
        context = (context if made[-1].keep is None else min(context, made[-1].keep)) + len(
            made[-1].add
        )
    return Session(session=name, workload="w", turns=tuple(made), start_s=start_s, prefix=prefix)


@st.composite
def drawn_families(
    draw: st.DrawFn, *, name: str = "f", start_s: float = 0.0
) -> tuple[Session, ...]:
    """Draw a family: children are spawned by any turn before,
    and joined or quoted by later turns of who spawned them.
    """
    root = draw(sessions(name=name, start_s=start_s))
    members = [root]
    for number in range(draw(st.integers(0, 3))):
        child = draw(sessions(name=f"{name}/{number}", start_s=None))
        parent = draw(st.integers(0, len(members) - 1))
        at = draw(st.integers(0, len(members[parent].turns) - 1))
        members[parent] = _spawning(members[parent], at, child.session)
        if at + 1 < len(members[parent].turns) and draw(st.booleans()):
            joins = draw(st.integers(at + 1, len(members[parent].turns) - 1))
            answer = draw(st.sampled_from((-1, *range(len(child.turns)))))
            ref = TurnRef(session=child.session, turn=answer)
            members[parent] = _joining(members[parent], joins, ref, quotes=draw(st.booleans()))
        members.append(child)
    return tuple(members)


@st.composite
def traces(draw: st.DrawFn, *, most: int = 4) -> Trace:
    """Draw a trace of some families, in order of their starts."""
    number = draw(st.integers(1, most))
    made = [draw(drawn_families(name=f"f{place}", start_s=10.0 * place)) for place in range(number)]
    return Trace(header=HEADER, sessions=tuple(session for family in made for session in family))


def _changed(session: Session, number: int, turn: Turn) -> Session:
    return replace(session, turns=(*session.turns[:number], turn, *session.turns[number + 1 :]))


def _spawning(session: Session, number: int, child: str) -> Session:
    turn = session.turns[number]
    return _changed(session, number, replace(turn, spawn=(*turn.spawn, child)))


def _joining(session: Session, number: int, ref: TurnRef, *, quotes: bool) -> Session:
    turn = session.turns[number]
    quoted = (
        (Segment(role="tool", tokens=25, key=f"{ref.session}.{ref.turn}.quoted", source=ref),)
        if quotes
        else ()
    )
    return _changed(
        session, number, replace(turn, after=(*turn.after, ref), add=(*turn.add, *quoted))
    )
