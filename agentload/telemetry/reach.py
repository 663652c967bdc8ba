"""Reach a server outside of timed calls: by its headers, TLS files, proxy or Unix socket.

Keys stay with the server that they are for: a redirect to another server is not
followed. Answers are read up to a bound. Metrics that a user names are read once:
a file with a /metrics text, or the URL of one.
"""

import asyncio
import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from agentload.dispatch.framing import MOST_BYTES
from agentload.errors import EndpointError, TraceError
from agentload.exposition.scrape import Scrape, parse
from agentload.exposition.text import OversizeError

if TYPE_CHECKING:
    import aiohttp

TIMEOUT_S: Final = 10.0
HINT: Final = "curl SERVER/metrics > FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Describe how to open sessions to one server."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    socket: str | None = None
    """Path of a Unix socket, in place of the URL's host."""

    def session(self, timeout: "aiohttp.ClientTimeout") -> "aiohttp.ClientSession":
        """Open a session; URLs must go through `plain`. An event loop must be running."""
        import aiohttp  # late: most verbs, and virtual time, reach no server

        connector: aiohttp.BaseConnector
        if self.socket is not None:
            connector = aiohttp.UnixConnector(path=self.socket)
        else:
            connector = aiohttp.TCPConnector(ssl=self.tls if self.tls is not None else True)
        watching = aiohttp.TraceConfig()
        watching.on_request_redirect.append(_stays)
        return aiohttp.ClientSession(
            timeout=timeout,
            headers=self.headers,
            connector=connector,
            proxy=self.proxy,
            trace_configs=[watching],
        )


async def _stays(
    _: "aiohttp.ClientSession", __: SimpleNamespace, redirect: "aiohttp.TraceRequestRedirectParams"
) -> None:
    import aiohttp  # late: as above

    if not is_same_server(str(redirect.url), redirect.response.headers.get("Location", "")):
        redirect.response.close()
        raise aiohttp.ClientError("redirected to another server")


def is_same_server(url: str, location: str) -> bool:
    """Return whether a redirect leads back to the server that sent it."""
    try:
        return urlsplit(urljoin(url, location))[:2] == urlsplit(url)[:2]
    except ValueError:  # no address at all
        return False


async def text_of(response: "aiohttp.ClientResponse") -> str:
    """Return the text of a response.

    Raises OversizeError beyond MOST_BYTES, ValueError for bytes that are no text.
    """
    return (await _bytes_of(response)).decode()


async def _bytes_of(response: "aiohttp.ClientResponse") -> bytearray:
    page = bytearray()
    async for piece in response.content.iter_any():
        page += piece
        if len(page) > MOST_BYTES:
            raise OversizeError(f"more than {MOST_BYTES >> 20} MB")
    return page


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """Status and body of a server's answer."""

    status: int
    body: bytearray = field(repr=False)

    @property
    def is_good(self) -> bool:
        """Whether the status says success (below 300)."""
        return self.status < HTTPStatus.MULTIPLE_CHOICES


def page(url: str, by: Reach, *, within_s: float, given: object = None) -> HttpAnswer:
    """Fetch a page, or post *given* as JSON and return the answer, within *within_s* in all.

    No event loop may be running in this thread. Raises aiohttp.ClientError, OSError or ValueError.
    """
    import aiohttp  # late: as above

    async def asked() -> HttpAnswer:
        async with by.session(aiohttp.ClientTimeout(total=within_s)) as session:
            # A redirect would lose the document, or send it to another server.
            if given is None:
                asking = session.get(plain(url))
            else:
                asking = session.post(plain(url), json=given, allow_redirects=False)
            async with asking as response:
                return HttpAnswer(status=response.status, body=await _bytes_of(response))

    return asyncio.run(asked())


def environment(url: str) -> Reach:
    """Return how to reach a URL that a user names: by the environment's proxy, if it has one."""
    parts = urlsplit(url)
    return Reach(proxy=None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme))


def document_of(text: str) -> object:
    """Parse JSON; raise ValueError for text that cannot be read, however deep its lists."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists in lists without end") from error


def plain(url: str) -> str:
    """Return a URL as HTTP libraries take it; a Unix socket gets an unused `localhost`."""
    parts = urlsplit(url)
    if parts.scheme == "http+unix":
        return urlunsplit(("http", "localhost", parts.path, parts.query, ""))
    return url


def public_url(url: str) -> str:
    """Return a URL as people may see it: without name, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_url(source: str) -> bool:
    """Return whether a source is a URL rather than the path of a file."""
    return source.startswith(("http://", "https://"))


def public_name(source: str) -> str:
    """Return a source as people may see it: a URL without name, password and query."""
    return public_url(source) if is_url(source) else source


def scrape(source: str) -> Scrape:
    """Read a file's or a URL's metrics; raise TraceError or EndpointError if there are none."""
    return _parsed(source, _text(source))


def metrics_file(source: str, into: Path) -> Path:
    """Return a file with metrics: the named file, or *into* with the answer of a URL."""
    text = _text(source)
    _parsed(source, text)
    if not is_url(source):
        return Path(source)
    into.write_text(text, encoding="utf-8")
    return into


def _text(source: str) -> str:
    if not is_url(source):
        try:
            return Path(source).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise TraceError(f"{source}: {error.strerror}", hint=HINT) from error
    import aiohttp  # late: as above

    where = public_name(source)
    _, _, behind = source.partition("://")
    host, _, _ = behind.partition("/")
    if "@" in host:  # urllib takes a password for a part of the host's name
        raise EndpointError(f"{where}: an address with a password", hint=HINT)
    try:
        answer = page(source, environment(source), within_s=TIMEOUT_S)
        if not answer.is_good:
            raise ValueError(f"HTTP status {answer.status}")
    except (aiohttp.ClientError, OSError, ValueError) as error:
        # An InvalidURL would show the whole URL with its query.
        said = "no address" if isinstance(error, aiohttp.InvalidURL) else str(error)
        why = said or f"no whole answer within {TIMEOUT_S:g} s"
        raise EndpointError(
            f"{where}: {why}", hint="name the whole address: http://HOST:8000/metrics"
        ) from error
    return answer.body.decode(errors="replace")


def _parsed(source: str, text: str) -> Scrape:
    try:
        return parse(text)
    except OversizeError as error:
        raise TraceError(f"{public_name(source)}: {error}", hint=HINT) from error
    except ValueError as error:
        raise TraceError(f"{public_name(source)}: no metrics text", hint=HINT) from error
