"""Decide who may read the pages, and what a browser may do with them.

Pages show server addresses and prompt names, so they are for this machine only.
A browser on it also runs other sites, whose host names may be made to point
here (DNS rebinding): only requests for our own names are answered.
"""

import ipaddress
from collections.abc import Mapping
from typing import Final

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
METHODS: Final = frozenset({"GET", "HEAD"})
POLICY: Final = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src "
    "'self' data:; "
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
    """Say whether another site's page embeds ours, by Sec-Fetch-Site and Sec-Fetch-Dest.

    Such a page could not read the answer, but it could make us work; following a link is fine.
    """
    return site in {"cross-site", "same-site"} and kind != "document"


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach this host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(header: str | None) -> str | None:
    """Return the host of a Host header without its port; None if it is malformed.

    The port may be a forwarded one.
    """
    if not header or any(sign in header for sign in "/@\\ \t,"):
        return None
    if header.startswith("["):
        host, bracket, rest = header[1:].partition("]")
        if bracket and (rest == "" or _is_port(rest)):
            return host.lower()
        return None
    host, colon, port = header.partition(":")
    if host and (not colon or _is_port(f":{port}")):
        return host.rstrip(".").lower()
    return None


def _is_port(text: str) -> bool:
    return text[:1] == ":" and text[1:].isascii() and text[1:].isdigit()
