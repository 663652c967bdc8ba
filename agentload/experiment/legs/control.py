"""Add an A/A control to a comparison: one arm a second time, under another name."""

from __future__ import annotations

from dataclasses import replace

from agentload.endpoints.endpoint import Endpoint
from agentload.errors import EndpointError
from agentload.model.controls import control_of


def with_control(endpoints: tuple[Endpoint, ...], arm: str | None) -> tuple[Endpoint, ...]:
    """Return the endpoints with a second copy of *arm*; as they are when it is None."""
    if arm is None:
        return endpoints
    copied = next((endpoint for endpoint in endpoints if endpoint.name == arm), None)
    if copied is None:
        raise EndpointError(f"--aa: no arm '{arm}'", hint=f"one of: {', '.join(endpoint.name for endpoint in endpoints)}")
    return (*endpoints, replace(copied, name=control_of(arm)))
