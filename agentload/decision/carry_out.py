"""Carry out what a decision asks: the one place where its studies reach servers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agentload.ask.probes import Probed
from agentload.decision.answers import answers_until
from agentload.decision.means import Means
from agentload.errors import EndpointError, InterruptError
from agentload.evidence.capacity import PROBE
from agentload.model.plan import Plan
from agentload.run.arms import read_arms
from agentload.run.audience import check_stored
from agentload.run.capacity import Found, Loads
from agentload.run.find import find_loads
from agentload.run.lay import Prepared, lay_out
from agentload.run.measure import measure, play_stages
from agentload.run.past import began
from agentload.run.play import Played, Playing
from agentload.run.probe import probe as probe_servers
from agentload.run.questions import Question
from agentload.run.screen import screen
from agentload.run.trial import Trial
from agentload.study.kinds import Ask, Probe, Replay, Search
from agentload.study.parts import Live


def carry_out_probe(means: Means, study: Probe) -> Probed:
    """Try the servers."""
    return probe_servers(study, means.audience)


def carry_out_screen(means: Means, study: Ask) -> None:
    """Screen the answers of the arms, and add them to the run."""
    screen(study, means.beside, means.audience)


def carry_out_questions(means: Means, study: Ask, order: tuple[Question, ...], items: int) -> None:
    """Ask graded questions of the run, until there are *items* answers in all.

    Raises InterruptError where some are left.
    """
    ended = answers_until(study, items, means.beside, means.audience, order=order)
    if not means.is_virtual:
        check_stored(ended, means.place, means.audience)
    if ended.left:
        raise InterruptError("stopped")


def carry_out_trials(
    means: Means,
    study: Search,
    *,
    loads: Mapping[str, Loads] = MappingProxyType({}),
    before: Mapping[str, Sequence[Trial]] = MappingProxyType({}),
    most: int | None = None,
    probe: str = PROBE,
) -> tuple[Found, ...]:
    """Try these loads on each arm besides those *before*, or search; keep what was found."""
    return find_loads(
        study, means.beside, means.audience, loads=loads, before=before, most=most, probe=probe
    )


def carry_out_pairs(
    means: Means, study: Replay, following: Callable[[Prepared], Prepared]
) -> Played:
    """Play block pairs in the run itself, after *following* has adapted the layout."""
    is_begun = began(means.place.database, means.run) is not None
    run, resume = (None, means.run) if is_begun else (means.run, None)
    place = replace(means.place, run=run, resume=resume)
    with lay_out(study, place, notice=means.audience.notice) as made:
        return measure(following(made), place, means.audience)


def carry_out_plan(
    means: Means, servers: Live, study: Replay, plan: Plan, *, trace_hash: str
) -> Played:
    """Play a plan and add it to the run.

    Raises EndpointError where a server is gone, InterruptError where it was stopped.
    """
    arms = read_arms(servers)
    with arms.up(noise=servers.noise, seed=plan.seed) as found:
        playing = Playing(
            study=study,
            plan=plan,
            endpoints=found,
            database=means.place.database,
            trace_hash=trace_hash,
            into=means.run,
            launching=arms.launching,
        )
        ended = play_stages(playing, means.audience)
    conclude(means, ended)
    return ended


def conclude(means: Means, ended: Played) -> None:
    """Raise the error a part ends with: a server gone, a stop, rows missing in the database."""
    check_stored(ended, means.place, means.audience)
    if ended.died:
        raise EndpointError(f"{', '.join(ended.died)} stopped answering", hint="start it again")
    if ended.was_stopped:
        raise InterruptError("stopped")
