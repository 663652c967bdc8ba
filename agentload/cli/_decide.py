"""Decide in the foreground: what is asked now, what it
said, what is left; at the end the answer and what it took.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec

from advisor.steps import CapacitySearch
from advisor.steps import Step as StepOfRun
from advisor.verdict import Need
from agentload.cli._board import Board, BoardTitle, width
from agentload.cli._closing import MOST, closing
from agentload.cli._print import ABSENT, figure, print_json, table
from agentload.decision.canary import NO_CANARY
from agentload.decision.forecast import Forecast
from agentload.decision.lighter import caveat
from agentload.decision.look import Criterion
from agentload.decision.outcome import DecisionOutcome
from agentload.decision.play import Deciding
from agentload.decision.sequence import SETTLING
from agentload.emulator import profile as profiles
from agentload.errors import AgentloadError, EndpointError, InterruptError
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Document, Step
from agentload.report.render import render, write
from agentload.run.arms import read_arms
from agentload.run.place import StudyPlace
from agentload.run.ready import check_writable
from agentload.run.record import again
from agentload.store.places import journals
from agentload.study.change import extend
from agentload.study.kinds import Decide
from agentload.study.parts import Virtual

LEAST_LOST: Final = 0.5
"""Minutes without a result that are worth a word."""
OF_ERROR: Final = 5
"""Lines below the end of a decision that was stopped: an error, and a hint with a command."""
SPENT: Final = 0.95
"""Share of a budget from which on it is as good as spent."""


def decide(
    study: Decide, place: StudyPlace, *, is_dry: bool, as_json: bool, out: Path | None = None
) -> Document | None:
    """Decide, print the answer and write its report; return it, None
    where nothing was asked. Raises InterruptError when it was stopped.
    """
    # the decision reports to the board, which in turn asks the decision for its state
    board = Board(title_of(study), lambda: deciding.state())  # noqa: PLW0108  # it comes later
    deciding = Deciding(study=study, place=place, audience=board.audience())
    if is_dry:
        forecasts = deciding.forecast()
        if as_json:
            print_json(forecasts)
        else:
            print(forecast_text(study, forecasts, replicas=deciding.means.replicas))
        return None
    if out is not None:
        check_writable(out, "--out")
    with board.shown():
        ended = deciding.play()
    if ended.document is None:
        hint = _go_on(study, place, ended)
        if ended.ending == "stopped":
            raise InterruptError("stopped before anything could be decided", hint=hint)
        if ended.late is not None:
            raise _late(ended)
        if (unaffordable := beyond_budget(ended)) is not None:
            raise AgentloadError(f"nothing is decided. {unaffordable}", hint=hint)
        raise EndpointError(
            "every pair that was played is invalid: the warnings above say why", hint=hint
        )
    folder = out or Path("reports") / ended.run_id
    paths = write(ended.document, folder)
    if as_json:
        print_json(_as_json(ended))
    else:
        page = next((path for path in paths if path.suffix == ".html"), folder)
        steps = (*_larger(study, place, ended), *ended.document.do_now)
        said = notes(study, ended)
        text = closing(
            ended.document,
            steps=steps,
            notes=said,
            took=_question_times(ended, study.budget_s / 60),
            report=page,
            width=width(),
            most=MOST if ended.ending in ("decided", "open", "budget") else MOST - OF_ERROR,
        )
        print(text)
    if ended.ending == "stopped":
        raise InterruptError(
            f"run {ended.run_id} was stopped; this is decided on what is there",
            hint=_go_on(study, place, ended),
        )
    if ended.late is not None:
        raise _late(ended)
    return ended.document


def _larger(study: Decide, place: StudyPlace, ended: DecisionOutcome) -> Iterator[Step]:
    """Yield the command that continues a decision with the budget that pays for the rest.

    In virtual time nothing continues: what comes next there is to measure real servers.
    """
    if ended.wants is None or isinstance(study.servers, Virtual):
        return
    command = again(_affordable(study, ended), place.database, resume=ended.run_id)
    yield Step(text="Continue with the budget that pays for the rest.", command=command)


def _affordable(study: Decide, ended: DecisionOutcome) -> Decide:
    """Return the decision with the budget that pays for what it wants; itself if that is paid."""
    if ended.wants is None:
        return study
    return extend(study, budget_s=60.0 * math.ceil(ended.enough_minutes))


def _late(ended: DecisionOutcome) -> AgentloadError:
    """Return the error that a decision ends with where this client cannot keep up with any load."""
    return AgentloadError(
        f"this machine cannot measure, even with the smallest load: {ended.late}",
        hint="agentload doctor says what is in the way; leave it a core, or measure from "
        "another machine",
    )


def _go_on(study: Decide, place: StudyPlace, ended: DecisionOutcome) -> str | None:
    """Return the hint that resumes a decision, or makes one in virtual time again.

    Its budget pays for what the decision wants. None if the decision has not started.
    """
    study = _affordable(study, ended)
    if isinstance(study.servers, Virtual):
        return f"make it again with: {again(study, place.database)}"
    if not journals(place.database, ended.run_id):
        return None
    return f"resume with: {again(study, place.database, resume=ended.run_id)}"


def forecast_text(study: Decide, forecasts: tuple[Forecast, ...], *, replicas: int = 1) -> str:
    """Return what a budget can settle, for people; each arm has
    this number of *replicas*, which cost money all the time.
    """
    price = _usd_per_hour(study)
    gpus = replicas * len(read_arms(study.servers).names)
    head = ["criterion", "at most", "minutes", "calls", "tokens"]
    if price is not None:
        head.append("USD")
    rows = []
    for each in forecasts:
        cells = [
            each.criterion,
            f"{each.amount:,} {_UNITS[each.criterion]}",
            f"{each.price.minutes:.0f}",
            figure(each.price.calls, ","),
            figure(each.price.tokens, ","),
        ]
        if price is not None:
            cells.append(f"{each.price.usd(price, gpus):.2f}")
        chances = ", ".join(f"{chance:.0%} if {truth}" for truth, chance in each.chances)
        rows.append((*cells, chances or ABSENT))
    whole = sum(each.price.minutes for each in forecasts)
    priming = sum(each.price.priming_minutes for each in forecasts)
    lines = [*table((*head, "chance that it is settled"), rows), ""]
    if all(each.criterion != "canary" for each in forecasts):
        lines.append(NO_CANARY)
    budget = study.budget_s / 60
    beyond = ""
    if whole > budget:
        over = math.ceil(whole) - math.floor(budget)
        beyond = f", {over} more than there is: what does not fit is not asked"
    lines.append(
        f"all of it: {math.ceil(whole)} min of a budget of {budget:.0f}{beyond}; it ends as soon "
        "as the decision is made"
    )
    if priming:
        lines.append(f"priming the contexts of windows takes {priming:.1f} min of it")
    return "\n".join((*lines, _DRY))


def _usd_per_hour(study: Decide) -> float | None:
    """Return the price of a GPU-hour: the user's, else that of the profile of the servers."""
    if study.price_usd is not None or not isinstance(study.servers, Virtual):
        return study.price_usd
    listed = profiles.read(study.servers.profile).price
    return None if listed is None else listed.usd_per_gpu_hour


_UNITS = {
    "service level": "session an arm",
    "canary": "questions",
    "speed": "block pairs",
    "step times": "twin an arm",
    "capacity": "draws of sessions",
    "accuracy": "paired questions",
}
_DRY = "nothing was sent (--dry-run)"


def title_of(study: Decide) -> BoardTitle:
    """Return the title of a decision's board."""
    names = read_arms(study.servers).names
    reference = study.reference or names[0]
    others = tuple(name for name in names if name != reference)
    traces = " + ".join(each.path for each in study.traces)
    arms = (reference, *others)
    if study.decide_by == "tasks":
        return BoardTitle(traces=traces, arms=arms, latency="task latency")
    return BoardTitle(traces=traces, arms=arms)


def notes(study: Decide, ended: DecisionOutcome) -> tuple[str, ...]:
    """Return what was spent, under which load, and what would settle the rest."""
    budget = study.budget_s / 60
    spent, whole = say.minutes(budget - ended.left_minutes), say.minutes(budget)
    unit = " min" if whole.endswith(" min") else ""
    lines = [f"Spent {spent.removesuffix(unit)} of {whole}."]
    lines += [each.said() for each in ended.apart]
    if (lighter := caveat(ended.given_up)) is not None:
        lines.append(lighter)
    if (unaffordable := beyond_budget(ended)) is not None:
        lines.append(unaffordable)
    elif ended.ending == "open":
        wanted = "; ".join(_needs(ended))
        early = "Stopped early: no" if budget - ended.left_minutes < SPENT * budget else "No"
        lines.append(f"{early} further measurement within this setup would settle it.")
        lines += [f"To settle it: {wanted}."] if wanted else []
    return tuple(lines)


def _question_times(ended: DecisionOutcome, budget: float) -> str:
    """Say what each question took of a *budget* in minutes, and what gave no result."""
    took = defaultdict[str, float](float)
    for each in ended.asked:
        took[each.stage.criterion] += each.minutes
    for part in ended.apart:
        took[f"{part.arm} alone"] += part.minutes
    lost = budget - ended.left_minutes - sum(took.values())
    if lost >= LEAST_LOST:
        took["without a result"] = lost
    parts = [f"{name} {say.minutes(minutes)}" for name, minutes in took.items() if minutes]
    return f"It took: {', '.join(parts)}." if parts else ""


_KINDS: Final[Mapping[Criterion, tuple[type[StepOfRun], ...]]] = {
    **SETTLING,
    "step times": (CapacitySearch,),
    "capacity": (CapacitySearch,),
}


def beyond_budget(ended: DecisionOutcome) -> str | None:
    """Say what the budget does not reach, and which one does; None where it was enough."""
    if ended.wants is None:
        return None
    stage, minutes = ended.wants
    missing = {stage.criterion: f"{stage.what}, {say.minutes(minutes)}"}
    criteria: tuple[Criterion, ...] = (stage.criterion, "accuracy")
    for criterion in criteria:
        need = _largest_need(ended, criterion)
        if need is None:
            continue
        is_next = criterion == stage.criterion
        fits = (need.minutes or 0.0) <= ended.left_minutes
        # What would fit into the time left is not what the budget lacks.
        if is_next and fits:
            continue
        what = f"{stage.what}, " if isinstance(need.step, CapacitySearch) else ""
        missing[criterion] = f"{what}{labels.cost(need)}"
    lacking = " and ".join(missing.values())
    # Step times are no end in themselves: they say where capacity is measured.
    named = " and ".join(missing).replace("step times", "capacity")
    return (
        f"This budget cannot settle {named}. Missing: {lacking}; "
        f"left: {say.minutes(max(0.0, ended.left_minutes))}. "
        f"--budget {math.ceil(ended.enough_minutes)}m pays for it."
    )


def _largest_need(ended: DecisionOutcome, criterion: Criterion) -> Need | None:
    """Return what would settle a criterion, as the report has it: the most of all open arms."""
    kinds = _KINDS.get(criterion, ())
    verdicts = () if ended.document is None else ended.document.decision.server
    needs = [
        need
        for each in verdicts
        for need in (*each.pays.needs, *each.safe.needs)
        if each.verdict == "test further" and isinstance(need.step, kinds)
    ]
    return max(needs, key=lambda need: need.minutes or 0.0, default=None)


def _needs(ended: DecisionOutcome) -> tuple[str, ...]:
    """Return what would settle the arms that are open, each once."""
    assert ended.document is not None
    verdicts = (each for each in ended.document.decision.server if each.verdict == "test further")
    return tuple(dict.fromkeys(need.what for each in verdicts for need in each.pays.needs))


def _as_json(ended: DecisionOutcome) -> dict[str, Any]:
    assert ended.document is not None
    return {
        "run_id": ended.run_id,
        "ending": ended.ending,
        "left_minutes": ended.left_minutes,
        "given_up": [asdict(each) for each in ended.given_up],
        "apart": [asdict(each) for each in ended.apart],
        "asked": [asdict(each) for each in ended.asked],
        "wants": None
        if ended.wants is None
        else {"stage": asdict(ended.wants[0]), "minutes": ended.wants[1]},
        "enough_minutes": None if ended.wants is None else ended.enough_minutes,
        "decision": msgspec.json.decode(render(ended.document, "json")),
    }
