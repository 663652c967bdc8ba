"""Play what is laid out, in virtual time or on servers; show progress and heed a stop."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from agentload.endpoints.agreement import shared_process, unlike
from agentload.endpoints.endpoint import Endpoint, replica_pairs
from agentload.endpoints.identity import identify_all
from agentload.errors import EndpointError, InterruptError
from agentload.layout.cost import cost
from agentload.live.runner import Listener
from agentload.model.metrics import clock_start
from agentload.run.audience import Audience, ending, finish
from agentload.run.lay import Prepared
from agentload.run.past import past
from agentload.run.place import StudyPlace
from agentload.run.play import Played, Playing, ReplayPart
from agentload.run.record import Stored
from agentload.run.simulate import Simulation, store
from agentload.run.stages import is_over, stages, wait_for_exchange
from agentload.study.kinds import Replay


def simulate(made: Prepared, audience: Audience) -> Stored:
    """Play what is laid out in virtual time, and store it."""
    assert isinstance(made.playing, Simulation), made.playing
    audience.warn(made.beyond)
    audience.warn(None if made.fills is None else made.fills.warning())
    began_s = time.monotonic()
    ended = store(made.playing, on_rows=audience.rows)
    return replace(ended, simulated_s=time.monotonic() - began_s)


def measure(made: Prepared, place: StudyPlace, audience: Audience) -> Played:
    """Play what is laid out on live servers; warn of a long run and of invalid timings."""
    playing = made.playing
    assert isinstance(playing, Playing), playing
    audience.warn(made.beyond)
    if made.fills is not None:
        audience.warn(made.fills.warning())
    elif place.resume is None and isinstance(playing.study, Replay):
        audience.warn(made.cost().warning())
    ended = play_stages(playing, audience)
    audience.warn(ended.health.void and f"timings are invalid: {ended.health.void}")
    return ended


def play_stages(playing: Playing, audience: Audience) -> Played:
    """Play a run, one part for each stage in which no arm changes machines.

    What was played before a resumption is not played again.
    A first stop lets what is in flight finish, a second cancels it.
    """
    steps = stages(playing.plan, playing.endpoints)
    finish(
        check_replicas(playing.endpoints, is_forced=playing.is_forced, notice=audience.notice),
        audience,
    )
    audience = audience.hearing_once() if replica_pairs(playing.endpoints) else audience
    everything = frozenset[int]().union(*(step.pairs for step in steps))
    ended: Played | None = None
    for number, step in enumerate(steps):
        before = past(playing.database, playing.plan)
        if is_over(steps, number, before):
            continue
        if step.taken_from:
            try:
                finish(
                    wait_for_exchange(
                        step, before.facts, notice=audience.notice, goes_on=playing.goes_on
                    ),
                    audience,
                )
            except KeyboardInterrupt as stopped:
                raise InterruptError(
                    "stopped before the servers were exchanged; the first half is stored",
                    hint=f"exchange them, then: {playing.goes_on}",
                ) from stopped
        own = replace(
            playing,
            endpoints=step.endpoints,
            elsewhere=everything - step.pairs,
            is_resumed=playing.is_resumed or ended is not None,
        )
        expected = cost(replace(playing.plan, rounds=step.left(before)))
        with audience.progress(expected, clock_start(playing.plan.load)) as listener:
            part = _part(own, listener, audience)
        if ended is not None and ended.health.void is not None:
            # If the timings of the first half are invalid, so is the comparison.
            part = replace(part, health=ended.health)
        ended = part
        if ended.was_stopped or (playing.stops_late and ended.health.is_late):
            break
    assert ended is not None, "a plan has rounds"
    return ended


async def check_replicas(
    arms: Sequence[Endpoint], *, is_forced: bool, notice: Callable[[str], None]
) -> None:
    """Check that the replicas of each arm are separate servers, and alike.

    Raises EndpointError naming those that are not; forced, unlike ones are only noticed.
    """
    for arm in arms:
        if not arm.replicas:
            continue
        said = [each.facts() for each in await identify_all(arm.replicas)]
        if (one := shared_process(arm.name, said)) is not None:
            raise EndpointError(
                one,
                hint="give each replica a server of its own, or leave one out: a start counts once",
            )
        if others := tuple(unlike(arm.name, said)):
            if not is_forced:
                raise EndpointError(
                    "; ".join(others),
                    hint="start it as its fellow was, or leave it out; --force measures it all "
                    "the same",
                )
            for each in others:
                notice(f"caveat: {each}")


def _part(playing: Playing, listener: Listener | None, audience: Audience) -> Played:
    leg = ReplayPart(playing, listener=listener, notice=audience.notice)

    async def play() -> Played:
        with ending(leg.stop, audience):
            return await leg.play()

    try:
        return asyncio.run(play())
    except asyncio.CancelledError as stopped:
        if not playing.is_resumed:
            raise InterruptError("stopped before anything was sent") from stopped
        raise InterruptError(
            "stopped before anything more was sent", hint=f"resume with: {playing.goes_on}"
        ) from stopped
