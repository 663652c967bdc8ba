"""Write the headers of an answer, named and ordered as vLLM's web server does."""

from __future__ import annotations

from email.utils import formatdate
from typing import Final

from aiohttp import web

from agentload.serve.refusal import Refusal

JSON: Final = "application/json"
EVENTS: Final = "text/event-stream; charset=utf-8"


def refused(request: web.Request, no: Refusal) -> web.Response:
    """Return the error answer of a refusal."""
    more = {} if no.retry_after_s is None else {"retry-after": f"{no.retry_after_s:g}"}
    return web.Response(status=no.status, body=no.body(), headers=headers(request, JSON, **more))


def headers(request: web.Request, content_type: str, **more: str) -> dict[str, str]:
    """Return the headers of an answer; a request's id is echoed."""
    out = {"date": formatdate(usegmt=True), "server": "uvicorn", "content-type": content_type, "vary": "Origin", **more}
    if (request_id := request.headers.get("X-Request-Id")) is not None:
        out["x-request-id"] = request_id
    return out
