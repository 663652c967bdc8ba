"""Name every length, count and wait of a session, so that showing, checking and benchmarking a trace speak of the same things.

A field of a turn that has an event carries it: `output@compact`. Fields of a whole session carry the event of its first turn.
Lengths count what a turn brings for the first time, not what it says again after its history was rewritten.
"""

from collections.abc import Iterator
from typing import TypeAlias

from agentload.model.trace import Header, Key, Role, Session, Turn

Observation: TypeAlias = tuple[str, float]


def fields(header: Header, session: Session) -> Iterator[Observation]:
    """Yield each field of a session with its value: tokens, seconds, counts, and `thinking` as a share of the output."""
    prefix = header.prefixes[session.prefix] if session.prefix is not None else ()
    lengths = [segment.tokens for segment in prefix]
    seen: set[Key] = set()
    total = peak = sum(lengths)
    messages = 0
    request = 0
    whole = _labelled(session.turns[0].event)
    if total:
        yield f"prefix{whole}", total
    for index, turn in enumerate(session.turns):
        label = _labelled(turn.event)
        if turn.keep is not None:
            del lengths[turn.keep :]
            total = sum(lengths)
        added = [segment.tokens for segment in turn.add]
        lengths += added
        total += sum(added)
        peak = max(peak, total)
        brought = _brought(turn, seen)
        if index == 0:
            yield f"first{whole}", total
        elif turn.wait == "user":
            yield f"request{whole}", request
            request = 0
        request += 1
        # What a turn brings with a rewritten history is a summary, unless a user was waited for.
        messages += "user" in brought and _labelled(turn.event) == whole and (turn.keep is None or turn.wait == "user")
        yield f"context{label}", total
        for role, tokens in brought.items():
            if role == "image":
                yield from ((f"image{label}", length) for length in tokens)
                yield f"images{label}", len(tokens)
            else:
                yield f"{role}{label}", sum(tokens)
        yield from _answer(turn, label, goes_on=_goes_on(session, index))
        if turn.wait is not None:
            yield f"wait.{turn.wait}{label}", turn.wait_s
    yield f"request{whole}", request
    yield f"calls{whole}", len(session.turns)
    yield f"messages{whole}", messages
    yield f"peak{whole}", peak


def _answer(turn: Turn, label: str, *, goes_on: bool) -> Iterator[Observation]:
    yield f"output{label}", turn.output
    yield f"output.{'step' if goes_on else 'reply'}{label}", turn.output
    if turn.thinking is not None and turn.output:
        yield f"thinking{label}", turn.thinking / turn.output


def _goes_on(session: Session, index: int) -> bool:
    """Say whether the answer of a turn calls a tool: the next turn waits for one, or brings a result without rewriting the history."""
    if index + 1 == len(session.turns):
        return False
    after = session.turns[index + 1]
    return after.wait == "tool" or (after.keep is None and any(segment.role == "tool" for segment in after.add))


def _brought(turn: Turn, seen: set[Key]) -> dict[Role, list[int]]:
    brought: dict[Role, list[int]] = {}
    for segment in turn.add:
        if segment.role in {"user", "tool", "image"} and segment.source is None and segment.key not in seen:
            brought.setdefault(segment.role, []).append(segment.tokens)
            seen.add(segment.key)
    return brought


def _labelled(event: str | None) -> str:
    return "" if event is None else f"@{event}"
