"""How a server is spoken to outside of timed calls: its headers, TLS files, proxy, Unix socket."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit, urlunsplit

import aiohttp


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
