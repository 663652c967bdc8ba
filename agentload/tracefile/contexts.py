"""Follow a session's context from turn to turn."""

from collections.abc import Iterator

from agentload.model.trace import Header, Segment, Session


def contexts(header: Header, session: Session) -> Iterator[tuple[Segment, ...]]:
    """Yield what each turn sends: what it keeps of the context before, the prefix at first, and what it adds."""
    context = header.prefixes[session.prefix] if session.prefix is not None else ()
    for turn in session.turns:
        context = context[: turn.keep] + turn.add
        yield context
