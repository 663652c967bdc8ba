"""Start the emulated endpoints that a comparison names, for as long as it lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated
from agentload.experiment.arms import arms_of
from agentload.model.profile import ArmProfile
from agentload.serve.processes import start


@contextmanager
def emulated(wanted: Emulated, *, noise: bool, seed: int, dry: bool = False, speed: float = 1.0) -> Iterator[tuple[Endpoint, ...]]:
    """Serve each arm in a process of its own and end them all afterwards; when *dry*, only name them.

    Answers that are not timed need not take their time: `speed` divides it.
    """
    arms = arms_of(wanted.profile, wanted.arms)
    if dry:
        yield tuple(_endpoint(arm, "http://127.0.0.1:0/v1") for arm in arms)
        return
    with start(arms, noise=noise, seed=seed, speed=speed) as running:
        yield tuple(_endpoint(arm, running.urls[arm.name]) for arm in arms)


def _endpoint(arm: ArmProfile, url: str) -> Endpoint:
    return Endpoint(name=arm.name, url=url, model=arm.model.name, profile=f"{arm.profile}/{arm.name}")
