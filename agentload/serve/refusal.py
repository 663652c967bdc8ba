"""Refuse as vLLM does: status, headers, error body, and the same body inside a stream.

Texts follow answers recorded from vLLM 0.32.0 and its sources
(`entrypoints/serve/exception_handling`, `renderers/params.py`).
"""

import json
from collections.abc import Mapping, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web

_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on "
    "a different instance."
)
_DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
JSON: Final = "application/json"
EVENTS: Final = "text/event-stream; charset=utf-8"


class RefusedError(Exception):
    """An error answer, raised where it is found and sent as a body or inside a stream."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self._error = {"error": {"message": message, "type": type, "param": param, "code": status}}

    def body(self) -> bytes:
        """Return the body of an error answer."""
        return json.dumps(self._error, separators=(",", ":"), ensure_ascii=False).encode()

    def event(self) -> bytes:
        """Return the event that carries this error inside a stream that started with 200."""
        return b"data: " + json.dumps(self._error).encode() + b"\n\n"


def bad_parameter(message: str, *, param: str, value: object) -> RefusedError:
    """Refuse a value that was readable but cannot be served."""
    text = f"{message} (parameter={param}, value={value})"
    return RefusedError(400, text, type="BadRequestError", param=param)


def unreadable(faults: Sequence[Mapping[str, Any]]) -> RefusedError:
    """Refuse a malformed body, with the faults that its validator found, in vLLM's format."""
    details = [_detail(fault) for fault in faults]
    errors = "error" if len(details) == 1 else "errors"
    lines = [f"{len(details)} validation {errors}:", *(f"  {detail}" for detail in details)]
    cause = faults[0].get("ctx", {}).get("error")
    param = getattr(cause, "param", details[0]["loc"])
    return RefusedError(400, "\n".join(lines), type="Bad Request", param=param)


def _detail(fault: Mapping[str, Any]) -> dict[str, Any]:
    place = ".".join(map(str, ("body", *fault["loc"])))
    detail = {**fault, "loc": place, "input": _summary(fault["input"])}
    if "ctx" in fault:
        detail["ctx"] = {name: str(value) for name, value in fault["ctx"].items()}
    return detail


def empty_prompt() -> RefusedError:
    """Refuse a prompt without a token."""
    return RefusedError(400, "The decoder prompt cannot be empty", type="BadRequestError")


def unsupported_media() -> RefusedError:
    """Refuse a body that does not say it is JSON."""
    text = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return RefusedError(400, text, type="Bad Request")


def unknown_model(model: str, *, served: tuple[str, ...]) -> RefusedError:
    """Refuse a model that is not served here."""
    text = f"The model `{model}` does not exist. Valid aliases: {', '.join(served)}."
    return RefusedError(404, text, type="NotFoundError", param="model")


def too_long(*, prompt_tokens: int, output_tokens: int, max_model_len: int) -> RefusedError | None:
    """Refuse a prompt that leaves no room for the output asked for; None when it fits.

    vLLM stops counting one token past the limit, so the text says "at least" and names that count.
    """
    room = max_model_len - output_tokens
    if prompt_tokens <= room:
        return None
    seen = room + 1
    if output_tokens == 0:
        text = (
            f"This model's maximum context length is {max_model_len} tokens. However, your "
            f"prompt contains at least {seen} input tokens, "
            "which exceeds this limit even without any output tokens. Please reduce the "
            "length of the input prompt."
        )
    else:
        text = (
            f"This model's maximum context length is {max_model_len} tokens. However, you "
            f"requested {output_tokens} output tokens and your "
            f"prompt contains at least {seen} input tokens, for a total of at least "
            f"{max_model_len + 1} tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens."
        )
    return bad_parameter(text, param="input_tokens", value=seen)


def busy(*, status: int = 503, retry_after_s: float | None = None) -> RefusedError:
    """Refuse because the queue is full; 429 is the status that gateways before a server use."""
    return RefusedError(status, _BUSY, type=HTTPStatus(status).phrase, retry_after_s=retry_after_s)


def internal(message: str = _DEAD) -> RefusedError:
    """Report that the engine failed while the request was in flight.

    Without *message*: that the engine died.
    """
    return RefusedError(500, message, type="InternalServerError")


def plain(status: int) -> RefusedError:
    """Refuse with nothing but the status: no such route, wrong method."""
    phrase = HTTPStatus(status).phrase
    return RefusedError(status, phrase, type=phrase)


def _summary(value: object) -> object:
    if isinstance(value, dict | list | tuple):
        return f"<{type(value).__name__} of {len(value)} items>"
    if isinstance(value, str):
        return value
    return str(value)


def refusal_response(request: web.Request, no: RefusedError) -> web.Response:
    """Return the error answer of a refusal."""
    more = {} if no.retry_after_s is None else {"retry-after": f"{no.retry_after_s:g}"}
    return web.Response(status=no.status, body=no.body(), headers=headers(request, JSON, **more))


def headers(request: web.Request, content_type: str, **more: str) -> dict[str, str]:
    """Return the headers of an answer, with the request's id echoed."""
    out = {
        "date": formatdate(usegmt=True),
        "server": "uvicorn",
        "content-type": content_type,
        "vary": "Origin",
        **more,
    }
    if (request_id := request.headers.get("X-Request-Id")) is not None:
        out["x-request-id"] = request_id
    return out
