"""Import files that a test has made, and look at what comes out."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from agentload.importers.catalog import conversion
from agentload.importers.parts.notes import ImportSummary, Tolerance
from agentload.model.trace import Header, Segment, Session
from agentload.model.walk import contexts
from agentload.tracefile import lines

KEY = b"a secret of tests"


def imported(
    folder: Path,
    files: Mapping[str, str | bytes],
    format: str | None = None,
    tolerance: Tolerance = "normal",
    **options: object,
) -> tuple[list[Session], ImportSummary]:
    """Write the files, import the folder (or the one file), and return its sessions and summary."""
    paths = [written(folder / name, text) for name, text in files.items()]
    made = conversion(
        paths if len(paths) == 1 else [folder],
        key=KEY,
        format=format,
        tolerance=tolerance,
        options=options,
    )
    sessions = list(made)
    assert_ordered(sessions)
    return sessions, made.summary


def assert_ordered(sessions: list[Session]) -> None:
    """Check what every reader relies on: sorted starts, spawned
    sessions behind those that start them, references that exist.
    """
    starts = [session.start_s for session in sessions if session.start_s is not None]
    assert starts == sorted(starts)
    names: dict[str, int] = {}
    spawned: set[str] = set()
    for session in sessions:
        assert session.session not in names, session.session
        assert (session.start_s is None) == (session.session in spawned), session.session
        names[session.session] = len(session.turns)
        spawned |= {child for turn in session.turns for child in turn.spawn}
    assert spawned <= names.keys()
    for session in sessions:
        for turn in session.turns:
            for ref in turn.after:
                assert -1 <= ref.turn < names[ref.session]


def written(path: Path, text: str | bytes) -> Path:
    """Write a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def output(folder: Path, format: str | None = None, **options: object) -> bytes:
    """Return the bytes of the trace of a folder."""
    return b"".join(lines(conversion([folder], key=KEY, format=format, options=options).trace))


def jsonl(*records: object) -> str:
    """Write records one a line."""
    return "".join(msgspec.json.encode(record).decode() + "\n" for record in records)


def sent(session: Session) -> list[tuple[Segment, ...]]:
    """Return the context of each turn."""
    return list(contexts(Header(name=""), session))


def lengths(session: Session) -> list[int]:
    """Return the prompt tokens of each turn."""
    return [sum(segment.tokens for segment in context) for context in sent(session)]


def tokens(context: tuple[Segment, ...], block: int) -> Iterator[tuple[object, int]]:
    """Yield a context token by token, each by what it is: the slow way, to check the quick one."""
    for segment in context:
        for number in range(segment.tokens):
            match segment.key:
                case str() as key:
                    yield key, number
                case (first, _):
                    yield first + number // block, number % block


def ideal(calls: list[list[tuple[object, int]]], block: int) -> float:
    """Return the share of tokens in full blocks that an earlier
    call had behind the same tokens, counted one by one.
    """
    seen: set[tuple[tuple[object, int], ...]] = set()
    hits = 0
    for call in calls:
        for end in range(block, len(call) + 1, block):
            prefix = tuple(call[:end])
            hits += block * (prefix in seen)
            seen.add(prefix)
    return hits / sum(map(len, calls))


def ideal_of(sessions: list[Session], block: int) -> float:
    """Return the ideal hit ratio of sessions, counted one by one."""
    return ideal(
        [list(tokens(context, block)) for session in sessions for context in sent(session)], block
    )
