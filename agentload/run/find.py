"""Find the largest load that each arm carries, on servers or in virtual time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from msgspec import field

from agentload.endpoints.endpoint import Endpoint
from agentload.endpoints.launch import RestartableServer, restartable_server
from agentload.errors import EndpointError
from agentload.evidence.capacity import PROBE
from agentload.layout.cost import too_long
from agentload.layout.steady import steady
from agentload.model.record import Record
from agentload.run.arms import read_arms
from agentload.run.audience import Audience, finish
from agentload.run.capacity import (
    START,
    ArmLoad,
    Attempt,
    Loads,
    arm_loads,
    keep_searches,
    simulate_trial,
    try_loads,
)
from agentload.run.crowd import FEW, Crowd
from agentload.run.files import read_traces
from agentload.run.place import StudyPlace
from agentload.run.relay import Launching
from agentload.run.simulate import without_noise
from agentload.run.trial import Trial
from agentload.study.kinds import Search
from agentload.study.parts import Live, Virtual


class SearchTrials(Record):
    """Say which trials a search makes; by default it chooses its loads by what it finds."""

    loads: Mapping[str, Loads] = field(default_factory=dict)
    """Loads to try on an arm; an arm without any is searched."""
    before: Mapping[str, Sequence[Trial]] = field(default_factory=dict)
    """Earlier trials of each arm, which count with the new ones."""
    most: int | None = None
    """Most trials of an arm that is searched."""
    probe: str = PROBE
    """Name under which the trials are stored."""


def find_loads(
    study: Search, place: StudyPlace, audience: Audience, trials: SearchTrials
) -> tuple[ArmLoad, ...]:
    """Find the largest load that each arm carries within the service level.

    Servers that are launched run one at a time, and one that died is started again.
    """
    trace, _ = read_traces(study.traces, max_context_tokens=study.load.max_context_tokens)
    stock = steady(trace, study.load.planned())
    tried: dict[str, tuple[Trial, ...]] = {}

    def try_arm(arm: str, attempt: Attempt, start: float) -> tuple[Trial, ...]:
        return try_loads(
            study,
            arm,
            attempt,
            start=start,
            others=tried,
            loads=trials.loads.get(arm, ()),
            most=trials.most,
        )

    arms = read_arms(study.servers)
    if isinstance(study.servers, Virtual):
        shortest = min(arm.server.max_model_len for arm in arms.profiles)
        audience.warn(too_long(trace.header, trace.sessions, shortest))
        chosen = arms.profiles if study.servers.noise else without_noise(arms.profiles).values()
        for arm in chosen:
            attempt = partial(simulate_trial, study, stock, arm)
            tried[arm.name] = try_arm(arm.name, attempt, START[study.find])
    else:
        with arms.up(noise=study.servers.noise, seed=study.seed) as served:
            for each in served:
                with _server(each, arms.launching) as server:
                    crowd = Crowd(
                        study=study,
                        stock=stock,
                        arm=each,
                        server=server,
                        told=audience.say_step,
                        play=lambda leg: finish(leg.play(), audience),
                    )
                    tried[each.name] = try_arm(each.name, crowd.attempt, study.start or FEW)
    whole = {arm: (*trials.before.get(arm, ()), *own) for arm, own in tried.items()}
    found = arm_loads(whole, share=study.share)
    if place.into is not None:
        classes = {session.workload for session in trace.sessions}
        at_ns = time.time_ns() if isinstance(study.servers, Live) else None
        keep_searches(
            found,
            place.database,
            run=place.into,
            at_ns=at_ns,
            study=study,
            classes=classes,
            probe=trials.probe,
        )
    return found


@contextmanager
def _server(arm: Endpoint, launching: Launching | None) -> Iterator[RestartableServer | None]:
    """Keep up a server that we start; yield None for one that runs already."""
    if launching is None:
        yield None
        return
    with restartable_server(
        arm, logs=launching.logs / arm.name, start_s=launching.start_s
    ) as server:
        yield server


def require_found(found: Sequence[ArmLoad]) -> None:
    """Raise `EndpointError` for an arm with an invalid trial and no bound on its load."""
    for each in found:
        if each.void is not None and each.holds is None and each.high is None:
            raise EndpointError(
                f"{each.arm}: nothing was found: {each.void.void}",
                hint="fix that, then rerun the command",
            )
