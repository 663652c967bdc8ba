"""Carry a study out while somebody waits: progress shown,
a stop heeded, each part of the run played to its end.

A caller says how it listens (`Audience`): the command line draws and
hears Ctrl-C, a scheduler stops after its budget, a notebook does neither.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeVar

from agentload.ask.probes import Probed, probed
from agentload.dispatch.stretches import stretches, where
from agentload.endpoints.agreement import shared_process, unlike
from agentload.endpoints.endpoint import Endpoint, on, replica_pairs
from agentload.endpoints.facts import COMMANDED, Facts
from agentload.endpoints.identity import identify, identify_all
from agentload.endpoints.launch import kept
from agentload.errors import EndpointError, InterruptError, StoreError
from agentload.evidence.capacity import PROBE
from agentload.layout.cost import Cost, cost, too_long
from agentload.layout.windows import steady
from agentload.live.runner import Listener
from agentload.model.metrics import ClockStart, clock_start
from agentload.model.plan import Plan, Round
from agentload.run.ask import Asked, Eval
from agentload.run.ask import Leg as AskLeg
from agentload.run.ask import Listener as AnswerListener
from agentload.run.capacity import Found, Loads, find, keep_searches, settled
from agentload.run.crowd import Crowd
from agentload.run.files import read_traces
from agentload.run.isolation import Cell, combinations, isolated, rows
from agentload.run.past import Past, needless, past
from agentload.run.play import Leg, Played, Playing
from agentload.run.prepared import Place, Prepared, endpoints_of, launchable, launching
from agentload.run.questions import Question
from agentload.run.screen import screen
from agentload.run.servers import arms_of, asking, reached
from agentload.run.simulate import Simulation, quiet, store
from agentload.run.trial import Trial
from agentload.store.loader import keep
from agentload.study.kinds import Ask, Probe, Replay, Search
from agentload.study.parts import Live, Virtual

ENDING_S: Final = 30.0
"""What is in flight may take so long to end by itself once a run is stopped."""
Stop = Callable[[], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Audience:
    """How somebody follows a run and stops it."""

    notice: Callable[[str], None] = lambda _: None
    """Is told what a reader of the result should know, a line at a time."""
    progress: Callable[[Cost, ClockStart], AbstractContextManager[Listener | None]] = lambda *_: (
        nullcontext()
    )
    """Follows the calls of one part of a run."""
    answers: Callable[[Sequence[Question], int], AbstractContextManager[AnswerListener | None]] = (
        lambda *_: nullcontext()
    )
    """Follows the answers of one part of an evaluation; told how many arms are asked."""
    stopping: Callable[[Stop], AbstractContextManager[None]] = lambda _: nullcontext()
    """Calls the stop when it wants one, from inside the event loop."""


def simulate(
    made: Prepared, audience: Audience, *, told: Callable[[int], None] = lambda _: None
) -> str:
    """Play what is laid out in virtual time, and store it; return
    the run's name. *told* hears how many rows there are so far.
    """
    assert isinstance(made.playing, Simulation), made.playing
    _warn(made.beyond, audience)
    _warn(None if made.fills is None else made.fills.warning(), audience)
    store(made.playing, told=told)
    return made.playing.plan.run


def measure(made: Prepared, place: Place, audience: Audience) -> Played:
    """Play what is prepared for live servers, and say what its reader
    should know: that it takes long, that its timings are invalid.
    """
    playing = made.playing
    assert isinstance(playing, Playing), playing
    _warn(made.beyond, audience)
    if made.fills is not None:
        _warn(made.fills.warning(), audience)
    elif place.resume is None and isinstance(playing.study, Replay):
        _warn(made.cost.warning(), audience)
    ended = played(playing, audience)
    _warn(ended.health.void and f"timings are invalid: {ended.health.void}", audience)
    return ended


def _warn(said: str | None, audience: Audience) -> None:
    if said:
        audience.notice(f"warning: {said}")


def played(playing: Playing, audience: Audience) -> Played:
    """Play a run, a part for each stretch in which no arm moves;
    what was played before a resumption is not played again.

    A first stop lets what is in flight come to its end, a second cancels it.
    """
    steps = stages(playing.plan, playing.endpoints)
    _finished(
        told_apart(playing.endpoints, is_forced=playing.is_forced, notice=audience.notice), audience
    )
    audience = _told_once(audience) if replica_pairs(playing.endpoints) else audience
    everything = frozenset[int]().union(*(step.pairs for step in steps))
    ended: Played | None = None
    for number, step in enumerate(steps):
        before = past(playing.database, playing.plan)
        if is_over(steps, number, before):
            continue
        if step.taken_from:
            try:
                _finished(
                    exchanged(step, before.facts, notice=audience.notice, goes_on=playing.goes_on),
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
        # What voids the first half voids the comparison.
        ended = (
            part
            if ended is None or ended.health.void is None
            else replace(part, health=ended.health)
        )
        if ended.was_stopped or (playing.stops_late and ended.health.is_late):
            break
    assert ended is not None, "a plan has rounds"
    return ended


async def told_apart(
    arms: Sequence[Endpoint], *, is_forced: bool, notice: Callable[[str], None]
) -> None:
    """See that the replicas of each arm are servers of their own, and alike.

    Raises EndpointError naming those that are not.
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


def _told_once(audience: Audience) -> Audience:
    """Say what is said of servers whenever they are
    met once, though they are met again for each pair.
    """
    said: set[str] = set()

    def notice(text: str) -> None:
        if text not in said:
            audience.notice(text)
        if text.startswith(("caveat: ", "no server counts")):
            said.add(text)

    return replace(audience, notice=notice)


def _part(playing: Playing, listener: Listener | None, audience: Audience) -> Played:
    leg = Leg(playing, listener=listener, notice=audience.notice)

    async def play() -> Played:
        with _ending(leg.stop, audience):
            return await leg.play()

    try:
        return asyncio.run(play())
    except asyncio.CancelledError as stopped:
        if not playing.is_resumed:
            raise InterruptError("stopped before anything was sent") from stopped
        raise InterruptError(
            "stopped before anything more was sent", hint=f"go on with: {playing.goes_on}"
        ) from stopped


@contextmanager
def _ending(stop: Stop, audience: Audience) -> Iterator[None]:
    """Stop when the audience says so, and once more when what is
    in flight has had its time: servers may never end an answer.
    """
    asked = 0

    def asked_to() -> None:
        nonlocal asked
        asked += 1
        if asked == 1:
            audience.notice(
                f"stopping: what is in flight has {ENDING_S:g} s to end; Ctrl-C again ends it now"
            )
            asyncio.get_running_loop().call_later(ENDING_S, stop)
        stop()

    with audience.stopping(asked_to):
        yield


def _finished(work: Coroutine[Any, Any, T], audience: Audience) -> T:
    """Run work that has nothing to bring to an end; a
    stop ends it as Ctrl-C does, by KeyboardInterrupt.
    """

    async def finish() -> T:
        task = asyncio.current_task()
        assert task is not None

        def stop() -> None:
            task.cancel()

        with audience.stopping(stop):
            return await work

    try:
        return asyncio.run(finish())
    except asyncio.CancelledError as stopped:
        raise KeyboardInterrupt from stopped


def asked(evaluation: Eval, audience: Audience) -> Asked:
    """Ask one part's questions.

    A first stop lets what is in flight come to its end, a second cancels it.
    """

    async def ask(listener: AnswerListener | None) -> Asked:
        leg = AskLeg(evaluation, listener=listener or (lambda *_: None), notice=audience.notice)
        with _ending(leg.stop, audience):
            return await leg.play()

    with audience.answers(evaluation.asked.order, len(evaluation.endpoints)) as listener:
        return asyncio.run(ask(listener))


def screened(study: Ask, place: Place, audience: Audience) -> str:
    """Screen the arms of a study; return the run.

    A stop lets the prompt in flight come to its end.
    """
    return screen(study, place, notice=audience.notice, stopping=audience.stopping)


def searched(
    study: Search,
    place: Place,
    audience: Audience,
    *,
    loads: Mapping[str, Loads] = MappingProxyType({}),
    before: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    most: int | None = None,
    probe: str = PROBE,
) -> tuple[Found, ...]:
    """Search the load that just holds, arm by arm; where we start the
    servers, one runs at a time, and one that died is started again.

    With *loads* for the arms, those are tried and nothing is searched, and trials
    *before* count with them; *most* are made of each arm. They are kept as *probe*.
    """
    trace, _ = read_traces(study.traces, max_context_tokens=study.load.max_context_tokens)
    stock = steady(trace, study.load.planned())
    tried: dict[str, tuple[Trial, ...]] = {}
    match study.servers:
        case Virtual(profile=profile, arms=names, noise=noise):
            chosen = arms_of(profile, names)
            _warn(
                too_long(
                    trace.header, trace.sessions, min(arm.server.max_model_len for arm in chosen)
                ),
                audience,
            )
            for arm in chosen if noise else quiet(chosen).values():
                tried[arm.name] = find(
                    study, stock, arm, others=tried, loads=loads.get(arm.name, ()), most=most
                )
        case Live() as servers:
            wanted, starting = endpoints_of(servers), launching(servers)
            crowd = Crowd(
                study=study, stock=stock, play=lambda leg: _finished(leg.play(), audience)
            )
            with reached(wanted, noise=servers.noise, seed=study.seed) as arms:
                for each in arms:
                    search = partial(
                        crowd.search,
                        each,
                        told=audience.notice,
                        others=tried,
                        loads=loads.get(each.name, ()),
                        most=most,
                    )
                    if starting is None:
                        tried[each.name] = search()
                        continue
                    with kept(
                        each, logs=starting.logs / each.name, start_s=starting.start_s
                    ) as server:
                        tried[each.name] = search(server=server)
    found = settled(
        {arm: (*before.get(arm, ()), *own) for arm, own in tried.items()}, share=study.share
    )
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
            probe=probe,
        )
    return found


def probe(study: Probe, audience: Audience) -> Probed:
    """Try servers that run, as a probe says."""
    with reached(endpoints_of(study.servers), noise=True, seed=0) as arms:
        _finished(told_apart(arms, is_forced=study.servers.force, notice=audience.notice), audience)
        asked = asking(arms, study.request, study.timeouts)
        return _finished(probed(asked, tokens=study.prompt_tokens, prompts=study.prompts), audience)


def isolate(study: Probe, place: Place, audience: Audience) -> tuple[Cell, ...]:
    """Try each feature on a server of its own, one after the other;
    what was seen is kept beside the run that is joined, if any.
    """
    cells = tuple(
        isolated(
            combinations(
                asking(
                    launchable(endpoints_of(study.servers), option="--matrix"),
                    study.request,
                    study.timeouts,
                ),
                graphs=study.graphs,
            ),
            tokens=study.prompt_tokens,
            prompts=study.prompts,
            logs=Path(study.servers.logs),
            start_s=study.servers.start_timeout_s,
            told=audience.notice,
        )
    )
    if place.into is not None:
        keep(rows(cells, run_id=place.into), place.database, run_id=place.into, name="isolation")
    return cells


def require(found: Sequence[Found]) -> None:
    """Raise `EndpointError` for an arm of which nothing
    is known, because its first trial says nothing.
    """
    for each in found:
        if each.void is not None and each.holds is None and each.high is None:
            raise EndpointError(
                f"{each.arm}: nothing was found: {each.void.void}",
                hint="fix that, then rerun the command",
            )


def concluded(
    run_id: str,
    place: Place,
    audience: Audience,
    *,
    load_error: str | None,
    stopped: InterruptError | None = None,
) -> None:
    """Raise what a run ends with: that it was stopped,
    or that the database lacks what is in the journal.
    """
    if load_error is not None:
        lacking = f"run {run_id} is in its journal but not in {place.database}: {load_error}"
        remedy = f"agentload runs load {run_id} --db {place.database}"
        if stopped is None:
            raise StoreError(lacking, hint=remedy)
        audience.notice(f"warning: {lacking}")
        audience.notice(f"hint: {remedy}")
    if stopped is not None:
        raise stopped


PATIENCE_S: Final = 3600.0
LOOK_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The rounds between two changes, and where the arms are meanwhile."""

    rounds: tuple[Round, ...]
    endpoints: tuple[Endpoint, ...]
    taken_from: Mapping[str, str]
    """By arm that comes to another arm's address: that other arm."""

    @property
    def pairs(self) -> frozenset[int]:
        """Return the pairs that are played in it."""
        return frozenset(play.pair for round_ in self.rounds for play in round_.plays)

    def left(self, before: Past) -> tuple[Round, ...]:
        """Return the rounds that earlier legs have not done."""
        done = needless((play for round_ in self.rounds for play in round_.plays), before.done)
        return tuple(
            round_ for round_ in self.rounds if any(play.pair not in done for play in round_.plays)
        )


def stages(plan: Plan, endpoints: Sequence[Endpoint]) -> tuple[Stage, ...]:
    """Return a plan's stages; one, with the endpoints as they are, where no arm moves."""
    out: list[Stage] = []
    for rounds in stretches(plan.rounds):
        at = where(rounds)
        placed = tuple(on(endpoint, at.get(endpoint.name), endpoints) for endpoint in endpoints)
        before = {endpoint.url: endpoint.name for endpoint in out[-1].endpoints} if out else {}
        taken = {
            each.name: before[each.url]
            for each in placed
            if before.get(each.url, each.name) != each.name
        }
        out.append(Stage(rounds=rounds, endpoints=placed, taken_from=taken))
    return tuple(out)


def is_over(steps: Sequence[Stage], number: int, before: Past) -> bool:
    """Tell whether a stage has nothing left to play: all of it is
    done, or its servers have been where a later one needs them.

    The last one is never over: it says how the run ended.
    """
    later, begun = steps[number + 1 :], before.done | before.lost.keys()
    return bool(later) and (
        steps[number].pairs <= before.done
        or any(step.taken_from and step.pairs & begun for step in later)
    )


def is_exchanged(arm: Facts, there_before: Facts, now: Facts) -> bool:
    """Tell whether the server at an address, which was another arm's, is *arm* now.

    Raises EndpointError where nothing could tell.
    """
    if (
        all(arm.get(name) == there_before.get(name) for name in COMMANDED)
        and now.get("process_start_s") is None
    ):
        raise EndpointError(
            "both servers look alike, and neither says when it was started: an exchange "
            "cannot be seen",
            hint="exchange them while the run is stopped, then go on with --resume",
        )
    is_another = now.get("process_start_s") is None or now["process_start_s"] != there_before.get(
        "process_start_s"
    )
    return is_another and all(arm.get(name) == now.get(name) for name in COMMANDED)


async def exchanged(
    stage: Stage,
    said: Mapping[str, Facts],
    *,
    notice: Callable[[str], None],
    goes_on: str,
    patience_s: float = PATIENCE_S,
) -> None:
    """Wait until the servers of a stage are where they belong;
    *said* is what each arm's server said of itself before.
    """
    until_s = time.monotonic() + patience_s
    wanted = ", ".join(
        f"{each.name} at {each.shown_url}"
        for each in stage.endpoints
        if each.name in stage.taken_from
    )
    notice(
        f"half way: exchange the servers now, to have {wanted}; waiting "
        f"{patience_s / 60:.0f} min for them"
    )
    waiting = [each for each in stage.endpoints if each.name in stage.taken_from]
    while waiting:
        waiting = [
            each for each in waiting if not await _is_there(each, said, stage.taken_from[each.name])
        ]
        if waiting and time.monotonic() + LOOK_S > until_s:
            raise EndpointError(
                f"{waiting[0].name} is not at {waiting[0].shown_url} after "
                f"{patience_s / 60:.0f} min",
                hint=f"exchange the servers, then: {goes_on}",
            )
        if waiting:
            await asyncio.sleep(LOOK_S)
    notice("the servers were exchanged: going on")


async def _is_there(endpoint: Endpoint, said: Mapping[str, Facts], before: str) -> bool:
    try:
        now = await identify(endpoint)
    except EndpointError:  # it is being started
        return False
    return is_exchanged(said.get(endpoint.name, {}), said.get(before, {}), now.facts())
