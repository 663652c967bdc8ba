"""Access logs of a gateway in front of the servers: JSON lines
(Envoy, nginx, Traefik, Kong, Caddy), or the common log format.

Fields are found by the names that gateways use: a time, a duration, bytes or tokens of the
request and the answer, the status, the path. Common log lines need request_length=BYTES, and may
have request_time=SECONDS, after the usual fields. If tokens are not logged, they are estimated:
prompt_bytes bytes a token for requests, output_bytes for answers (220 for vLLM's streamed
chunks, 4 for whole answers). session=FIELD names the field that identifies conversations; a
later request of one is assumed to contain the one before if it is long enough. Contents have no
identity; system=N says that the first N tokens of every prompt are the same system prompt.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from agentload.importers.parts import (
    Head,
    Intake,
    JsonRecord,
    Placed,
    SizedCall,
    lines,
    parse_json,
    requests,
    seconds,
)
from agentload.plugins import Bytes, Count

FILES: Final = ("*.log", "*.jsonl", "*.json")

_TIME: Final = (
    "start_time",
    "time",
    "timestamp",
    "@timestamp",
    "ts",
    "StartUTC",
    "started_at",
    "time_local",
    "time_iso8601",
    "msec",
)
_MILLIS: Final = (
    "duration_ms",
    "duration",
    "upstream_service_time",
    "response_duration",
    "request_duration_ms",
)
_SECONDS: Final = ("request_time", "upstream_response_time", "duration_s", "elapsed")
_PROMPT: Final = (
    "prompt_tokens",
    "input_tokens",
    "llm_input_token",
    "gen_ai.usage.input_tokens",
    "request_tokens",
)
_OUTPUT: Final = (
    "completion_tokens",
    "output_tokens",
    "llm_output_token",
    "gen_ai.usage.output_tokens",
    "response_tokens",
)
_SENT: Final = (
    "bytes_received",
    "request_length",
    "request_bytes",
    "RequestContentSize",
    "request_size",
    "bytes_read",
)
_RECEIVED: Final = (
    "bytes_sent",
    "body_bytes_sent",
    "response_bytes",
    "DownstreamContentSize",
    "response_size",
    "size",
    "bytes",
)
_STATUS: Final = ("status", "response_code", "status_code", "DownstreamStatus")
_PATH: Final = (
    "path",
    "uri",
    "request_uri",
    "RequestPath",
    "url",
    "request",
    "x-envoy-origin-path",
)
_CHATS: Final = ("/chat/completions", "/completions", "/responses", "/messages", "/generate")
_NOTHING: Final = (None, "", "-")
_COMMON: Final = re.compile(
    r'^(?P<remote_addr>\S+) \S+ \S+ \[(?P<time_local>[^\]]+)\] "(?P<request>[^"]*)" '
    r"(?P<status>\d{3}) "
    r"(?P<body_bytes_sent>\d+|-)(?P<more>.*)$"
)
_MORE: Final = re.compile(r"\b([a-z_]+)=\"?([\d.]+)")
_LOCAL: Final = "%d/%b/%Y:%H:%M:%S %z"


def sniff(head: Head) -> float:
    """Look for a request's path and status."""
    first = head.text.lstrip().partition("\n")[0]
    if _COMMON.match(first):
        return 0.8
    has = [any(name in head.record for name in names) for names in (_TIME, _STATUS, _PATH)]
    if all(has) and not head.has("messages"):
        return 0.75
    return 0.0


@requests.reader(requests.sessions, workload="access_log", holds="unknown")
def sessions(
    intake: Intake,
    *,
    prompt_bytes: Bytes = 4.0,
    output_bytes: Bytes = 220.0,
    session: str = "",
    system: Count = 0,
) -> Iterator[SizedCall]:
    """Yield a session for each value of the field `session`, or for each request."""
    for place, fields in _fields(intake):
        path = str(_first(fields, _PATH) or "")
        status = _number(_first(fields, _STATUS))
        if not any(chat in path for chat in _CHATS):
            intake.notes.drop("not a chat request, by its path")
            continue
        if status is None or not 200 <= status < 300:
            intake.notes.drop("a failed request, by its status")
            continue
        at_s = _time(_first(fields, _TIME))
        prompt = _tokens(intake, fields, _PROMPT, _SENT, prompt_bytes)
        output = _tokens(intake, fields, _OUTPUT, _RECEIVED, output_bytes)
        if at_s is None:
            intake.notes.skip(place, "no time")
            continue
        if prompt is None:
            intake.notes.skip(place, "no tokens or bytes of the request")
            continue
        if output is None:
            intake.notes.skip(place, "no tokens or bytes of the answer")
            continue
        millis = _number(_first(fields, _MILLIS))
        seconds = _number(_first(fields, _SECONDS))
        yield SizedCall(
            session=requests.session_name(fields.get(session) if session else None, place),
            at_s=at_s,
            place=place,
            prompt=prompt,
            output=output,
            pieces=requests.leading(system, prompt),
            api_s=seconds if millis is None else millis / 1000,
        )


def _fields(intake: Intake) -> Placed[JsonRecord]:
    for path in intake.files:
        for place, line in lines(path, intake.notes):
            text = line.decode("utf-8", "replace").strip()
            if text.startswith("{"):
                found = parse_json(text)
                if isinstance(found, dict):
                    yield place, found
                elif line.endswith(b"\n"):
                    intake.notes.skip(place, "not JSON")
                else:
                    intake.notes.meet(place, "incomplete last line")
                continue
            common = _COMMON.match(text)
            if common is None:
                intake.notes.skip(place, "neither JSON nor the common log format")
            else:
                yield place, common.groupdict() | dict(_MORE.findall(common["more"]))


def _tokens(
    intake: Intake,
    fields: JsonRecord,
    counted: tuple[str, ...],
    sized: tuple[str, ...],
    per_token: float,
) -> int | None:
    tokens = _number(_first(fields, counted))
    if tokens is not None:
        return max(1, int(tokens))
    size = _number(_first(fields, sized))
    if size is None:
        return None
    intake.notes.estimate(
        f"tokens estimated at {per_token:g} bytes each for "
        f"{'prompts' if counted is _PROMPT else 'answers'}"
    )
    return max(1, round(size / per_token))


# a field is of any JSON type
def _first(fields: JsonRecord, names: tuple[str, ...]) -> Any:  # noqa: ANN401
    return next((found for found in map(fields.get, names) if found not in _NOTHING), None)


def _number(found: object) -> float | None:
    try:
        number = float(found) if isinstance(found, int | float | str) else None
    except ValueError:
        return None
    if number is not None and number >= 0:
        return number
    return None


def _time(found: object) -> float | None:
    at_s = seconds(found)
    if at_s is None and isinstance(found, str):
        try:
            # the format has a zone
            return datetime.strptime(found, _LOCAL).timestamp()  # noqa: DTZ007
        except ValueError:
            return None
    return at_s
