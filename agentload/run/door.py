"""Carry out a study, whatever its kind, or lay it out without asking anyone.

This is the one place that distinguishes the kinds. Decisions, and questions asked until they
decide, are made of such studies and are carried out elsewhere.
"""

from collections.abc import Callable
from typing import TypeAlias, assert_never, overload

from agentload.ask.probes import Probed, short
from agentload.errors import UsageError
from agentload.run.ask import Asked, Eval
from agentload.run.audience import Audience
from agentload.run.capacity import Found
from agentload.run.evaluation import ask, evaluation
from agentload.run.find import find_loads
from agentload.run.lay import Prepared, lay_out
from agentload.run.measure import measure, simulate
from agentload.run.place import Place
from agentload.run.play import Played
from agentload.run.probe import probe
from agentload.run.ready import ready
from agentload.run.record import Stored
from agentload.run.screen import screen
from agentload.run.simulated_answers import Answering
from agentload.study.kinds import Ask, Probe, Replay, Search, Sweep
from agentload.study.parts import Virtual

Measured: TypeAlias = Replay | Sweep | Search | Ask | Probe
Result: TypeAlias = Stored | Played | Asked | tuple[Found, ...] | Probed


@overload
def carry_out(study: Replay | Sweep, place: Place, audience: Audience) -> Stored | Played: ...
@overload
def carry_out(study: Search, place: Place, audience: Audience) -> tuple[Found, ...]: ...
@overload
def carry_out(study: Ask, place: Place, audience: Audience) -> Stored | Asked: ...
@overload
def carry_out(study: Probe, place: Place, audience: Audience) -> Probed: ...
def carry_out(study: Measured, place: Place, audience: Audience) -> Result:
    """Carry out a study and return its result."""
    match study:
        case Replay() | Sweep():
            with lay_out(study, place, notice=audience.notice) as made:
                if isinstance(study.servers, Virtual):
                    return simulate(made, audience)
                ready(made, audience.notice)
                return measure(made, place, audience)
        case Search():
            return find_loads(study, place, audience)
        case Ask(screen=True):
            return screen(study, place, audience)
        case Ask():
            with evaluation(study, place) as asked:
                return ask(asked, audience)
        case Probe():
            for caveat in short(study.prompt_tokens):
                audience.notice(f"caveat: {caveat}")
            return probe(study, audience)
        case _:
            assert_never(study)


def forecast(
    study: Measured, place: Place, *, notice: Callable[[str], None]
) -> Prepared | Eval | Answering:
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
            with evaluation(study, place, is_dry=True) as asked:
                return asked
        case Ask():
            why = "a screen has no plan to print"
        case Probe():
            why = "a probe has no plan to print"
        case _:
            assert_never(study)
    raise UsageError(why, hint="leave out --dry-run")
