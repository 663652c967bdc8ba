"""Describe one arm as the wire sees it: its address, and how requests to it are written."""

import base64
import functools
import re
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from agentload import __version__
from agentload.dispatch.fault import without_secrets
from agentload.endpoints.endpoint import without_credentials
from agentload.errors import EndpointError
from agentload.model.record import Record

PORTS = {"http": 80, "https": 443}
Policy: TypeAlias = Literal["session", "pool", "call"]
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
SECRET_CHARS = 6  # a shorter header value is no secret, and would be found in any text
OURS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "accept-encoding",
        "connection",
        "x-request-id",
        "expect",
    }
)


class Address(Record):
    """The address of a server, and the path at which its API starts."""

    scheme: Literal["http", "https"]
    host: str
    port: int
    path: str = ""
    socket: str | None = None
    """Path of a Unix socket, used instead of host and port."""
    user: str | None = None
    """`name:password` from the URL."""

    @property
    def authority(self) -> str:
        """Value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        if self.port == PORTS[self.scheme]:
            return host
        return f"{host}:{self.port}"


@functools.cache
def address(url: str) -> Address:
    """Parse `http://host:port/v1`, `https://…` or `http+unix://%2Frun%2Fserver.sock/v1`."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise EndpointError(
            f"'{without_credentials(url)}' is no URL: {error}",
            hint="write it as http://HOST:PORT/v1",
        ) from error
    path = parts.path.rstrip("/")
    if parts.scheme == "http+unix" and parts.netloc:
        return Address(
            scheme="http",
            host="localhost",
            port=PORTS["http"],
            path=path,
            socket=unquote(parts.netloc),
        )
    if parts.scheme not in PORTS or not parts.hostname:
        raise EndpointError(
            f"'{without_credentials(url)}' is not the URL of an HTTP server",
            hint="write it as http://HOST:PORT/v1",
        )
    scheme: Literal["http", "https"] = "https" if parts.scheme == "https" else "http"
    user = (
        None
        if parts.username is None
        else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    )
    return Address(
        scheme=scheme, host=parts.hostname, port=port or PORTS[scheme], path=path, user=user
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Describe how one arm is reached.

    Header values may hold `{session}`, for routers that keep a session on one replica.
    """

    arm: str
    url: str = field(repr=False)
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    replica_headers: tuple[str, ...] = ()
    """Response headers that tell which replica answered; kept with the peer's address."""
    connections: Policy = "session"
    """One connection per session, a pool that any call takes from, or a new one per call."""
    idle_s: float = 4.0
    """Longest idle time before reuse; uvicorn, hence vLLM, closes a connection after 5 s."""
    tls: ssl.SSLContext | None = None
    """TLS trust (`live.tls.context`), such as a client certificate; None: the system's."""
    proxy: str | None = field(default=None, repr=False)
    expect_bytes: int | None = None
    """Smallest body, in bytes, that is announced with `Expect: 100-continue`; None: never."""
    ends_with_mark: bool | None = None
    """Whether the server ends its streams with `[DONE]`; None: learn it from the answers."""

    def __post_init__(self) -> None:
        for name, value in self.headers.items():
            if name.lower() in OURS:
                raise EndpointError(
                    f"arm '{self.arm}': the header '{name}' is ours to set", hint="leave it out"
                )
            if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
                raise EndpointError(
                    f"arm '{self.arm}': the header '{name}' has bytes that no header may have",
                    hint="mend its value",
                )
        if self.api_key is not None and not _VALUE.fullmatch(self.api_key):
            raise EndpointError(
                f"arm '{self.arm}': the API key has bytes that no header may have",
                hint="remove its line break",
            )

    @property
    def address(self) -> Address:
        """The parsed URL."""
        return address(self.url)

    def secrets(self) -> tuple[str, ...]:
        """Return what must not be written down: keys, header values, passwords in URLs."""
        users = [address(url).user for url in (self.url, self.proxy) if url is not None]
        passwords = [user.partition(":")[2] for user in users if user is not None]
        basics = [basic(user).partition(" ")[2] for user in users if user is not None]
        found = (self.api_key, *self.headers.values(), *passwords, *basics)
        return tuple(each for each in found if each and len(each) >= SECRET_CHARS)

    def masked(self, text: str, *, also: Iterable[str] = ()) -> str:
        """Return a text without this target's secrets, as servers echo headers in errors."""
        return without_secrets(text, (*self.secrets(), *also))


def head(
    target: Target,
    path: str,
    *,
    request_id: str,
    session: str,
    length: int,
    cookies: str,
    expects: bool,
) -> bytes:
    """Return the head of a POST; *path* is absolute."""
    there = target.address
    # A plain request to a proxy names the whole URL (RFC
    # 9112, section 3.2.2); TLS goes through a tunnel instead.
    through_proxy = target.proxy is not None and there.scheme == "http"
    lines = [
        f"POST {f'http://{there.authority}' if through_proxy else ''}{path} HTTP/1.1",
        f"Host: {there.authority}",
        f"User-Agent: agentload/{__version__}",
        "Content-Type: application/json",
        "Accept: text/event-stream, application/json",
        "Accept-Encoding: identity",
        f"Content-Length: {length}",
        f"X-Request-Id: {request_id}",
    ]
    given = {name.lower() for name in target.headers}
    if target.api_key is not None and "authorization" not in given:
        lines.append(f"Authorization: Bearer {target.api_key}")
    elif there.user is not None and "authorization" not in given:
        lines.append(f"Authorization: {basic(there.user)}")
    if (
        through_proxy
        and target.proxy is not None
        and (user := address(target.proxy).user) is not None
    ):
        lines.append(f"Proxy-Authorization: {basic(user)}")
    lines += [
        f"{name}: {value.replace('{session}', _token(session))}"
        for name, value in target.headers.items()
    ]
    if cookies:
        lines.append(f"Cookie: {cookies}")
    if target.connections == "call":
        lines.append("Connection: close")
    if expects:
        lines.append("Expect: 100-continue")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("utf-8")


def basic(user: str) -> str:
    """Return the Basic credentials of a `name:password` (RFC 7617)."""
    return "Basic " + base64.b64encode(user.encode()).decode()


def _token(session: str) -> str:
    # Session names come from trace files, and a header takes visible ASCII only.
    return "".join(char if char.isascii() and char.isprintable() else "_" for char in session)
