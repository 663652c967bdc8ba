"""Who may ask, and what a browser may do with the answer.

Pages tell of servers and prompts' names, so they are for this machine alone. A browser on it also runs other people's pages, and their host
names may be made to point here (DNS rebinding): only a request for a name of ours is answered.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Final

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
METHODS: Final = frozenset({"GET", "HEAD"})
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def is_embedded(site: str | None, kind: str | None) -> bool:
    """Say whether another site's page asks for a part of itself, by what browsers say of a request (Sec-Fetch-Site, Sec-Fetch-Dest).

    It could not read the answer, but make us work for it; a link that a reader follows is welcome.
    """
    return site in {"cross-site", "same-site"} and kind != "document"


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens there."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str | None) -> str | None:
    """Return the host of a Host header without its port; None where it is none. A forwarded port may be any."""
    if not header or any(sign in header for sign in "/@\\ \t,"):
        return None
    if header.startswith("["):
        host, bracket, rest = header[1:].partition("]")
        return host.lower() if bracket and (rest == "" or _is_port(rest)) else None
    host, colon, port = header.partition(":")
    return host.rstrip(".").lower() if host and (not colon or _is_port(f":{port}")) else None


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()
