"""Where arms are: on which machine each begins, and how it is reached on another one."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import urlsplit

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError

OF_THE_ADDRESS: Final = (
    *("url", "key_env", "key_command", "headers", "header_env", "ca_file", "client_certificate", "client_key", "proxy", "proxy_env"),
    *("idle_s", "expect_bytes", "replica_headers", "metrics", "log", "gpu", "gpu_ids", "gpu_metrics", "price_per_hour"),
)
"""Fields that stay where they are when arms change places: what is reached there, as whom, through what. All others go with the arm."""


def beginnings(endpoints: Sequence[Endpoint]) -> tuple[str, ...]:
    """Name the machine that each arm begins on: as the arms file calls it, else by the address; emulated ones are numbered.

    Arms that have servers on several machines begin on different ones. Raises EndpointError where only some have them.
    """
    listed = [tuple(place.machine or "" for place in endpoint.places) for endpoint in endpoints]
    if any(listed):
        if any(set(each) != set(listed[0]) for each in listed):
            raise EndpointError("not every arm has a server on the same machines", hint="give each arm the same names under 'machines'")
        return tuple(listed[0][position % len(listed[0])] for position in range(len(endpoints)))
    hosts = [urlsplit(endpoint.url).hostname or endpoint.shown_url for endpoint in endpoints]
    names: dict[str, str] = {}
    for endpoint, host in zip(endpoints, hosts, strict=True):
        address = host if len({*hosts}) == len(endpoints) else urlsplit(endpoint.shown_url).netloc or endpoint.shown_url
        # A control is on the machine of its twin, whose URL it shares.
        names.setdefault(endpoint.url, endpoint.machine or (address if endpoint.profile is None else f"m{len(names) + 1}"))
    return tuple(names[endpoint.url] for endpoint in endpoints)


def on(endpoint: Endpoint, machine: str | None, arms: Sequence[Endpoint]) -> Endpoint:
    """Return an arm on a machine: its own server there, else at the address of the arm that began there, once they were exchanged."""
    if machine is None:
        return endpoint
    if endpoint.places:
        return next(place for place in endpoint.places if place.machine == machine)
    there = next(other for other, name in zip(arms, beginnings(arms), strict=True) if name == machine)
    return replace(endpoint, machine=machine, **{name: getattr(there, name) for name in OF_THE_ADDRESS})
