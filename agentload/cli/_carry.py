"""Carry a study out in the foreground, and print what came of it."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Final, Literal, assert_never

from agentload.ask.probes import PrefixReuse, Probed, short
from agentload.cli import _asking
from agentload.cli._audience import TERMINAL
from agentload.cli._decide import decide
from agentload.cli._print import notice, print_json, print_table, transient
from agentload.decision.answers import Ended, in_sequence, looks
from agentload.decision.forecast import likely
from agentload.dispatch.stretches import stretches, where
from agentload.errors import GateError, InterruptError, UsageError
from agentload.evidence import grades
from agentload.evidence.summary import summarise
from agentload.layout.cost import Cost, about
from agentload.layout.long_run import Fills
from agentload.layout.plan import starts_of
from agentload.model.controls import is_control, is_replica
from agentload.model.plan import Plan
from agentload.report.advise import settle
from agentload.run.ask import Asked
from agentload.run.capacity import Found
from agentload.run.foreground import (
    asked,
    concluded,
    isolate,
    measure,
    probe,
    require,
    searched,
    simulate,
)
from agentload.run.isolation import Cell
from agentload.run.play import Played, Playing
from agentload.run.prepared import Place, Prepared, evaluation, prepared, simulation
from agentload.run.questions import Questions, QuestionsCost, questions_cost
from agentload.run.ready import ready
from agentload.run.record import again
from agentload.run.simulate import Simulation
from agentload.run.simulated_answers import answer_all, answering
from agentload.study.kinds import Ask, Decide, Probe, Replay, Search, Study, Sweep, What
from agentload.study.parts import Live, Virtual
from agentload.study.quantity import LIMITS
from agentload.verdict.policy import Setting

_ON: Final = {True: "on", False: "off", None: "–"}
_CACHE: Final[Mapping[PrefixReuse, str]] = {"hit": "another arm's", "no hit": "its own"}


def carry_out(
    study: Study, place: Place, *, is_dry: bool, as_json: bool, is_gated: bool = False
) -> None:
    """Run a study. Raises InterruptError when it was stopped,
    GateError when it is *is_gated* and an arm is not fit.
    """
    if isinstance(study.servers, Live) and not is_dry:
        transient(f"reading the trace and meeting {study.servers.endpoints} …")
    match study:
        case Replay(servers=Virtual()):
            _simulate(study, place, is_dry=is_dry, as_json=as_json)
        case Replay() | Sweep():
            with prepared(study, place, is_dry=is_dry, notice=notice) as made:
                if is_dry:
                    _print_dry(made, as_json=as_json)
                    return
                ready(made, notice)
                ended = measure(made, place, TERMINAL)
            _report(ended, made.playing, place, as_json=as_json)
        case Search():
            _search(study, place, is_dry=is_dry, as_json=as_json)
        case Ask():
            _question(study, place, is_dry=is_dry, as_json=as_json)
        case Probe():
            _probe(study, place, is_dry=is_dry, as_json=as_json, is_gated=is_gated)
        case Decide():
            decide(study, place, is_dry=is_dry, as_json=as_json)
        case _:
            assert_never(study)


def _print_dry(made: Prepared, *, as_json: bool) -> None:
    if not as_json:
        print(_planned(made.playing.plan, made.cost, made.fills))
    else:
        print_json(made.cost if made.fills is None else asdict(made.cost) | {"fills": made.fills})


def _report(ended: Played, playing: Playing | Simulation, place: Place, *, as_json: bool) -> None:
    assert isinstance(playing, Playing), playing
    if ended.load_error is None:
        summary = summarise(place.database, ended.run_id)
        print_json(summary) if as_json else print(summary.text())
    stopped = None
    if ended.was_stopped:
        stored = f"run {ended.run_id} was stopped; what was measured is stored"
        stopped = InterruptError(stored, hint=f"resume with: {playing.goes_on}")
    concluded(ended.run_id, place, TERMINAL, load_error=ended.load_error, stopped=stopped)
    _decided(place, ended.run_id, then="report", as_json=as_json)


def _decided(place: Place, run: str, *, then: Literal["advise", "report"], as_json: bool) -> None:
    """Store the decision on a run that has ended, and print which verb shows it."""
    transient("deciding …")
    settle(place.database, run)
    transient("")
    if not as_json:
        print(f"\nNext: agentload {then} {place.database} --run {run}")


def _simulate(study: Replay, place: Place, *, is_dry: bool, as_json: bool) -> None:
    made = simulation(study, place)
    if is_dry:
        _print_dry(made, as_json=as_json)
        return
    started_s = time.monotonic()
    run = simulate(made, TERMINAL, told=lambda count: transient(f"{count:,} rows"))
    transient("")
    summary = summarise(place.database, run)
    print_json(summary) if as_json else print(
        f"{summary.text()}\nsimulated in {time.monotonic() - started_s:.1f} s"
    )
    _decided(place, run, then="report", as_json=as_json)


def _search(study: Search, place: Place, *, is_dry: bool, as_json: bool) -> None:
    if is_dry:
        raise UsageError(
            "a search decides what it tries by what it finds: it has no plan to print",
            hint="leave out --dry-run",
        )
    found = searched(study, place, TERMINAL)
    if as_json:
        print_json(found)
    elif isinstance(study.servers, Live):
        _print_limits(found)
    else:
        assert study.slo is not None, "a simulated search has limits"
        print(*_trials(found, study.find, slo=LIMITS.write(study.slo), share=study.share), sep="\n")
    require(found)


def _question(study: Ask, place: Place, *, is_dry: bool, as_json: bool) -> None:
    if study.screen and is_dry:
        raise UsageError("a screen has no plan to print", hint="leave out --dry-run")
    if study.screen:
        _asking.screen_and_tell(study, place, as_json=as_json)
    elif study.until_settled and not is_dry:
        ended = in_sequence(study, place, TERMINAL)
        resume = again(study, place.database, resume=ended.asked.run_id)
        _answered(ended.asked, place, resume=resume, sequence=ended, as_json=as_json)
    elif isinstance(study.servers, Virtual):
        _answer(study, place, is_dry=is_dry, as_json=as_json)
    else:
        _ask(study, place, is_dry=is_dry, as_json=as_json)


def _ask(study: Ask, place: Place, *, is_dry: bool, as_json: bool) -> None:
    with evaluation(study, place, is_dry=is_dry) as (made, expected):
        if is_dry:
            names = [endpoint.name for endpoint in made.endpoints]
            _print_questions(study, made.asked, expected, names, as_json=as_json)
            return
        ended = asked(made, TERMINAL)
    _answered(ended, place, resume=made.goes_on_by, as_json=as_json)


def _answered(
    ended: Asked, place: Place, *, resume: str, sequence: Ended | None = None, as_json: bool
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
            hint=f"resume with: {resume}",
        )
    concluded(ended.run_id, place, TERMINAL, load_error=ended.load_error, stopped=stopped)
    if sequence is not None and not as_json:
        print(f"{_asking.ENDED[sequence.ending]} after {sequence.items:,} items: {sequence.said}")
    _decided(place, ended.run_id, then="advise", as_json=as_json)


def _print_questions(
    study: Ask, asked: Questions, expected: QuestionsCost, arms: Sequence[str], *, as_json: bool
) -> None:
    if as_json:
        print_json(expected)
        return
    print(_asking.describe(asked.order, expected, arms))
    margin = Setting().policy.accuracy_margin
    for truth, each in (
        likely(looks(study), margin=margin, together=study.per_context).items()
        if study.until_settled
        else ()
    ):
        minutes = expected.minutes * each.mean_items / looks(study)[-1]
        tokens = expected.prompt_tokens * each.mean_items / looks(study)[-1]
        print(
            f"if {truth}: {each.mean_items:,.0f} items in the mean, {tokens:,.0f} tokens "
            f"in, {about(minutes)}; "
            f"{each.safe:.0%} end as accurate, {each.worse:.0%} worse, "
            f"{1 - each.safe - each.worse:.0%} undecided"
        )


def _answer(study: Ask, place: Place, *, is_dry: bool, as_json: bool) -> None:
    made = answering(study, place)
    if is_dry:
        expected = questions_cost(
            made.asked, arms=len(made.arms), concurrency=study.concurrency, thinking_tokens=0
        )
        _print_questions(study, made.asked, expected, tuple(made.arms), as_json=as_json)
        return
    _answered(answer_all(made), place, resume="", as_json=as_json)


def _probe(study: Probe, place: Place, *, is_dry: bool, as_json: bool, is_gated: bool) -> None:
    if is_dry:
        raise UsageError("a probe has no plan to print", hint="leave out --dry-run")
    for caveat in short(study.prompt_tokens):
        notice(f"caveat: {caveat}")
    if study.matrix:
        _isolate(study, place, as_json=as_json, is_gated=is_gated)
        return
    found = probe(study, TERMINAL)
    print_json(found) if as_json else _print_probed(found)
    if is_gated and (troubles := tuple(found.troubles())):
        raise GateError(
            "; ".join(troubles),
            hint="see --enable-prefix-caching and --kv-cache-dtype of the servers, and their logs",
        )


def _isolate(study: Probe, place: Place, *, as_json: bool, is_gated: bool) -> None:
    cells = isolate(study, place, TERMINAL)
    print_json(cells) if as_json else _print_cells(cells)
    bad = [each for each in cells if each.outcome != "ok"]
    if is_gated and bad:
        raise GateError(
            f"{len(bad)} of {len(cells)} combinations are not fit for use",
            hint=f"the servers' logs: {study.servers.logs}",
        )


def _print_cells(cells: tuple[Cell, ...]) -> None:
    lines = [
        (
            each.arm,
            _ON[each.prefix_caching],
            _ON[each.cuda_graphs],
            each.outcome,
            "–" if each.exit_code is None else str(each.exit_code),
            "–" if each.agreed is None else f"{each.agreed} of {each.prompts}",
            each.detail,
        )
        for each in cells
    ]
    first = next((each for each in cells if each.agreed is not None), cells[0])
    print_table(
        (
            "arm",
            "prefix",
            "graphs",
            "outcome",
            "exit",
            f"first token as {first.arm}",
            "what was seen",
        ),
        lines,
    )


def _print_probed(found: Probed) -> None:
    for caveat in (*found.mismatches, *found.caveats):
        notice(f"caveat: {caveat}")
    caches = {each.arm: _CACHE.get(each.verdict, each.verdict) for each in found.crossed}
    lines = [
        (each.arm, each.verdict, caches.get(each.arm, "–"), each.detail()) for each in found.reuse
    ]
    print_table(("arm", "prefix reuse", "cache", "what was seen"), lines)
    if found.agreement:
        print()
        cells = [
            (
                each.arm,
                f"{each.first_token} of {each.prompts}",
                f"{each.whole} of {each.prompts}",
                str(each.failed),
                each.wrong or "–",
            )
            for each in found.agreement
        ]
        print_table(
            ("arm", f"first token as {found.reference}", "whole answer", "failed", "what is wrong"),
            cells,
        )


def _planned(plan: Plan, cost: Cost, fills: Fills | None = None) -> str:
    """Return the plan and what it costs, for people; *fills* where it is laid out to fill pools."""
    stays = [
        ", ".join(f"{arm} on {on}" for arm, on in where(stretch).items())
        for stretch in stretches(plan.rounds)
    ]
    replicas = {
        play.machine for round_ in plan.rounds for play in round_.plays if is_replica(play.machine)
    }
    orders = [" + ".join(play.arm for play in round_.plays) for round_ in plan.rounds]
    shown = " → ".join(orders[:12]) + (" → …" if len(orders) > 12 else "")
    pairs = len({play.pair for round_ in plan.rounds for play in round_.plays})
    starts = starts_of(plan)
    met = (
        sum(not is_control(arm) for arm in plan.arms) - 1
    )  # each once more to be met, but for the one that plays first
    calls = ", ".join(f"{arm} {count:,}" for arm, count in cost.calls_by_arm.items())
    return "\n".join(
        (
            (
                f"plan      {plan.design}, {len(plan.blocks)} blocks, {pairs} pairs, "
                f"{cost.rounds} rounds"
            ),
            f"order     {shown}",
            *(
                [f"starts    {starts + met} of servers, one at a time; their time is not counted"]
                if starts
                else []
            ),
            *(
                [f"replicas  {len(replicas)} of each arm, pair after pair in turn"]
                if replicas
                else []
            ),
            *([f"machines  {', then '.join(stays)}"] if len(stays) > 1 and not replicas else []),
            f"calls     {calls}",
            f"tokens    {cost.prompt_tokens:,} in, {cost.output_tokens:,} out",
            f"duration  {about(cost.minutes)} (with {cost.assumed})",
            *([f"priming   {cost.priming_minutes:.1f} min of it"] if cost.priming_minutes else []),
            *(
                [f"block     {fills.lasts_minutes:.0f} min each: {fills.because}"]
                if fills is not None
                else []
            ),
            *(f"pool      {line}" for line in (fills.lines() if fills is not None else ())),
            *(
                [f"warning   {short}"]
                if fills is not None and (short := fills.warning()) is not None
                else []
            ),
            "nothing was sent (--dry-run)",
        )
    )


def _trials(found: Iterable[Found], what: What, *, slo: str, share: float) -> Iterator[str]:
    """Yield, for each arm, the largest load that held and those that were tried."""
    unit = "sessions" if what == "max-concurrency" else "starts/s"
    for each in found:
        yield f"{each.arm}: {_bracket(each, unit)} ({slo} ms for {share:.0%} of turns; simulated)"
        yield (
            "  "
            f"{unit:>10}{'turns':>9}{'within':>9}{'cached':>9}{'KV peak':>9}{'preempted':>11}{'tokens/s':>10}"
        )
        for trial in each.trials:
            cached, usage = (_percent(each) for each in (trial.hit_rate, trial.peak_kv_usage))
            yield (
                f"  {trial.load:>10.4g}{trial.turns:>9,}{trial.share:>9.1%}{cached:>9}{usage:>9}"
                f"{trial.preemptions or 0:>11,}{trial.output_tokens_per_s:>10,.0f}"
            )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _bracket(found: Found, unit: str) -> str:
    if found.holds is None:
        return f"no load holds, not even {found.trials[0].load:.4g} {unit}"
    holds, low, high = (
        _sessions(each) if unit == "sessions" else f"{each or 0:.3g}"
        for each in (found.holds, found.low, found.high)
    )
    return f"{holds} {unit} or more" if found.high is None else f"{holds} {unit} [{low}, {high}]"


def _print_limits(found: Sequence[Found]) -> None:
    """Print a line an arm: what it carries, with
    its interval, and which trouble there is beyond.
    """
    cells = [
        (
            each.arm,
            _sessions(each.holds),
            _sessions(each.low),
            _sessions(each.high),
            _trouble(each),
            str(len(each.trials)),
        )
        for each in found
    ]
    print_table(("arm", "holds", "surely", "at most", "trouble", "trials"), cells)


def _sessions(sessions: float | None) -> str:
    """Write whole sessions: a part of one carries nobody."""
    return "–" if sessions is None else f"{math.floor(sessions)}"


def _trouble(found: Found) -> str:
    trial = found.broken
    if trial is None or trial.trouble is None:
        return "–"
    return trial.trouble if trial.died is None else f"{trial.trouble} ({trial.died})"
