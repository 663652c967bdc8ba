"""Start the emulated endpoints that a comparison names, for as long as it lasts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.read import Emulated
from agentload.experiment.arms import arms_of
from agentload.model.profile import ArmProfile
from agentload.serve.processes import start


@contextmanager
def emulated(
    wanted: Emulated, *, noise: bool, seed: int, dry: bool = False, speed: float = 1.0, machines: int = 1
) -> Iterator[tuple[Endpoint, ...]]:
    """Serve each arm in a process of its own and end them all afterwards; when *dry*, only name them.

    Answers that are not timed need not take their time: `speed` divides it. On several *machines* each arm has a server on each.
    """
    arms = arms_of(wanted.profile, wanted.arms)
    if dry:
        yield tuple(_placed(arm, ["http://127.0.0.1:0/v1"] * machines) for arm in arms)
        return
    with ExitStack() as stack:
        running = [stack.enter_context(start(arms, noise=noise, seed=seed + number, speed=speed)) for number in range(machines)]
        yield tuple(_placed(arm, [each.urls[arm.name] for each in running]) for arm in arms)


def _placed(arm: ArmProfile, urls: Sequence[str]) -> Endpoint:
    if len(urls) == 1:
        return _endpoint(arm, urls[0])
    places = tuple(replace(_endpoint(arm, url), machine=f"m{number + 1}") for number, url in enumerate(urls))
    return replace(places[0], places=places)


def _endpoint(arm: ArmProfile, url: str) -> Endpoint:
    return Endpoint(name=arm.name, url=url, model=arm.model.name, profile=f"{arm.profile}/{arm.name}")
