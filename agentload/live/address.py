"""Where a server is: the parts of its base URL."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote, urlsplit

from agentload.endpoints.urls import without_credentials
from agentload.errors import EndpointError

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server, and the path that its API starts at."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""
    socket: str | None = None
    """Path of a Unix socket, in place of host and port."""
    user: str | None = None
    """`name:password` of the URL."""

    @property
    def authority(self) -> str:
        """Return what the Host header says."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@functools.cache
def address(url: str) -> Address:
    """Parse `http://host:port/v1`, `https://…` or `http+unix://%2Frun%2Fserver.sock/v1`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EndpointError(f"'{without_credentials(url)}' is no URL: {error}", hint="write it as http://HOST:PORT/v1") from error
    path = parts.path.rstrip("/")
    if parts.scheme == "http+unix" and parts.netloc:
        return Address(scheme="http", host="localhost", port=PORTS["http"], path=path, socket=unquote(parts.netloc))
    if parts.scheme not in PORTS or not parts.hostname:
        raise EndpointError(f"'{without_credentials(url)}' is not the URL of an HTTP server", hint="write it as http://HOST:PORT/v1")
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    user = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return Address(scheme=scheme, host=parts.hostname, port=port or PORTS[scheme], path=path, user=user)
