"""URLs of endpoints: which are good, and how texts are shown without the credentials that some hold."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote, urlsplit

from agentload.errors import EndpointError
from agentload.replay.fault import without

SCHEMES: Final = frozenset({"http", "https", "http+unix"})
_USER: Final = re.compile(r"(?<=://)[^/\s?#'\"]+@")
_QUERY: Final = re.compile(r"(://[^\s?#'\"]*)\?[^\s'\"]+")


def checked_url(url: object, where: str) -> str:
    """Return a URL without the slash at its end. Raises EndpointError unless its scheme is http, https or http+unix."""
    parts = urlsplit(str(url))
    if parts.scheme not in SCHEMES or not (parts.netloc or parts.path):
        raise EndpointError(f"{where}: '{without_credentials(str(url))}' is not an http(s) URL", hint="url: http://127.0.0.1:8000/v1")
    return str(url).rstrip("/")


def without_user(text: str) -> str:
    """Return a text, such as a command line, whose URLs show no name and password."""
    return _USER.sub("***@", text)


def without_credentials(text: str) -> str:
    """Return a text whose URLs show no name and password, and no query: some servers take their token there."""
    return _QUERY.sub(r"\1?***", without_user(text))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return a text without these secrets and without what URLs hold of them: servers echo what they were sent."""
    return without_credentials(without(text, secrets))


def socket_of(url: str) -> str | None:
    """Return the path of the Unix socket that a `http+unix://%2Frun%2Fserver.sock/v1` names; None for other URLs."""
    parts = urlsplit(url)
    return unquote(parts.netloc) if parts.scheme == "http+unix" else None
