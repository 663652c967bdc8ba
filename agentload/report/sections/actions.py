"""Say what to do now: the canary, or what settles open questions, each with its command."""

from collections.abc import Iterable, Iterator, Sequence
from os.path import commonprefix
from typing import Final

from advisor import words
from advisor.estimate import present
from advisor.gates import client
from advisor.statistics.screen import screening
from advisor.steps import Again, Calibrate, Control, Questions, without_amount
from advisor.steps import Step as Suggestion
from advisor.verdict import Finding, Need
from agentload.model.record import Record
from agentload.report import format as say
from agentload.report import labels
from agentload.report.commands import on_own_servers, silent_options, well_known_arms
from agentload.report.parts import Step
from agentload.report.sections.canary import CANARY_HOURS, rollout
from agentload.report.sections.view import View


def do_now(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first.

    Where a defaults file would change what their commands do, the first step says so.
    """
    steps = tuple(_steps(view))
    options = ", ".join(silent_options(view.facts))
    if not options or not any(step.command for step in steps):
        return steps
    text = f"agentload.toml sets {options} here, which this run did without: take that out first."
    return (Step(text=text), *steps)


def follow_ups(view: View) -> tuple[Step, ...]:
    """List what screenings of answers found, where no graded question has settled it."""
    steps = []
    for each in view.decision.findings:
        if each.next_step is not None and _is_to_follow_up(view, each):
            text = view.typeset(f"A screening found, unproven: {each.message}")
            steps.append(Step(text=text, command=view.command(each.next_step)))
    return tuple(steps)


def _is_to_follow_up(view: View, each: Finding) -> bool:
    """Tell whether a screening of a whole server found what no other step asks for."""
    if not each.screening or each.workload is not None or each.arm is None:
        return False
    verdict = view.verdict(each.arm, None)
    if verdict is None or verdict.safe.state == "no" or verdict.verdict == "calibrate":
        return False
    if each.rule == "screened_answers":
        is_settled = verdict.safe.state in ("yes", "equal")
        return not is_settled and _stands_out(view, each.arm)
    lengths = _lengths(each.next_step)
    asked = [need.step for need in verdict.needs if isinstance(need.step, Questions)]
    return not any(lengths <= _lengths(step) for step in asked)


def _stands_out(view: View, arm: str) -> bool:
    """Tell whether the screened answers of an arm differ in a way that chance does not explain."""
    rows = [row for row in view.evidence.screen if row.arm == arm]
    pattern = screening(rows, alpha=view.policy.alpha).pattern
    return pattern in ("step", "grows", "uniform")


def _lengths(step: Suggestion | None) -> frozenset[int]:
    """Return the lengths of context that a step asks about; empty for one that has none."""
    return frozenset(getattr(step, "lengths", ()))


def _steps(view: View) -> Iterator[Step]:
    """Yield the next steps, the most urgent first.

    What held the client would hold it again. What was not measured is measured before anything
    else is settled.
    """
    if any((gate.name, gate.status) == (client.NAME, "fail") for gate in view.decision.gates):
        late = "See what kept this machine from keeping up: its timings are invalid."
        yield Step(text=late, command="agentload doctor")
    if view.compares_runs:
        yield from _between_runs(view)
    elif view.decision.kind != "measured":
        yield from _cures(view)
        yield from _measuring(view)
        return
    else:
        yield from _acting_on_decision(view)
    yield from _remedies(view)
    yield from _settling(view)
    yield from _covering(view)
    if not view.compares_runs:
        yield from _control(view)


def _measuring(view: View) -> Iterator[Step]:
    """Yield how to decide on real servers, and what these need before."""
    first_played = next((each.arm for each in view.facts.made.servers), view.reference)
    commands = on_own_servers(
        view.facts,
        view.policy,
        agents=view.evidence.deployment.peak_agents,
        reference=None if view.reference == first_played else view.reference,
    )
    write = (
        f"This run was {view.decision.kind}, so measure before you act. Write endpoints.yaml and "
        f"set the URLs of your servers in it{_edits(view)} (a minute)."
    )
    yield Step(text=write, command=commands.described)
    for need in view.needs:
        if isinstance(need.step, Calibrate):
            text = view.typeset(f"{say.capital(need.what)}.")
            yield Step(text=text, command=view.command(need.step))
    decide = "Play the benchmark on them (--dry-run says what that takes)."
    if commands.minutes is not None:
        most = say.minutes(commands.minutes)
        decide = f"Decide on them, in {most} at most (--dry-run says what that settles)."
    yield Step(text=decide, command=commands.decided)


def _edits(view: View) -> str:
    """Say what else to change in an arms file that is written for the reader."""
    written = well_known_arms(view.facts)
    if not written:
        return ", and delete the arms that you do not have"
    missing = [arm for arm in view.arms if arm not in written]
    return f", and add {say.enumeration(missing)}" if missing else ""


def _acting_on_decision(view: View) -> Iterator[Step]:
    """Yield what the decision means: start the canary, or leave the servers as they are."""
    choice = view.decision.choice
    plan = rollout(view)
    if plan is not None:
        sessions = f"{plan.percent}% of the sessions"
        if choice.holds_to is not None:
            sessions += f" whose contexts stay below {words.length(choice.holds_to)}"
        files = "canary.yaml, alerts.yaml and rollback.md are here"
        yield Step(text=f"Send {sessions} to a canary for {CANARY_HOURS} h: {files}.")
    elif choice.verdict in ("avoid", "no difference"):
        yield Step(text=f"Leave the servers on {view.against}.")


def _between_runs(view: View) -> Iterator[Step]:
    if view.decision.choice.verdict == "avoid":
        yield Step(
            text="Find what changed between the two runs: the servers' identities are under "
            "How to reproduce; a job of agentload watch keeps the history."
        )


def _covering(view: View) -> Iterator[Step]:
    """Yield what would say more of contexts that no call had; no command brings it yet."""
    longest = view.decision.choice.holds_to
    wanted = [view.typeset(need.what) for need in view.needs if need.step is None]
    if longest is not None and wanted:
        yield Step(text=f"To decide beyond {words.length(longest)}: {_together(wanted)}.")


def _controls(view: View) -> list[Control]:
    """List the controls that findings ask for."""
    asked = (each.next_step for each in view.decision.findings)
    return [step for step in asked if isinstance(step, Control)]


def _control(view: View) -> Iterator[Step]:
    """Yield the run with the A/A control that this one lacks, unless another step brings it."""
    wanted = _controls(view)
    if not wanted or any(isinstance(need.step, Control) for need in view.needs):
        return
    if command := view.command(wanted[0]):
        arm = labels.arm(wanted[0].arm)
        text = (
            f"To be surer: play {arm} twice, "
            "which shows by how much identical servers differ (A/A control)."
        )
        yield Step(text=text, command=command, cost=_controlled_cost(view))


def _controlled_cost(view: View) -> str:
    """Say how long the run takes with one arm played twice."""
    minutes = view.facts.made.minutes
    if not minutes:
        return ""
    arms = len(view.arms)
    return say.minutes(minutes * (arms + 1) / arms)


def suggestions(view: View) -> frozenset[Suggestion]:
    """Return the steps whose commands are to be taken now, without their amounts."""
    if view.decision.kind != "measured":
        return frozenset()
    needed: list[Suggestion] = present(need.step for need in view.needs)
    return frozenset(without_amount(step)[0] for step in (*needed, *_controls(view)))


def _remedy_arms(view: View) -> dict[str, str]:
    """Return what would make arms worth testing again, each with an arm that it is for."""
    return {each.remedy: each.arm for each in view.every_verdict if each.remedy is not None}


def _cures(view: View) -> Iterator[Step]:
    """Yield what to do to the reader's servers before they are measured.

    The servers of a profile stay as they are, so the same run would only show the same again.
    """
    for remedy, arm in _remedy_arms(view).items():
        yield Step(
            text=view.typeset(f"{say.capital(remedy)} on your servers before you test {arm}.")
        )


def _remedies(view: View) -> Iterator[Step]:
    """Yield what would make an arm that is avoided worth testing again."""
    for remedy, arm in _remedy_arms(view).items():
        text = view.typeset(f"{say.capital(remedy)}, then test {arm} again.")
        yield Step(text=text, command=view.command(Again()))


class _Open(Record):
    """What is missing, and the step that brings it."""

    need: Need
    step: Suggestion
    count: float
    """How much of the step is asked for."""

    @property
    def reach(self) -> tuple[int, float]:
        """Return how much the step covers: the lengths of questions, then its count."""
        return len(_lengths(self.step)), self.count


def _settling(view: View) -> Iterator[Step]:
    """Yield what settles the open questions, what was invalid first.

    Of steps that differ in a count alone, the largest settles all.
    """
    by_step: dict[Suggestion, list[_Open]] = {}
    for need in view.needs:
        if need.step is not None:
            same, count = without_amount(need.step)
            missing = _Open(need=need, step=need.step, count=count)
            by_step.setdefault(_within(same, by_step), []).append(missing)
    for found in sorted(by_step.values(), key=lambda found: _urgency(view, found)):
        largest = max(found, key=lambda each: each.reach)
        what = _together([view.typeset(each.need.what) for each in found])
        text = f"To reach a decision: {what}."
        if isinstance(largest.step, Calibrate):
            text = f"{say.capital(what)}."
        cost = labels.cost(largest.need)
        yield Step(text=text, command=view.command(largest.step), cost=cost)


def _urgency(view: View, found: Sequence[_Open]) -> tuple[bool, bool, float]:
    """Return where a step stands among others.

    First what was invalid, then what is about the arm in focus, then what takes least.
    """
    focus = labels.arm(view.focus)
    is_invalid = isinstance(found[0].step, Again)
    is_about_focus = any(focus in view.typeset(each.need.what) for each in found)
    longest = max(each.need.minutes or 0.0 for each in found)
    return not is_invalid, not is_about_focus, longest


def _within(step: Suggestion, known: Iterable[Suggestion]) -> Suggestion:
    """Return the known questions whose lengths include those of *step*, or *step* itself."""
    if isinstance(step, Questions):
        for each in known:
            is_alike = isinstance(each, Questions) and each.aa == step.aa
            if is_alike and _lengths(step) <= _lengths(each):
                return each
    return step


SHOWN: Final = 3
"""Things that one step settles, named; of more, their number."""


def _together(whats: Sequence[str]) -> str:
    """Name what a step settles, with a common start said once.

    Such as: `more paired calls of rag on FP8, chat on FP8`.
    """
    first, *others = dict.fromkeys(whats)
    same = commonprefix([first, *others])  # noqa: RUF071  # letters are meant
    start = same.rfind(" ") + 1
    named = [first, *(other[start:] for other in others)]
    text = ", ".join(named[:SHOWN])
    if len(named) > SHOWN:
        text += f" and {len(named) - SHOWN} more"
    return f"more {text}" if first.startswith("paired") else text
