"""How a server is spoken to outside of timed calls: its headers, TLS files, proxy, Unix socket.

Keys stay with the server that they are for: what it redirects elsewhere is not asked, and its answers are read up to a bound.
Metrics that a user names are read once: a file with a /metrics text, or the URL of one.
"""

import json
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Final
from urllib.parse import urljoin, urlsplit, urlunsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import aiohttp

from agentload.dispatch.framing import MOST_BYTES
from agentload.errors import EndpointError, TraceError
from agentload.exposition.scrape import Scrape, parse

TIMEOUT_S: Final = 10.0
HINT: Final = "curl SERVER/metrics > FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Say how to open sessions to one server."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    proxy: str | None = field(default=None, repr=False)
    socket: str | None = None
    """Path of a Unix socket, in place of the URL's host."""

    def session(self, timeout: aiohttp.ClientTimeout) -> aiohttp.ClientSession:
        """Open a session; URLs must go through `plain`. An event loop must be running."""
        connector: aiohttp.BaseConnector
        if self.socket is not None:
            connector = aiohttp.UnixConnector(path=self.socket)
        else:
            connector = aiohttp.TCPConnector(ssl=self.tls if self.tls is not None else True)
        watching = aiohttp.TraceConfig()
        watching.on_request_redirect.append(_stays)
        return aiohttp.ClientSession(timeout=timeout, headers=self.headers, connector=connector, proxy=self.proxy, trace_configs=[watching])


async def _stays(_: aiohttp.ClientSession, __: SimpleNamespace, redirect: aiohttp.TraceRequestRedirectParams) -> None:
    if not is_same_server(str(redirect.url), redirect.response.headers.get("Location", "")):
        redirect.response.close()
        raise aiohttp.ClientError("redirected to another server")


def is_same_server(url: str, location: str) -> bool:
    """Tell whether a redirect leads to the server that it comes from."""
    try:
        return urlsplit(urljoin(url, location))[:2] == urlsplit(url)[:2]
    except ValueError:  # no address at all
        return False


class Staying(HTTPRedirectHandler):
    """Follow no redirect that leaves the server, and none that would lose the request's body: they are errors with their status."""

    def redirect_request(  # noqa: PLR0917  # as urllib calls it
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        """Return the request to make next, if any."""
        is_followed = req.data is None and is_same_server(req.full_url, newurl)
        return super().redirect_request(req, fp, code, msg, headers, newurl) if is_followed else None


async def text_of(response: aiohttp.ClientResponse) -> str:
    """Return what a page says. Raises ValueError for more than any says, and for what is no text."""
    page = bytearray()
    async for piece in response.content.iter_any():
        page += piece
        if len(page) > MOST_BYTES:
            raise ValueError(f"more than {MOST_BYTES >> 20} MB")
    return page.decode()


def document_of(text: str) -> object:
    """Return what a text of JSON says; raises ValueError for one that cannot be read."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("lists in lists without end") from error


def plain(url: str) -> str:
    """Return a URL as HTTP libraries take it: that of a Unix socket names a host that nobody looks up."""
    parts = urlsplit(url)
    return urlunsplit(("http", "localhost", parts.path, parts.query, "")) if parts.scheme == "http+unix" else url


def shown(url: str) -> str:
    """Return a URL as people may see it: without name, password and query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def is_url(source: str) -> bool:
    """Tell an address from the path of a file."""
    return source.startswith(("http://", "https://"))


def called(source: str) -> str:
    """Return what people may see of a source: of a URL neither name and password nor query."""
    return shown(source) if is_url(source) else source


def scrape(source: str) -> Scrape:
    """Return what a file or a URL says."""
    return _parsed(source, _text(source))


def kept(source: str, into: Path) -> Path:
    """Return a file with metrics: the one that is named, or what a URL answers, written to *into*."""
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
    where = called(source)
    if "@" in source.partition("://")[2].partition("/")[0]:  # urllib takes it for a part of the host's name
        raise EndpointError(f"{where}: an address with a password", hint=HINT)
    try:
        with build_opener(Staying).open(source, timeout=TIMEOUT_S) as answer:
            return bytes(answer.read(MOST_BYTES)).decode(errors="replace")
    except (OSError, HTTPException, ValueError) as error:
        raise EndpointError(f"{where}: {error}", hint="name the whole address: http://HOST:8000/metrics") from error


def _parsed(source: str, text: str) -> Scrape:
    try:
        return parse(text)
    except ValueError as error:
        raise TraceError(f"{called(source)}: no metrics text", hint=HINT) from error
