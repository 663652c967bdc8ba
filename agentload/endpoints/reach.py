"""Turn what an arms file says of an endpoint into how it is reached."""

import os
import ssl
from dataclasses import replace

from agentload.endpoints.endpoint import Endpoint, socket_of
from agentload.errors import EndpointError
from agentload.telemetry.reach import Reach


def reach(endpoint: Endpoint) -> Reach:
    """Return how to reach *endpoint* outside of timed calls.

    This runs the key's command, if any, which may take a moment.
    """
    return replace(keyless(endpoint), headers=endpoint.request_headers())


def keyless(endpoint: Endpoint) -> Reach:
    """Return how to reach *endpoint* without its key: by its socket, its own proxy or none.

    Timed calls take the same way.
    """
    return Reach(tls=tls_context(endpoint), proxy=proxy(endpoint), socket=socket_of(endpoint.url))


def exporter(endpoint: Endpoint) -> Reach:
    """Return how to reach the exporter of an arm's GPU figures: with its TLS files, no key."""
    return Reach(tls=tls_context(endpoint))


def tls_context(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return what TLS connections trust and show; None where the arms file names no file.

    Raises EndpointError naming the arm.
    """
    if endpoint.ca_file is None and endpoint.client_certificate is None:
        return None
    try:
        made = ssl.create_default_context(cafile=endpoint.ca_file)
        if endpoint.client_certificate is not None:
            made.load_cert_chain(endpoint.client_certificate, endpoint.client_key)
    except (OSError, ssl.SSLError) as error:
        files = (endpoint.ca_file, endpoint.client_certificate, endpoint.client_key)
        named = ", ".join(file for file in files if file is not None)
        raise EndpointError(
            f"{endpoint.name}: the TLS files {named} cannot be used: {error}",
            hint="give PEM files that you may read",
        ) from error
    return made


def proxy(endpoint: Endpoint) -> str | None:
    """Return the proxy's URL, from the environment where it holds a password."""
    if endpoint.proxy_env is None:
        return endpoint.proxy
    if not (url := os.environ.get(endpoint.proxy_env)):
        raise EndpointError(
            f"{endpoint.name}: environment variable {endpoint.proxy_env} is not set",
            hint=f"export {endpoint.proxy_env}=…",
        )
    return url
