"""Get a server's metrics from a file or over HTTP."""

from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from agentload.errors import EndpointError

_TIMEOUT_S = 10.0
_LONGEST = 1 << 28


def fetched(source: str, into: Path) -> Path:
    """Return a file with the metrics: the one that is named, or what a URL answers, written to `into`."""
    if not source.startswith(("http://", "https://")):
        return Path(source)
    try:
        with urlopen(source, timeout=_TIMEOUT_S) as answer:  # noqa: S310  # only http and https come here
            into.write_bytes(answer.read(_LONGEST))
    except (URLError, OSError, ValueError) as error:
        raise EndpointError(f"{source}: {error}", hint="name the whole address: http://HOST:8000/metrics") from error
    return into
