"""Sessions and those that they spawn, which follow them in a trace."""

from collections.abc import Iterable, Iterator

from agentload.model.trace import Session


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
