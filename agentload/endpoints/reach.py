"""Turn what an arms file says of an endpoint into how it is reached."""

import http.client
import os
import socket
import ssl
import urllib.request
from typing import Any

from agentload.endpoints.endpoint import Endpoint, socket_of
from agentload.errors import EndpointError
from agentload.telemetry.reach import Reach, Staying


def reach(endpoint: Endpoint) -> Reach:
    """Return how *endpoint* is spoken to outside of timed calls; a key by command is asked for, which may take a moment."""
    return Reach(headers=endpoint.request_headers(), tls=trusted(endpoint), proxy=proxy(endpoint), socket=socket_of(endpoint.url))


def exporter(endpoint: Endpoint) -> Reach:
    """Return how the exporter is spoken to that says what the arm's GPUs do: with the arm's TLS files, and without its key."""
    return Reach(tls=trusted(endpoint))


def trusted(endpoint: Endpoint) -> ssl.SSLContext | None:
    """Return what TLS connections trust and show; None where the arms file names no file. Raises EndpointError naming the arm."""
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
            f"{endpoint.name}: the TLS files {named} cannot be used: {error}", hint="give PEM files that you may read"
        ) from error
    return made


def proxy(endpoint: Endpoint) -> str | None:
    """Return the proxy's URL, from the environment where it holds a password."""
    if endpoint.proxy_env is None:
        return endpoint.proxy
    if not (url := os.environ.get(endpoint.proxy_env)):
        raise EndpointError(f"{endpoint.name}: environment variable {endpoint.proxy_env} is not set", hint=f"export {endpoint.proxy_env}=…")
    return url


class _Unix(urllib.request.HTTPHandler):
    """Open every URL over one Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        """Connect there, whatever host the URL names."""

        def connection(host: str, **said: Any) -> http.client.HTTPConnection:  # as urllib hands them on
            made = http.client.HTTPConnection(host, **said)
            made.sock = socket.socket(socket.AF_UNIX)
            made.sock.settimeout(made.timeout)
            made.sock.connect(self._path)
            return made

        return self.do_open(connection, req)


def opener(endpoint: Endpoint) -> urllib.request.OpenerDirector:
    """Return what opens URLs of *endpoint* as timed calls do: by its socket, its own proxy or none, whatever the environment says."""
    if (path := socket_of(endpoint.url)) is not None:
        return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Unix(path), Staying)
    through = proxy(endpoint)
    proxies = {} if through is None else {"http": through, "https": through}
    secure = urllib.request.HTTPSHandler(context=trusted(endpoint))
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies), secure, Staying)
