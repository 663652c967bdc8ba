"""Read spans of OpenTelemetry in the shapes that exporters write: OTLP's JSON, lists under a trace id, or one span a record."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentload.importers.parts import stamps

Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One span, its attributes as plain values."""

    trace: str
    id: str
    parent: str | None
    start_s: float
    end_s: float
    attributes: Attributes
    events: tuple[tuple[str, float | None], ...] = ()


def spans(record: dict[str, Any]) -> Iterator[Span | None]:
    """Yield a record's spans; None for one that has no name of its own or no time."""
    for resource in _list(record.get("resourceSpans", record.get("resource_spans"))):
        for scope in _list(resource.get("scopeSpans", resource.get("scope_spans", resource.get("instrumentationLibrarySpans")))):
            yield from (_span(span, None) for span in _list(scope.get("spans")))
    yield from (_span(span, record.get("trace_id")) for span in _list(record.get("spans")))
    if not {"resourceSpans", "resource_spans", "spans"} & record.keys():
        yield _span(record, None)


def _span(found: dict[str, Any], trace: object) -> Span | None:
    context = found.get("context")
    context = context if isinstance(context, dict) else {}
    own = _first(found, "spanId", "span_id") or _first(context, "span_id")
    trace = _first(found, "traceId", "trace_id") or _first(context, "trace_id") or trace
    start_s = stamps.seconds(_first(found, "startTimeUnixNano", "start_time_unix_nano", "start_time"))
    end_s = stamps.seconds(_first(found, "endTimeUnixNano", "end_time_unix_nano", "end_time"))
    if own is None or start_s is None or end_s is None:
        return None
    parent = _first(found, "parentSpanId", "parent_span_id", "parent_id")
    return Span(
        trace=str(trace),
        id=str(own),
        parent=str(parent) if parent else None,
        start_s=start_s,
        end_s=max(start_s, end_s),
        attributes=_attributes(found.get("attributes")),
        events=tuple(_event(event) for event in _list(found.get("events"))),
    )


def _event(event: dict[str, Any]) -> tuple[str, float | None]:
    return str(event.get("name")), stamps.seconds(_first(event, "timeUnixNano", "time_unix_nano", "timestamp"))


def _attributes(found: object) -> Attributes:
    if isinstance(found, dict):
        return found
    return {str(each.get("key")): _value(each.get("value")) for each in _list(found)}


def _value(found: object) -> Any:  # noqa: ANN401  # an attribute is of any JSON type
    match found:
        case {"stringValue": value} | {"doubleValue": value} | {"boolValue": value}:
            return value
        case {"intValue": value}:
            return int(value) if isinstance(value, str) and value.lstrip("-").isdigit() else value
        case {"arrayValue": {"values": list(values)}}:
            return [_value(value) for value in values]
        case {"kvlistValue": {"values": list(values)}}:
            return _attributes(values)
        case _:
            return found


def _first(found: Mapping[str, Any], *names: str) -> Any:  # noqa: ANN401  # as above
    return next((found[name] for name in names if found.get(name) is not None), None)


def _list(found: object) -> list[dict[str, Any]]:
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
