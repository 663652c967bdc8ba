"""Turn the model into lines of a trace file; the bytes depend on the values alone, and what is absent is left out."""

from typing import Any, assert_never

import msgspec

from agentload.model import check as checks
from agentload.model.trace import Extra, Header, Recorded, Segment, Session, Turn, TurnRef
from agentload.tracefile import wire

_encode = msgspec.json.Encoder().encode


def header(said: Header) -> bytes:
    """Write the first line of a file."""
    line: dict[str, Any] = {"kind": wire.KIND, "version": wire.VERSION, "name": said.name, "seed": said.seed, "block": said.block}
    line["tokenizer"] = said.tokenizer
    if said.prefixes:
        line["prefixes"] = {name: [_segment(segment) for segment in segments] for name, segments in said.prefixes.items()}
    if said.source:
        line["source"] = _values(said.source)
    return _encode(line | _values(said.extra)) + b"\n"


def session(said: Session) -> bytes:
    """Write a session."""
    line: dict[str, Any] = {"session": said.session, "workload": said.workload}
    if said.start_s is not None:
        line["start_s"] = said.start_s
    if said.prefix is not None:
        line["prefix"] = said.prefix
    line["turns"] = [_turn(turn) for turn in said.turns]
    return _encode(line | _values(said.extra) if said.extra else line) + b"\n"


def _turn(said: Turn) -> dict[str, Any]:
    turn: dict[str, Any] = {}
    if said.wait is not None:
        turn["wait"] = said.wait
    if said.wait_s:
        turn["wait_s"] = said.wait_s
    if said.after:
        turn["after"] = [_ref(ref) for ref in said.after]
    if said.keep is not None:
        turn["keep"] = said.keep
    turn["add"] = [_segment(segment) for segment in said.add]
    turn["output"] = said.output
    if said.spawn:
        turn["spawn"] = said.spawn
    if said.check:
        turn["check"] = [_check(check) for check in said.check]
    if said.recorded is not None:
        turn["recorded"] = _present(said.recorded, "ttft_s", "api_s", "output", "cached", "start_s")
    turn |= _present(said, "thinking", "event", "model", "deadline_s", "context")
    return turn | _values(said.extra) if said.extra else turn


def _segment(said: Segment) -> list[Any]:
    segment: list[Any] = [said.role, said.tokens if said.size is None else said.size, said.key]
    if said.source is not None or said.plant is not None or said.text is not None or said.at is not None or said.extra:
        options = {} if said.source is None else {"from": _ref(said.source)}
        segment.append(options | _present(said, "plant", "at", "text") | _values(said.extra))
    return segment


def _check(said: checks.Check) -> dict[str, Any]:
    match said:
        case checks.Has(text=text):
            return {"has": text}
        case checks.Matches(pattern=pattern):
            return {"matches": pattern}
        case checks.Number(value=value, tolerance=tolerance):
            return {"number": value, "tolerance": tolerance} if tolerance else {"number": value}
        case checks.JsonSchema(schema=schema):
            return {"json": _raw(schema)}
        case checks.ToolCall(name=name, arguments=arguments):
            return {"tool": name} if arguments == "{}" else {"tool": name, "arguments": _raw(arguments)}
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
