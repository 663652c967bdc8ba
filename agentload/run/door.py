"""Carry out a study, whatever its kind, or lay it out without asking anyone.

This is the one place that distinguishes the kinds, and the one way to servers. Decisions, jobs of a
watch, and questions asked until they decide are made of such studies: they come here for each, and
may adapt what was laid out before it is played. What carries a kind out is imported when a study is
of that kind: a replay waits for none of the others.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, assert_never, overload

from agentload.errors import UsageError
from agentload.model.plan import Plan
from agentload.run.arms import read_arms
from agentload.run.ask import Evaluated
from agentload.run.audience import Audience, finish
from agentload.run.lay import Prepared, lay_out
from agentload.run.measure import check_replicas, measure, play_stages, simulate
from agentload.run.place import StudyPlace
from agentload.run.play import Played, Playing
from agentload.run.ready import ready
from agentload.run.record import Stored
from agentload.run.servers import for_questions
from agentload.study.kinds import Ask, Probe, Replay, Search, Sweep
from agentload.study.parts import Live, Virtual

if TYPE_CHECKING:
    from agentload.ask.probes import Probed
    from agentload.run.capacity import ArmLoad
    from agentload.run.evaluation import Evaluation
    from agentload.run.find import SearchTrials

Measured: TypeAlias = Replay | Sweep | Search | Ask | Probe
Result: TypeAlias = "Stored | Played | Evaluated | tuple[ArmLoad, ...] | Probed"
T = TypeVar("T")
Adapt: TypeAlias = Callable[[T], T]
"""Returns what is played in place of what was laid out."""


def _as_laid_out(made: T) -> T:
    return made


@overload
def carry_out(
    study: Replay | Sweep, place: StudyPlace, audience: Audience, *, adapt: Adapt[Prepared] = ...
) -> Stored | Played: ...
@overload
def carry_out(
    study: Search, place: StudyPlace, audience: Audience, *, adapt: "Adapt[SearchTrials]" = ...
) -> "tuple[ArmLoad, ...]": ...
@overload
def carry_out(
    study: Ask, place: StudyPlace, audience: Audience, *, adapt: "Adapt[Evaluation]" = ...
) -> Stored | Evaluated: ...
@overload
def carry_out(study: Probe, place: StudyPlace, audience: Audience) -> "Probed": ...
def carry_out(
    study: Measured, place: StudyPlace, audience: Audience, *, adapt: Adapt[Any] = _as_laid_out
) -> Result:
    """Carry out a study and return its result; *adapt* changes what was laid out."""
    match study:
        case Replay() | Sweep():
            return _play(study, place, audience, adapt)
        case Search():
            from agentload.run.find import SearchTrials, find_loads

            return find_loads(study, place, audience, adapt(SearchTrials()))
        case Ask(screen=True):
            from agentload.run.screen import screen

            return screen(study, place, audience)
        case Ask():
            from agentload.run.evaluation import ask, evaluation

            with evaluation(study, place) as asked:
                return ask(adapt(asked), audience)
        case Probe():
            return _probe(study, audience)
        case _:
            assert_never(study)


def _play(
    study: Replay | Sweep, place: StudyPlace, audience: Audience, adapt: Adapt[Prepared]
) -> Stored | Played:
    with lay_out(study, place, notice=audience.notice) as made:
        if isinstance(study.servers, Virtual):
            return simulate(adapt(made), audience)
        ready(made, audience.notice)
        return measure(adapt(made), place, audience)


def _probe(study: Probe, audience: Audience) -> "Probed":
    """Send each server's probes; refuse before that an arm whose replicas differ."""
    from agentload.ask.probes import probe_arms, short

    for caveat in short(study.prompt_tokens):
        audience.notice(f"caveat: {caveat}")
    with read_arms(study.servers).up(noise=True, seed=0) as arms:
        is_forced = study.servers.force
        finish(check_replicas(arms, is_forced=is_forced, notice=audience.notice), audience)
        asked = for_questions(arms, study.request, study.timeouts)
        probing = probe_arms(asked, tokens=study.prompt_tokens, prompts=study.prompts)
        return finish(probing, audience)


def carry_out_plan(
    plan: Plan, study: Replay, database: Path, audience: Audience, *, trace_hash: str
) -> Played:
    """Play a plan of no user's trace on the servers of a study, and add it to the plan's run."""
    assert isinstance(study.servers, Live), study.servers
    arms = read_arms(study.servers)
    with arms.up(noise=study.servers.noise, seed=plan.seed) as served:
        playing = Playing(
            study=study,
            plan=plan,
            endpoints=served,
            database=database,
            trace_hash=trace_hash,
            into=plan.run,
            launching=arms.launching,
        )
        return play_stages(playing, audience)


def forecast(
    study: Measured, place: StudyPlace, *, notice: Callable[[str], None]
) -> "Prepared | Evaluation":
    """Lay a study out without starting or asking anyone.

    Raises UsageError for a study that has no plan.
    """
    match study:
        case Replay() | Sweep():
            with lay_out(study, place, is_dry=True, notice=notice) as made:
                return made
        case Search():
            why = "a search decides what it tries by what it finds: it has no plan to print"
        case Ask(screen=False):
            from agentload.run.evaluation import evaluation

            with evaluation(study, place, is_dry=True) as asked:
                return asked
        case Ask():
            why = "a screen has no plan to print"
        case Probe():
            why = "a probe has no plan to print"
        case _:
            assert_never(study)
    raise UsageError(why, hint="leave out --dry-run")
