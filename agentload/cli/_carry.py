"""Carry a study out in the foreground, and print what came of it."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Literal, assert_never

from agentload.cli import _asking, _results
from agentload.cli._audience import TERMINAL
from agentload.cli._print import notice, print_json, rephrase, transient
from agentload.errors import GateError, InterruptError, UsageError
from agentload.evidence import grades
from agentload.evidence.block import serving_figures
from agentload.evidence.summary import summarise
from agentload.layout.cost import about
from agentload.remote.seats import nodes_of
from agentload.run import door
from agentload.run.additions import remember_addition
from agentload.run.ask import Eval, Evaluated
from agentload.run.audience import check_stored
from agentload.run.lay import Prepared
from agentload.run.place import StudyPlace
from agentload.run.play import Played
from agentload.run.questions import questions_cost
from agentload.run.record import Stored
from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Study, Sweep
from agentload.study.parts import Live
from agentload.verdict.policy import Setting
from agentload.verdict.verdict import question_pace

if TYPE_CHECKING:
    from agentload.ask.probes import Probed
    from agentload.decision.answers import AnswersEnd
    from agentload.run.capacity import ArmLoad
    from agentload.run.simulated_answers import Answering


def carry_out(
    study: Study,
    place: StudyPlace,
    *,
    is_dry: bool,
    as_json: bool,
    is_gated: bool = False,
    as_block: bool = False,
) -> None:
    """Run a study. Raises InterruptError when it was stopped,
    GateError when it is *is_gated* and an arm is not fit.

    A replay *as_block* prints each arm's figures as a block, too.
    """
    if isinstance(study.servers, Live) and not is_dry:
        transient(f"reading the trace and meeting {study.servers.endpoints} …")
    if isinstance(study, Decide):
        from agentload.cli._decide import decide  # late: most studies decide nothing

        decide(study, place, is_dry=is_dry, as_json=as_json)
    elif is_dry:
        _print_forecast(door.forecast(study, place, notice=notice), place, as_json=as_json)
    elif isinstance(study, Ask) and study.until_settled and not study.screen:
        from agentload.decision.answers import in_sequence  # late: as above

        ended = in_sequence(study, place, TERMINAL)
        _print_asked(ended.asked, place, sequence=ended, as_json=as_json)
    else:
        _print_result(study, place, as_json=as_json, is_gated=is_gated, as_block=as_block)


def _print_result(
    study: door.Measured, place: StudyPlace, *, as_json: bool, is_gated: bool, as_block: bool
) -> None:
    """Run a study and print its result."""
    match study:
        case Probe():
            probed = door.carry_out(study, place, TERMINAL)
            _print_probed(probed, as_json=as_json, is_gated=is_gated)
        case Search():
            found = door.carry_out(study, place, TERMINAL)
            remember_addition(study, place)
            _print_found(study, found, as_json=as_json)
        case Ask():
            asked = door.carry_out(study, place, TERMINAL)
            remember_addition(study, place)
            if isinstance(asked, Evaluated):
                _print_asked(asked, place, as_json=as_json)
            else:
                stored = f"run {asked.run_id} was stopped; what was screened is stored"
                stopped = InterruptError(stored) if asked.was_stopped else None
                check_stored(asked, place, TERMINAL, stopped=stopped)
                _asking.print_screen(study, place, asked.run_id, as_json=as_json)
        case Replay() | Sweep():
            played = door.carry_out(study, place, TERMINAL)
            remember_addition(study, place)
            if isinstance(played, Played):
                _print_played(played, place, as_json=as_json, as_block=as_block)
            else:
                _print_simulated(played, place, as_json=as_json, as_block=as_block)
        case _:
            assert_never(study)


def _print_forecast(
    made: "Prepared | Eval | Answering", place: StudyPlace, *, as_json: bool
) -> None:
    if not isinstance(made, Prepared):
        _print_questions(made, place, as_json=as_json)
        return
    expected = made.cost()
    study = made.playing.study
    nodes = nodes_of(study) if isinstance(study, Replay) else None
    if not as_json:
        print(rephrase(_results.plan_text(made.playing.plan, expected, made.fills, nodes=nodes)))
    else:
        print_json(expected if made.fills is None else asdict(expected) | {"fills": made.fills})


def _print_played(ended: Played, place: StudyPlace, *, as_json: bool, as_block: bool) -> None:
    if ended.load_error is None:
        summary = summarise(place.database, ended.run_id)
        print_json(summary) if as_json else print(rephrase(summary.text(invalid=ended.health.void)))
        if as_block and not as_json:
            _print_block(ended, place)
    stopped = None
    if ended.was_stopped:
        stored = f"run {ended.run_id} was stopped; what was measured is stored"
        stopped = InterruptError(stored, hint=f"resume with: {ended.goes_on}")
    check_stored(ended, place, TERMINAL, stopped=stopped)
    _decide_on(ended, place, then="report", as_json=as_json, is_late=ended.health.is_late)


def _print_block(ended: Stored, place: StudyPlace) -> None:
    for figures in serving_figures(place.database, ended.run_id):
        print("", *figures.lines(), sep="\n")


def _print_simulated(ended: Stored, place: StudyPlace, *, as_json: bool, as_block: bool) -> None:
    transient("")
    summary = summarise(place.database, ended.run_id)
    if as_json:
        print_json(summary)
    else:
        print(f"{summary.text()}\nsimulated in {ended.simulated_s or 0.0:.1f} s")
        if as_block:
            _print_block(ended, place)
    _decide_on(ended, place, then="report", as_json=as_json)


def _decide_on(
    ended: Stored,
    place: StudyPlace,
    *,
    then: Literal["advise", "report"],
    as_json: bool,
    is_late: bool = False,
) -> None:
    """Store the decision on a run that has ended, and print which verb shows it.

    Where the client *is_late*, what held it comes first.
    """
    transient("deciding …")
    from agentload.report.advise import settle  # late: servers need not wait for it

    settle(place.database, ended.run_id)
    transient("")
    if not as_json:
        print("\nNext: agentload doctor\nThen:" if is_late else "\nNext:", end=" ")
        print(f"agentload {then} {place.database} --run {ended.run_id}")


def _print_asked(
    ended: Evaluated, place: StudyPlace, *, sequence: "AnswersEnd | None" = None, as_json: bool
) -> None:
    """Print what was answered, in a sequence of looks or at once, and what the run ended with."""
    if ended.load_error is None:
        found = grades.summarise(place.database, ended.run_id)
        if not found.cells and not ended.left:
            raise UsageError(
                "no question was asked: each is longer than the shortest window of the arms",
                hint="--contexts 4k,16k",
            )
        said = {} if sequence is None else {"ending": sequence.ending, "said": sequence.said}
        print_json(asdict(found) | said) if as_json else print(_asking.summary(found))
    stopped = None
    if ended.left:
        left = f"{ended.left:,} questions {'' if sequence is None else 'of this look '}left"
        stopped = InterruptError(
            f"run {ended.run_id} was stopped with {left}; what was answered is stored",
            hint=f"resume with: {ended.goes_on}",
        )
    check_stored(ended, place, TERMINAL, stopped=stopped)
    if sequence is not None and not as_json:
        print(f"{_asking.ENDED[sequence.ending]} after {sequence.items:,} items: {sequence.said}")
    _decide_on(ended, place, then="advise", as_json=as_json)


def _print_questions(made: "Eval | Answering", place: StudyPlace, *, as_json: bool) -> None:
    study = made.study
    left = made.left()
    run = place.into or place.resume
    expected = questions_cost(
        replace(made.asked, order=left),
        arms=len(made.names),
        concurrency=study.concurrency,
        thinking_tokens=study.thinking_tokens,
        pace=question_pace(place.database, run) if run and place.database.exists() else None,
    )
    if as_json:
        print_json(expected)
        return
    print(_asking.describe(left, expected, made.names, had=len(made.asked.order) - len(left)))
    if not study.until_settled:
        return
    from agentload.decision.answers import looks  # late: most studies decide nothing
    from agentload.decision.forecast import likely

    margin = Setting().policy.accuracy_margin
    for truth, each in likely(looks(study), margin=margin, together=study.per_context).items():
        minutes = expected.minutes * each.mean_items / looks(study)[-1]
        tokens = expected.prompt_tokens * each.mean_items / looks(study)[-1]
        print(
            f"if {truth}: {each.mean_items:,.0f} items in the mean, {tokens:,.0f} tokens "
            f"in, {about(minutes)}; "
            f"{each.safe:.0%} end as accurate, {each.worse:.0%} worse, "
            f"{1 - each.safe - each.worse:.0%} undecided"
        )


def _print_found(study: Search, found: "tuple[ArmLoad, ...]", *, as_json: bool) -> None:
    if as_json:
        print_json(found)
    elif isinstance(study.servers, Live):
        _results.print_limits(found)
    else:
        print(*_results.trial_lines(study, found), sep="\n")
    from agentload.run.find import require_found  # late: most studies search nothing

    require_found(found)


def _print_probed(found: "Probed", *, as_json: bool, is_gated: bool) -> None:
    print_json(found) if as_json else _results.print_probed(found)
    troubles = tuple(found.troubles())
    if is_gated and troubles:
        raise GateError(
            "; ".join(troubles),
            hint="see --enable-prefix-caching and --kv-cache-dtype of the servers, and their logs",
        )
