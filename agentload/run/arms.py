"""Read which servers a study measures and by what means: they run,
are started in turn, are emulated, or exist in virtual time alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint, check_environment
from agentload.endpoints.read import Emulated, read
from agentload.errors import EndpointError, UsageError
from agentload.model.controls import control_of
from agentload.model.profile import ArmProfile
from agentload.run.relay import Launching
from agentload.run.servers import arms_of
from agentload.serve.processes import start
from agentload.study.parts import Live, Servers, Virtual

ALL: Final = "all"
"""In place of an arm's name: every arm."""
EMULATED_SPEED: Final = 1000.0
"""Emulated answers depend on the prompt alone: nobody need wait for those that are not timed."""
_UP: Final[dict[tuple[object, ...], tuple[Endpoint, ...]]] = {}
"""Emulated servers that an outer block keeps up, by what they were started for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arms:
    """The arms of a study: profiles in virtual time and of emulated servers, else endpoints."""

    servers: Servers
    profiles: tuple[ArmProfile, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the arms, in order."""
        return tuple(each.name for each in self.profiles or self.endpoints)

    @property
    def is_emulated(self) -> bool:
        """Tell whether servers are emulated for the study."""
        return isinstance(self.servers, Live) and bool(self.profiles)

    @property
    def launching(self) -> Launching | None:
        """Say how servers are started; None where they run already."""
        servers = self.servers
        if isinstance(servers, Virtual) or not servers.launch:
            return None
        return Launching(logs=Path(servers.logs), start_s=servers.start_timeout_s)

    def launchable(self, *, option: str) -> tuple[Endpoint, ...]:
        """Return endpoints that can be started. Raises UsageError naming one that cannot."""
        if self.is_emulated:
            raise UsageError(
                f"{option} starts the servers of an arms file; emulated ones are started anyway",
                hint=f"leave {option} out",
            )
        if missing := next((each.name for each in self.endpoints if each.launch is None), None):
            raise UsageError(
                f"{option}: {missing} has no launch command",
                hint="launch: vllm serve MODEL --port 8000, in an arms file",
            )
        return self.endpoints

    @contextmanager
    def up(
        self, *, noise: bool, seed: int, machines: int = 1, speed: float = 1.0, is_dry: bool = False
    ) -> Iterator[tuple[Endpoint, ...]]:
        """Yield the endpoints; emulated arms are served for
        the block, in a process for each of the *machines*.

        When *is_dry* emulated arms are only named. *speed* divides the time that
        their answers take. Inside another such block the servers of that block serve.
        """
        if not self.is_emulated:
            yield self.endpoints
            return
        if is_dry:
            yield self._placed([["http://127.0.0.1:0/v1"] * machines] * len(self.profiles))
            return
        assert isinstance(self.servers, Live), self.servers
        key = (self.servers.endpoints, noise, seed, machines, speed)
        if key in _UP:
            yield _UP[key]
            return
        with ExitStack() as stack:
            running = [
                stack.enter_context(
                    start(self.profiles, noise=noise, seed=seed + number, speed=speed)
                )
                for number in range(machines)
            ]
            urls = [[each.urls[arm.name] for each in running] for arm in self.profiles]
            _UP[key] = self._placed(urls)
            stack.callback(_UP.pop, key)
            yield _UP[key]

    def _placed(self, urls: Sequence[Sequence[str]]) -> tuple[Endpoint, ...]:
        return tuple(_placed(arm, own) for arm, own in zip(self.profiles, urls, strict=True))


def _placed(arm: ArmProfile, urls: Sequence[str]) -> Endpoint:
    places = tuple(
        Endpoint(
            name=arm.name,
            url=url,
            model=arm.model.name,
            profile=f"{arm.profile}/{arm.name}",
            machine=None if len(urls) == 1 else f"m{number}",
        )
        for number, url in enumerate(urls, start=1)
    )
    return places[0] if len(urls) == 1 else replace(places[0], places=places)


def read_arms(servers: Servers, *, tokenizer: str | None = None, is_timed: bool = True) -> Arms:
    """Read the arms that a study names; those of a profile
    need a latency unless answers alone are asked for.

    Raises UsageError for arms to be started without a command,
    EndpointError for missing keys, ProfileError for unknown arms.
    """
    if isinstance(servers, Virtual):
        profiles = arms_of(servers.profile, servers.arms, is_timed=is_timed)
        return Arms(servers=servers, profiles=profiles)
    found = read(
        servers.endpoints, model=servers.model, key_env=servers.api_key_env, tokenizer=tokenizer
    )
    if isinstance(found, Emulated):
        made = Arms(servers=servers, profiles=arms_of(found.profile, found.arms))
    else:
        check_environment(server for each in found for server in each.servers)
        made = Arms(servers=servers, endpoints=found)
    if servers.launch:
        made.launchable(option="--launch")
    return made


def with_control(endpoints: tuple[Endpoint, ...], arm: str | None) -> tuple[Endpoint, ...]:
    """Return the endpoints with a second copy of *arm*, or of all; as they are when it is None."""
    copied = tuple(endpoint for endpoint in endpoints if arm in (ALL, endpoint.name))
    if arm is not None and not copied:
        raise EndpointError(
            f"--aa: no arm '{arm}'",
            hint=f"one of: {', '.join(endpoint.name for endpoint in endpoints)}",
        )
    return (*endpoints, *(replace(endpoint, name=control_of(endpoint.name)) for endpoint in copied))
