"""Say what stops a comparison before it starts: servers that are not what the arms file expects, or that are one and the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.expectations import checks, is_same_configuration
from agentload.endpoints.identity import Identity
from agentload.endpoints.urls import without_user
from agentload.errors import EndpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """What the servers' own words say of the arms file."""

    mismatches: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    """Expectations that no server confirms or denies."""
    equal: tuple[tuple[str, str], ...] = ()
    """Pairs of arms that are the same configuration by all that they say."""
    unseen: tuple[str, ...] = ()
    """What of the servers' work stays in the dark."""

    def caveats(self) -> tuple[str, ...]:
        """Return everything as sentences."""
        same = (f"{one} and {other} are the same configuration by all they say: this is an A/A test" for one, other in self.equal)
        return (*self.mismatches, *self.unknown, *same, *self.unseen)

    def require(self) -> None:
        """Raise EndpointError when a server is not what is expected."""
        if self.mismatches:
            raise EndpointError("; ".join(self.mismatches), hint="mend the server or the arms file; --force measures it all the same")


def agreement(endpoints: Sequence[Endpoint], identities: Mapping[str, Identity]) -> Agreement:
    """Compare every arm with its expectations and with the other arms; an arm and its control share a server and are not compared."""
    facts = {endpoint.name: identities[endpoint.name].facts() for endpoint in endpoints}
    found = [(endpoint.name, check) for endpoint in endpoints for check in checks(endpoint.expect, facts[endpoint.name])]
    return Agreement(
        mismatches=tuple(f"{name}: {check}" for name, check in found if check.agrees is False),
        unknown=tuple(f"{name}: {check}" for name, check in found if check.agrees is None),
        equal=tuple(
            (one.name, other.name)
            for one, other in combinations(endpoints, 2)
            if one.url != other.url and is_same_configuration(facts[one.name], facts[other.name])
        ),
        unseen=(
            *(_unseen(endpoint) for endpoint in endpoints if not identities[endpoint.name].counters),
            *(_behind(endpoint.name, between) for endpoint in endpoints if (between := identities[endpoint.name].gateway) is not None),
        ),
    )


def _behind(name: str, gateway: str) -> str:
    return f"{name}: {gateway} stands between us and the server: its time is in every latency, and what it does to calls voids blocks"


def _unseen(endpoint: Endpoint, identity: Identity) -> Iterator[str]:
    name, where = endpoint.name, ", ".join(without_credentials(url) for url in endpoint.metrics_urls)
    if not identity.models:
        yield f"{name}: it lists no models: that it serves '{endpoint.model}' was not checked"
    if not identity.counters.keys() - {"process_start_s"}:
        if endpoint.log is not None:
            yield f"{name}: no metrics at {where}: its log stands in for load and KV usage, requests of others are not seen"
        else:
            yield f"{name}: no metrics at {where}: KV usage, preemptions and requests of others are not seen"
    elif "requests_done" not in identity.counters:
        yield f"{name}: no count of finished requests at {where}: requests of others are not seen"
    if (between := identity.gateway) is not None:
        yield f"{name}: {between} stands between us and the server: its time is in every latency, and what it does to calls voids blocks"
    if identity.gpus_unseen is not None:
        yield f"{name}: {identity.gpus_unseen}: what its GPUs draw, and whether they are slowed, is not seen"
