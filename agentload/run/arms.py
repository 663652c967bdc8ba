"""Read which servers a study measures: running, launched in turn, emulated or virtual."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from agentload.endpoints.endpoint import Endpoint, check_environment
from agentload.endpoints.read import Emulated, read
from agentload.errors import EndpointError, UsageError
from agentload.model.controls import control_of
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.run.relay import Launching
from agentload.run.servers import arms_of
from agentload.study.parts import Live, Servers, Virtual

ALL: Final = "all"
"""Value given in place of an arm's name that means every arm."""
EMULATED_SPEED: Final = 1000.0
"""Speed-up of emulated servers for untimed answers, which depend on the prompt alone."""


class _Running(Record):
    """Hold emulated servers that a block of `Arms.up` keeps running."""

    profiles: tuple[ArmProfile, ...]
    how: tuple[bool, int, int, float]
    """Noise, seed, machines and speed of the servers."""
    endpoints: tuple[Endpoint, ...]

    def serve(self, arms: "Arms", how: tuple[bool, int, int, float]) -> bool:
        """Tell whether these are servers of all the arms."""
        return self.how == how and all(each in self.profiles for each in arms.profiles)


_UP: Final[list[_Running]] = []
"""Emulated servers of the blocks that enclose the one that runs."""


class Arms(Record):
    """Hold the arms of a study: profiles where virtual or emulated, else endpoints."""

    servers: Servers
    profiles: tuple[ArmProfile, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the arms, in order."""
        return tuple(each.name for each in self.profiles or self.endpoints)

    @property
    def is_emulated(self) -> bool:
        """Tell whether servers are emulated for the study."""
        return isinstance(self.servers, Live) and bool(self.profiles)

    @property
    def launching(self) -> Launching | None:
        """How servers are started; None where they run already."""
        servers = self.servers
        if isinstance(servers, Virtual) or not servers.launch:
            return None
        return Launching(logs=Path(servers.logs), start_s=servers.start_timeout_s)

    def check_launch(self) -> None:
        """Refuse `--launch` where a server cannot be started, or is started anyway.

        Raises UsageError naming an endpoint without a launch command, and for emulated servers.
        """
        if self.is_emulated:
            raise UsageError(
                "--launch starts the servers of an arms file; emulated ones are started anyway",
                hint="leave --launch out",
            )
        for endpoint in self.endpoints:
            if endpoint.launch is None:
                raise UsageError(
                    f"--launch: {endpoint.name} has no launch command",
                    hint="launch: vllm serve MODEL --port 8000, in an arms file",
                )

    @contextmanager
    def up(
        self, *, noise: bool, seed: int, machines: int = 1, speed: float = 1.0, is_dry: bool = False
    ) -> Iterator[tuple[Endpoint, ...]]:
        """Yield the endpoints; serve emulated arms for the block, in one process per machine.

        When *is_dry* emulated arms are only named. *speed* divides the time that their answers
        take. A block inside another one, which serves these arms alike, uses that block's servers.
        """
        if not self.is_emulated:
            yield self.endpoints
            return
        if is_dry:
            yield self._placed([["http://127.0.0.1:0/v1"] * machines] * len(self.profiles))
            return
        how = (noise, seed, machines, speed)
        for outer in _UP:
            if outer.serve(self, how):
                yield tuple(each for each in outer.endpoints if each.name in self.names)
                return
        # Late: most servers are the user's
        from agentload.serve.processes import start
        from agentload.serve.server import ServerOptions

        with ExitStack() as stack:
            started = [
                stack.enter_context(
                    start(
                        self.profiles, ServerOptions(noise=noise, seed=seed + number, speed=speed)
                    )
                )
                for number in range(machines)
            ]
            urls = [[each.urls[arm.name] for each in started] for arm in self.profiles]
            running = _Running(profiles=self.profiles, how=how, endpoints=self._placed(urls))
            _UP.append(running)
            stack.callback(_UP.remove, running)
            yield running.endpoints

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
    if len(urls) == 1:
        return places[0]
    return replace(places[0], places=places)


def read_arms(servers: Servers, *, tokenizer: str | None = None, is_timed: bool = True) -> Arms:
    """Read the arms that a study names.

    Arms in virtual time need a latency unless *is_timed* is false, for answers alone.
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
        made.check_launch()
    return made


def with_control(endpoints: tuple[Endpoint, ...], arm: str | None) -> tuple[Endpoint, ...]:
    """Return the endpoints, followed by a control copy of *arm* or, for "all", of each.

    None copies no arm. Raises EndpointError for an unknown arm.
    """
    copied = tuple(endpoint for endpoint in endpoints if arm in (ALL, endpoint.name))
    if arm is not None and not copied:
        raise EndpointError(
            f"--aa: no arm '{arm}'",
            hint=f"one of: {', '.join(endpoint.name for endpoint in endpoints)}",
        )
    return (*endpoints, *(replace(endpoint, name=control_of(endpoint.name)) for endpoint in copied))
