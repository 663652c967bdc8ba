"""Ask a server for the pages that say what it is, and say what is wrong where one is missing."""

import asyncio
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import aiohttp

from agentload.dispatch.gateway import gateway
from agentload.endpoints.endpoint import Endpoint, without_credentials
from agentload.endpoints.reach import exporter
from agentload.errors import EndpointError
from agentload.exposition.scrape import Scrape, parse
from agentload.exposition.text import OversizeError
from agentload.telemetry.gpu import of_page
from agentload.telemetry.reach import document_of, plain, text_of

EXPORTER_TIMEOUT: Final = aiohttp.ClientTimeout(total=5)
TIMEOUT = aiohttp.ClientTimeout(total=10)
HOPE = aiohttp.ClientTimeout(
    total=60
)  # a server asks its drivers before it answers /server_info for the first time
UNLISTED = frozenset(
    {405, 500, 501}
    # statuses of servers that list no models and serve calls all the
    # same; others mean a wrong URL, or a server that is down
)
RENEW: Final = "renew it on the server; or is the clock of this machine wrong?"
NAME: Final = "call the server by a name of its certificate"
CERTIFICATE: Final[Mapping[int | None, str]] = {
    9: RENEW,
    10: RENEW,
    62: NAME,
    64: NAME,
}  # by X509_STORE_CTX_get_error(3)
IS_UP: Final = "is the server up? try: "
BASE_URL = "is this the base URL of an OpenAI-compatible API, with its /v1?"


async def models(
    session: aiohttp.ClientSession, endpoint: Endpoint, missing: list[str]
) -> tuple[list[dict[str, object]], str | None]:
    """Return the server's list of models, and the gateway that its answer shows."""
    url = f"{endpoint.url}/models"
    shown = f"{endpoint.shown_url}/models"
    try:
        async with session.get(plain(url)) as response:
            between = gateway((name.lower(), value) for name, value in response.headers.items())
            if response.status in UNLISTED and endpoint.model is not None:
                missing.append(f"{shown}: {response.status}")
                return [], between
            if response.status != HTTPStatus.OK:
                raise _refusal(endpoint, shown, response.status)
            listing = document_of(await text_of(response))
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        what = shown if isinstance(error, aiohttp.ClientSSLError) else f"cannot reach {shown}"
        raise EndpointError(
            f"{endpoint.name}: {what}: {_reason(error)}", hint=_remedy(error, shown)
        ) from error
    except ValueError as error:
        raise EndpointError(
            f"{endpoint.name}: {shown} does not answer JSON",
            hint="is this a web page, a proxy's login, or another port of the server?",
        ) from error
    entries = listing.get("data") if isinstance(listing, dict) else None
    if not isinstance(entries, list) or not all(map(_is_model, entries)):
        raise EndpointError(
            f"{endpoint.name}: {shown} lists no models",
            hint="is this the base URL of an OpenAI-compatible API?",
        )
    return entries, between


def _is_model(entry: object) -> bool:
    return isinstance(entry, dict) and "id" in entry


def _refusal(endpoint: Endpoint, shown: str, status: int) -> EndpointError:
    """Return the error of a server that lists no models, with its remedy."""
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        given = endpoint.key_env or ("key_command" if endpoint.key_command else None)
        hint = "--api-key-env NAME_OF_THE_VARIABLE"
        if given is not None:
            hint = f"is the key that {given} holds the one of this server?"
        return EndpointError(f"{endpoint.name}: {shown} refuses the key ({status})", hint=hint)
    hint = BASE_URL
    if status in UNLISTED:
        hint = "does it answer questions all the same? --model MODEL"
    return EndpointError(f"{endpoint.name}: {shown} answers {status}", hint=hint)


def _remedy(error: BaseException, shown: str) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        code = getattr(error.certificate_error, "verify_code", None)
        return CERTIFICATE.get(
            code, "give the server's own authority with `ca_file` in the arms file"
        )
    if isinstance(error, aiohttp.ClientSSLError):
        return f"does this port speak TLS? try {shown.replace('https://', 'http://')}"
    is_cut = isinstance(
        error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError
    ) and not isinstance(error, aiohttp.ClientConnectorError)
    if is_cut and shown.startswith("https://"):
        return (
            "does the server ask who you are? `client_certificate` and `client_key` in the "
            "arms file"
        )
    return f"{IS_UP}curl {shown}"


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error, aiohttp.ClientSSLError | aiohttp.ClientProxyConnectionError
    ):
        cause = error.os_error  # its text repeats the host and mentions TLS even where none is used
        if cause.errno and cause.errno > 0:
            return os.strerror(cause.errno)
        return cause.strerror or type(cause).__name__
    return without_credentials(str(error)) or type(error).__name__


async def document(
    session: aiohttp.ClientSession,
    url: str,
    missing: list[str],
    *,
    patience: aiohttp.ClientTimeout = TIMEOUT,
) -> dict[str, object] | None:
    """Return a page's JSON object; None, and a note of what is missing, if there is none."""
    try:
        async with session.get(plain(url), timeout=patience) as response:
            if response.status == 200:
                found = document_of(await text_of(response))
                return found if isinstance(found, dict) else None
            missing.append(f"{without_credentials(url)}: {response.status}")
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        missing.append(f"{without_credentials(url)}: {type(error).__name__}")
    return None


async def scrape(session: aiohttp.ClientSession, url: str, missing: list[str]) -> Scrape | None:
    """Return a page of metrics; None, and a note of what is missing, if there is none."""
    try:
        async with session.get(plain(url)) as response:
            if response.status == 200:
                return parse(await text_of(response))
            missing.append(f"{without_credentials(url)}: {response.status}")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        missing.append(f"{without_credentials(url)}: {type(error).__name__}")
    except OversizeError as error:
        missing.append(f"{without_credentials(url)}: {error}")
    except ValueError:
        missing.append(f"{without_credentials(url)}: no metrics text, a web page perhaps")
    return None


async def silence(endpoint: Endpoint) -> str | None:
    """Return why nothing will be known of the arm's GPUs, in words.

    None if the arm's exporter reports them, or if the arm names no exporter.
    """
    if endpoint.gpu_metrics is None:
        return None
    reached = await asyncio.to_thread(exporter, endpoint)
    try:
        async with (
            reached.session(EXPORTER_TIMEOUT) as session,
            session.get(plain(endpoint.gpu_metrics)) as response,
        ):
            why = (
                _silence(await text_of(response), endpoint.own_gpus)
                if response.status == 200
                else f"answers {response.status}"
            )
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        why = type(error).__name__
    except OversizeError as error:
        why = f"has {error}"
    except ValueError:
        why = "is no metrics text"
    if why is None:
        return None
    return f"{without_credentials(endpoint.gpu_metrics)} {why}"


def _silence(page: str, own: frozenset[str]) -> str | None:
    told = list(of_page(page))
    if not told:
        return "names no GPU"
    if not any(each.is_of(own) for each in told):
        return (
            f"names GPU {', '.join(sorted({each.gpu for each in told}))}, and gpu_ids says "
            f"{', '.join(sorted(own))}"
        )
    return None
