"""How a server is spoken to outside of timed calls: its headers, TLS files, proxy, Unix socket.

Metrics that a user names are read once: a file with a /metrics text, or the URL of one.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit, urlunsplit
from urllib.request import urlopen

import aiohttp

from agentload.errors import EndpointError, TraceError
from agentload.exposition.scrape import Scrape, parse

TIMEOUT_S: Final = 10.0
LONGEST: Final = 1 << 28
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
        return aiohttp.ClientSession(timeout=timeout, headers=self.headers, connector=connector, proxy=self.proxy)


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
        with urlopen(source, timeout=TIMEOUT_S) as answer:  # noqa: S310  # only http and https come here
            return bytes(answer.read(LONGEST)).decode(errors="replace")
    except (OSError, HTTPException, ValueError) as error:
        raise EndpointError(f"{where}: {error}", hint="name the whole address: http://HOST:8000/metrics") from error


def _parsed(source: str, text: str) -> Scrape:
    try:
        return parse(text)
    except ValueError as error:
        raise TraceError(f"{called(source)}: no metrics text", hint=HINT) from error
