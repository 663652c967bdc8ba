"""A server's metrics that somebody names, read once: a file with a /metrics text, or the URL of one."""

from __future__ import annotations

from http.client import HTTPException
from pathlib import Path
from typing import Final
from urllib.request import urlopen

from agentload.errors import EndpointError, TraceError
from agentload.exposition.scrape import Scrape, parse
from agentload.telemetry.reach import shown

TIMEOUT_S: Final = 10.0
LONGEST: Final = 1 << 28
HINT: Final = "curl SERVER/metrics > FILE"


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
