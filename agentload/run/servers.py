"""Say how servers are reached, asked and read, and how much they hold and take."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from agentload.emulator.profile import read
from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.identity import Identity, identify
from agentload.endpoints.reach import exporter, proxy, reach
from agentload.errors import EndpointError, ProfileError
from agentload.kvmath.pool import pool_of
from agentload.live.caller import RequestStyle
from agentload.live.target import Target
from agentload.live.tls import context
from agentload.model.profile import ArmProfile
from agentload.model.record import Record
from agentload.study.parts import Request, Timeouts
from agentload.telemetry.watch import TelemetrySource


class Sizes(Record):
    """State what a server holds and takes, in tokens; None where unknown."""

    pool: float | None = None
    window: int | None = None


def sizes(endpoints: Sequence[Endpoint]) -> dict[str, Sizes]:
    """Return how much each arm's server holds and takes."""
    return {
        each.name: profiled_sizes(profile_arm(each.profile))
        if each.profile
        else asyncio.run(_asked(each))
        for each in endpoints
    }


def profiled_sizes(arm: ArmProfile) -> Sizes:
    """Return how much a server of a profile holds and takes."""
    return Sizes(pool=float(pool_of(arm).tokens), window=arm.server.max_model_len)


def pools(endpoints: Sequence[Endpoint]) -> dict[str, float | None]:
    """Return the tokens of each arm's pool; None where unknown."""
    return {arm: each.pool for arm, each in sizes(endpoints).items()}


def window(identities: Iterable[Identity], arms: Iterable[Endpoint] = ()) -> int | None:
    """Return the shortest window that servers or the arms file state; None if unknown."""
    said = [
        *(each.max_model_len for each in identities),
        *(arm.expect.get("max_model_len") for arm in arms),
    ]
    return min((length for length in said if isinstance(length, int)), default=None)


def profile_arm(profile: str) -> ArmProfile:
    """Return the arm of a profile that an emulated endpoint plays."""
    name, _, arm = profile.rpartition("/")
    (found,) = arms_of(name, [arm])
    return found


def said_sizes(facts: Mapping[str, Any]) -> Sizes:
    """Return how much a server holds and takes by what it said of itself."""
    tokens = facts.get("pool_tokens")
    try:
        pool = None if tokens is None else float(tokens)  # a metric's labels are text
    except ValueError:
        pool = None
    return Sizes(pool=pool, window=facts.get("max_model_len"))


async def _asked(endpoint: Endpoint) -> Sizes:
    try:
        return said_sizes((await identify(endpoint)).facts())
    except EndpointError:  # it does not run yet; when it is played on, its absence is an error
        return Sizes()


def arms_of(
    profile: str, names: Sequence[str] = (), *, is_timed: bool = True
) -> tuple[ArmProfile, ...]:
    """Return the profile's arms called *names*, or all, in the profile's order.

    Arms without a latency are left out, unless *is_timed* is false and they have an accuracy.
    Raises ProfileError naming those that exist.
    """
    deployment = read(profile)
    playable = {
        arm.name: arm
        for arm in deployment.arms
        if arm.step is not None or (arm.accuracy and not is_timed)
    }
    if not playable:
        raise ProfileError(
            f"profile {deployment.name} has no arm with a latency",
            hint="only its accuracy was published; agentload profile list",
        )
    missing = next((name for name in names if name not in playable), None)
    if missing is not None:
        what = " with a latency" if is_timed else ""
        raise ProfileError(
            f"profile {deployment.name} has no arm '{missing}'{what}",
            hint=f"it has: {', '.join(playable)}",
        )
    return tuple(arm for name, arm in playable.items() if not names or name in names)


HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})


def target(endpoint: Endpoint) -> Target:
    """Return how timed calls reach the endpoint."""
    files = (endpoint.ca_file, endpoint.client_certificate)
    tls = (
        None
        if files == (None, None)
        else context(authority=files[0], certificate=files[1], key=endpoint.client_key)
    )
    made = Target(
        arm=endpoint.name,
        url=endpoint.url,
        api_key=endpoint.key(),
        headers=endpoint.own_headers(),
        replica_headers=endpoint.replica_headers,
        connections=endpoint.connections,
        tls=tls,
        proxy=proxy(endpoint),
        expect_bytes=endpoint.expect_bytes,
    )
    if endpoint.idle_s is None:
        return made
    return replace(made, idle_s=endpoint.idle_s)


def targets(endpoints: tuple[Endpoint, ...]) -> tuple[Target, ...]:
    """Return how timed calls reach each of the endpoints."""
    return tuple(map(target, endpoints))


TEXT: Final = {"tool_choice": "none"}
"""Request fields that keep tools in the prompt and make the model answer text.

A vLLM without a tool parser refuses tools otherwise.
"""


def speech(
    endpoint: Endpoint, model: str, request: Request, *, with_tools: Mapping[str, object]
) -> RequestStyle:
    """Return how the endpoint is asked; its arms file's fields win over the study's."""
    return RequestStyle(
        model=model,
        aliases=endpoint.aliases,
        extra={**request.body(), **endpoint.extra_body},
        with_tools=with_tools,
        counting=endpoint.counting,
        is_forced=endpoint.force_lengths,
    )


def for_questions(
    endpoints: tuple[Endpoint, ...], request: Request, timeouts: Timeouts
) -> tuple[Endpoint, ...]:
    """Return the endpoints as untimed questions ask them.

    They have the request fields of a study, and its total timeout if any timeout was set.
    """
    fields = request.body()
    return tuple(
        replace(each, extra_body={**fields, **each.extra_body})
        for each in with_time_limit(endpoints, timeouts)
    )


def with_time_limit(endpoints: Iterable[Endpoint], timeouts: Timeouts) -> tuple[Endpoint, ...]:
    """Return the endpoints with a limit for untimed answers, if any timeout was set."""
    answer_s = None if timeouts == Timeouts() else timeouts.total_timeout_s
    return tuple(replace(each, answer_s=answer_s) for each in endpoints)


def source(endpoint: Endpoint) -> TelemetrySource:
    """Return where the endpoint's metrics are read."""
    return TelemetrySource(
        urls=endpoint.metrics_urls,
        reach=reach(endpoint),
        renewed=endpoint.request_headers if endpoint.key_command is not None else None,
        log=endpoint.log,
        gpu_url=endpoint.gpu_metrics,
        gpu_reach=exporter(endpoint),
        gpu_ids=endpoint.own_gpus,
        is_here=endpoint.profile is None
        and (urlsplit(endpoint.url).hostname in HERE or endpoint.url.startswith("http+unix")),
    )
