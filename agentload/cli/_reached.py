"""Reach the endpoints that a verb was given; those of a profile are served for as long as it runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated
from agentload.experiment.legs.emulated import emulated


@contextmanager
def reached(
    wanted: tuple[Endpoint, ...] | Emulated, *, noise: bool, seed: int, is_dry: bool = False, machines: int = 1
) -> Iterator[tuple[Endpoint, ...]]:
    """Yield the endpoints, started where they are emulated, on so many *machines*; when *is_dry*, only named."""
    if not isinstance(wanted, Emulated):
        yield wanted
        return
    with emulated(wanted, noise=noise, seed=seed, dry=is_dry, machines=machines) as served:
        yield served
