"""Walk over sessions: a context from turn to turn, and families of those that belong together."""

from collections.abc import Iterable, Iterator

from agentload.model.trace import Header, Segment, Session


def contexts(header: Header, session: Session) -> Iterator[tuple[Segment, ...]]:
    """Yield what each turn sends: what it keeps of the context before, the prefix at first, and what it adds."""
    context = header.prefixes[session.prefix] if session.prefix is not None else ()
    for turn in session.turns:
        context = context[: turn.keep] + turn.add
        yield context


def families(sessions: Iterable[Session]) -> Iterator[list[Session]]:
    """Yield each session that starts by itself, with those that follow because it spawned them."""
    family: list[Session] = []
    for session in sessions:
        if session.start_s is not None and family:
            yield family
            family = []
        family.append(session)
    if family:
        yield family
