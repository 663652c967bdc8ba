"""Decode lines of a trace file into the model and encode them; unreadable lines raise `LineError`.

Unknown fields are kept as JSON text, so a file of a newer minor version survives
reading and writing. Equal values give equal bytes; absent values are left out.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar, assert_never

import msgspec

from agentload import documents
from agentload.model import check as checks
from agentload.model.trace import (
    Extra,
    Header,
    Recorded,
    Segment,
    Session,
    Turn,
    TurnRef,
    image_tokens,
)
from agentload.tracefile import wire

T = TypeVar("T")
_FORMAT: Final = "docs/trace.schema.json describes every field"
_IMPORT: Final = "if it is another program's log: agentload trace import FORMAT FILE"
MOST_TOKENS: Final = 1 << 53  # larger counts are not exact as floats
_HEADER: Final = frozenset(wire.JsonHeader.__struct_fields__)
_SESSION: Final = frozenset(wire.JsonSession.__struct_fields__)
_TURN: Final = frozenset(wire.JsonTurn.__struct_fields__)
_OPTIONS: Final = frozenset(wire.JsonOptions.__struct_encode_fields__)
_encode = msgspec.json.Encoder().encode


class LineError(ValueError):
    """What is wrong with a line and how to fix it; the reader adds the place."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def header(line: bytes) -> Header:
    """Decode the first line of a file."""
    found = _json(line, hint=_IMPORT)
    if found.get("kind") != wire.KIND:
        raise LineError(
            f'no trace header: the first line must be {{"kind":"{wire.KIND}",…}}', hint=_IMPORT
        )
    version = found.get("version")
    if isinstance(version, int) and version > wire.VERSION:
        raise LineError(
            f"trace version {version} is newer than this program reads ({wire.VERSION})",
            hint="pip install --upgrade agentload",
        )
    read = _convert(found, wire.JsonHeader)
    prefixes = found.get("prefixes", {})
    return Header(
        name=read.name,
        seed=read.seed,
        block=read.block,
        tokenizer=read.tokenizer,
        prefixes={
            name: _segments(segments, prefixes[name]) for name, segments in read.prefixes.items()
        },
        source=_extra(read.source, frozenset()),
        extra=_extra(found, _HEADER),
    )


def session(line: bytes, *, number: int | None = None) -> Session:
    """Decode a session's line: any line but the first, which has this number in its file."""
    found = _json(line)
    read = _convert(found, wire.JsonSession)
    return Session(
        session=read.session,
        workload=read.workload,
        turns=tuple(_turn(turn, raw) for turn, raw in zip(read.turns, found["turns"], strict=True)),
        start_s=read.start_s,
        prefix=read.prefix,
        extra=_extra(found, _SESSION),
        line=number,
    )


def _json(line: bytes, *, hint: str | None = None) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)
    except documents.UNREADABLE as error:
        raise LineError(f"not JSON: {error}", hint=hint) from error
    if not isinstance(found, dict):
        raise LineError("a line must be a JSON object", hint=_IMPORT)
    return found


def _convert(found: Mapping[str, Any], kind: type[T]) -> T:
    try:
        return msgspec.convert(found, kind)
    except msgspec.ValidationError as error:
        # msgspec says "Expected `int`, got `str` - at
        # `$.turns[0].output`": the place first reads better.
        what, _, place = str(error).partition(" - at ")
        where = place.strip("`").removeprefix("$").removeprefix(".")
        raise LineError(f"{where}: {what}" if where else what, hint=_FORMAT) from error


def _turn(read: wire.JsonTurn, raw: Mapping[str, Any]) -> Turn:
    parts: dict[str, Any] = {
        "add": _segments(read.add, raw["add"]),
        "after": tuple(TurnRef(session=session, turn=turn) for session, turn in read.after),
        "check": tuple(map(check, read.check)),
        "asks": tuple((name, _text(value)) for name, value in read.asks.items()),
        "recorded": None
        if read.recorded is None
        else Recorded(**msgspec.structs.asdict(read.recorded)),
        "extra": _extra(raw, _TURN),
    }
    return Turn(**{**msgspec.structs.asdict(read), **parts})


def _segments(read: tuple[wire.JsonSegment, ...], raw: list[Any]) -> tuple[Segment, ...]:
    return tuple(map(_segment, read, raw))


def _segment(read: wire.JsonSegment, raw: list[Any]) -> Segment:
    size = None
    tokens = read.tokens
    if isinstance(tokens, tuple):
        size = tokens
        tokens = image_tokens(tokens)
    if (size is None) == (read.role == "image"):
        raise LineError(
            f"segment {read.key!r}: [width, height] replaces tokens for images only", hint=_FORMAT
        )
    if not 0 <= tokens <= MOST_TOKENS or (size is not None and min(size) < 1):
        raise LineError(
            f"segment {read.key!r}: tokens must be 0 to 2^53 and an image's sides >= 1, got "
            f"{read.tokens}",
            hint=_FORMAT,
        )
    options = read.options
    if options is None:
        return Segment(role=read.role, tokens=tokens, key=read.key, pixels=size)
    source = options.source
    return Segment(
        role=read.role,
        tokens=tokens,
        key=read.key,
        pixels=size,
        source=None if source is None else TurnRef(session=source[0], turn=source[1]),
        plant=options.plant,
        at=options.at,
        text=options.text,
        extra=_extra(raw[3], _OPTIONS),
    )


def check(read: wire.JsonCheck) -> checks.Check:
    """Return a check of the model; raise `LineError` unless it has exactly one kind."""
    kinds = [
        kind
        for kind in ("has", "matches", "number", "json", "tool", "equals", "length")
        if getattr(read, kind) is not None
    ]
    if len(kinds) != 1:
        raise LineError(
            f"a check has exactly one kind, this one has {', '.join(kinds) or 'none'}", hint=_FORMAT
        )
    match read:
        case wire.JsonCheck(has=str(text)):
            return checks.Has(text=text)
        case wire.JsonCheck(matches=str(pattern)):
            return checks.Matches(pattern=pattern)
        case wire.JsonCheck(number=float(value)):
            return checks.Number(value=value, tolerance=read.tolerance or 0.0)
        case wire.JsonCheck(json=dict(schema)):
            return checks.JsonSchema(schema=_text(schema))
        case wire.JsonCheck(tool=str(name)):
            return checks.ToolCall(name=name, arguments=_text(read.arguments or {}))
        case wire.JsonCheck(equals=str(text)):
            return checks.Equals(text=text)
        case wire.JsonCheck(length=(at_least, at_most)):
            return checks.Length(at_least=at_least, at_most=at_most)
        case _:
            raise AssertionError(read)


def _extra(raw: Mapping[str, Any], known: frozenset[str]) -> Extra:
    if raw.keys() <= known:
        return ()
    return tuple((name, _text(value)) for name, value in raw.items() if name not in known)


def _text(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except RecursionError as error:  # it was just shallow enough to be read
        raise LineError(f"not JSON: {error}") from error


def header_line(said: Header) -> bytes:
    """Encode the first line of a file."""
    line: dict[str, Any] = {
        "kind": wire.KIND,
        "version": wire.VERSION,
        "name": said.name,
        "seed": said.seed,
        "block": said.block,
    }
    line["tokenizer"] = said.tokenizer
    if said.prefixes:
        line["prefixes"] = {
            name: [_segment_line(segment) for segment in segments]
            for name, segments in said.prefixes.items()
        }
    if said.source:
        line["source"] = _values(said.source)
    return _encode(line | _values(said.extra)) + b"\n"


def session_line(said: Session) -> bytes:
    """Encode a session."""
    line: dict[str, Any] = {"session": said.session, "workload": said.workload}
    if said.start_s is not None:
        line["start_s"] = said.start_s
    if said.prefix is not None:
        line["prefix"] = said.prefix
    line["turns"] = [_turn_line(turn) for turn in said.turns]
    return _encode(line | _values(said.extra) if said.extra else line) + b"\n"


def _turn_line(said: Turn) -> dict[str, Any]:
    turn: dict[str, Any] = {}
    if said.wait is not None:
        turn["wait"] = said.wait
    if said.wait_s:
        turn["wait_s"] = said.wait_s
    if said.after:
        turn["after"] = [_ref(ref) for ref in said.after]
    if said.keep is not None:
        turn["keep"] = said.keep
    turn["add"] = [_segment_line(segment) for segment in said.add]
    turn["output"] = said.output
    if said.spawn:
        turn["spawn"] = said.spawn
    if said.check:
        turn["check"] = [_check_line(check) for check in said.check]
    if said.asks:
        turn["asks"] = _values(said.asks)
    if said.recorded is not None:
        turn["recorded"] = _present(said.recorded, "ttft_s", "api_s", "output", "cached", "start_s")
    turn |= _present(said, "thinking", "event", "model", "deadline_s", "context")
    if said.extra:
        return turn | _values(said.extra)
    return turn


def _segment_line(said: Segment) -> list[Any]:
    segment: list[Any] = [said.role, said.tokens if said.pixels is None else said.pixels, said.key]
    if (
        said.source is not None
        or said.plant is not None
        or said.text is not None
        or said.at is not None
        or said.extra
    ):
        options = {} if said.source is None else {"from": _ref(said.source)}
        segment.append(options | _present(said, "plant", "at", "text") | _values(said.extra))
    return segment


def _check_line(said: checks.Check) -> dict[str, Any]:
    match said:
        case checks.Has(text=text):
            return {"has": text}
        case checks.Matches(pattern=pattern):
            return {"matches": pattern}
        case checks.Number(value=value, tolerance=tolerance):
            if tolerance:
                return {"number": value, "tolerance": tolerance}
            return {"number": value}
        case checks.JsonSchema(schema=schema):
            return {"json": _raw(schema)}
        case checks.ToolCall(name=name, arguments=arguments):
            if arguments == "{}":
                return {"tool": name}
            return {"tool": name, "arguments": _raw(arguments)}
        case checks.Equals(text=text):
            return {"equals": text}
        case checks.Length(at_least=at_least, at_most=at_most):
            return {"length": (at_least, at_most)}
        case _:
            assert_never(said)


def _ref(said: TurnRef) -> tuple[str, int]:
    return said.session, said.turn


def _present(said: Turn | Segment | Recorded, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(said, name)) is not None}


def _values(extra: Extra) -> dict[str, Any]:
    return {name: _raw(text) for name, text in extra}


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())
