"""What to do now, and the canary with the limits that take it back."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from os.path import commonprefix
from typing import Final

import numpy as np

from advisor import words
from advisor.evidence import Arm, Floats
from advisor.steps import Again, Calibrate, Control, Questions, counted
from advisor.steps import Step as Suggestion
from advisor.verdict import Need
from agentload.report import format as say
from agentload.report import labels
from agentload.report.commands import on_own_servers, unspoken
from agentload.report.parts import Limit, Rollout, Step
from agentload.report.sections.view import View
from agentload.serve.facts import FIRST_TOKEN_S
from agentload.study.parts import Slo

CANARY: Final = 'job="vllm-canary"'
STABLE: Final = 'job="vllm-stable"'
WINDOW: Final = "6h"  # a quarter of the day: enough answers to tell, and a turn for the worse is not thinned by a good morning
# An expression is looked at every minute: what chance exceeds once in a thousand looks would page within the day.
STANDARD_ERRORS: Final = 4
# A pool that is large enough does not preempt; five a minute is the least that is no accident.
PREEMPTIONS_PER_MIN: Final = 5
# First tokens that come late on the canary alone: what users would notice, and above what two equal replicas differ by.
LATE_SHARE: Final = 0.05
# MLPerf Inference bounds generated tokens to 90-110 % of the reference: a broken model that stops early is fast.
LENGTH_CHANGE: Final = 0.1
# Loops end at the length limit; two points more of them than the stable servers, beyond chance.
LENGTH_ENDS: Final = 0.02
# Answers of agents are long-tailed: where the run does not tell, a standard deviation of one and a half means.
LENGTH_SPREAD: Final = 1.5
LEAST_SHARE: Final = 0.01  # a share of which nothing was seen yet is not known to be none


def limits(view: View) -> tuple[Limit, ...]:
    """List the conditions that end the canary of the chosen arm."""
    preemptions, late_s, spread = _preemptions_per_min(view), _late_s(view), _length_spread(view)
    answers = f"clamp_min({_increase('request_success_total', CANARY)}, 1)"
    length, stable_length = _mean_length(CANARY), _mean_length(STABLE)
    late, cut = say.number(100 * LATE_SHARE), say.number(100 * LENGTH_ENDS)
    short, long = say.percent(1 - LENGTH_CHANGE), say.percent(1 + LENGTH_CHANGE)
    chance = f"{STANDARD_ERRORS * spread:.1f} / sqrt({answers})"
    return (
        Limit(
            name="CanaryTimeToFirstToken",
            text=f"TTFT above {late_s:g} s in {late} pp more of the requests than on stable servers",
            expression=_more(_late(CANARY, late_s), _late(STABLE, late_s), LATE_SHARE, answers),
            minutes=15,
            because="beyond what two equal replicas differ by, at a bound of vLLM's histogram, where nothing is interpolated",
        ),
        Limit(
            name="CanaryPreemptions",
            text=f"preemptions > {say.number(preemptions)}/min",
            expression=f"sum(rate(vllm:num_preemptions_total{{{CANARY}}}[10m])) * 60 > {preemptions:g}",
            minutes=10,
            because="the pool is smaller, or the load larger, than in the run",
        ),
        Limit(
            name="CanaryAnswerLength",
            text=f"mean answer length outside {short} to {long} of stable servers'",
            expression=f"abs({length} / {stable_length} - 1) > {LENGTH_CHANGE:g} + {chance}",
            minutes=15,
            because="a cache that loses information shows first in answers that stop early or never end",
        ),
        Limit(
            name="CanaryEndsAtLength",
            text=f"{cut} pp more answers cut at the length limit than on stable servers",
            expression=_more(_length_ends(CANARY), _length_ends(STABLE), LENGTH_ENDS, answers),
            minutes=15,
            because="repetition and garbage run into the length limit",
        ),
    )


def _increase(name: str, labels: str) -> str:
    return f"sum(increase(vllm:{name}{{{labels}}}[{WINDOW}]))"


def _late(job: str, seconds: float) -> str:
    within = _increase("time_to_first_token_seconds_bucket", f'{job},le="{seconds}"')
    return f"(1 - {within} / {_increase('time_to_first_token_seconds_count', job)})"


def _mean_length(job: str) -> str:
    answers = _increase("request_success_total", job)
    return f"({_increase('generation_tokens_total', job)} / {answers})"


def _length_ends(job: str) -> str:
    ended = _increase("request_success_total", f'{job},finished_reason="length"')
    return f"({ended} / {_increase('request_success_total', job)})"


def _more(canary: str, stable: str, margin: float, answers: str) -> str:
    """Say that a share is larger on the canary by *margin* and by what chance makes of this many answers."""
    # The variance of a share is no larger than the share.
    deviation = f"sqrt(clamp_min({stable}, {LEAST_SHARE}) / {answers})"
    return f"{canary} - {stable} > {margin:g} + {STANDARD_ERRORS} * {deviation}"


def _late_s(view: View) -> float:
    """Return the bound of vLLM's histogram above which a first token is late.

    The service level, else the p95 of the reference.
    """
    levels = [slo for slo in map(view.policy.slo, view.workloads) if slo is not None]
    agreed = [slo.ttft_ms for slo in levels if slo.ttft_ms is not None]
    seen = _of_reference(view, "ttft_ms")
    late_ms = 1000.0
    if agreed:
        late_ms = min(agreed)
    elif seen.size:
        late_ms = float(np.quantile(seen, 0.95))
    return next((bound for bound in FIRST_TOKEN_S if bound * 1000 >= late_ms), FIRST_TOKEN_S[-1])


def _length_spread(view: View) -> float:
    """Return the standard deviation of the lengths of answers in means, as the run saw it, and no less than one."""
    tokens = _of_reference(view, "output_tokens")
    if not tokens.size or tokens.mean() <= 0:
        return LENGTH_SPREAD
    return max(1.0, float(tokens.std() / tokens.mean()))


def _of_reference(view: View, column: str) -> Floats:
    columns = [getattr(calls, column) for calls in view.calls(view.reference)]
    values: Floats = np.concatenate([np.zeros(0), *columns]).astype(np.float64)
    known: Floats = values[np.isfinite(values)]
    return known


def _preemptions_per_min(view: View) -> float:
    seen = view.evidence.telemetry(None, view.decision.choice.arm)
    if seen is None or seen.preemptions is None or not seen.minutes:
        return float(PREEMPTIONS_PER_MIN)
    # Twice what the run itself showed, where it showed any.
    return max(float(PREEMPTIONS_PER_MIN), float(round(2 * seen.preemptions / seen.minutes)))


# Where the number of replicas next to it is unknown: one part in ten bounds the harm. A day holds one cycle of the load.
CANARY_PERCENT: Final = 10
CANARY_HOURS: Final = 24


def do_now(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first.

    Before commands what would make them something else here.
    """
    steps, options = tuple(_steps(view)), ", ".join(unspoken(view.facts))
    if not options or not any(step.command for step in steps):
        return steps
    text = f"agentload.toml sets {options} here, which this run did without: take that out first."
    return (Step(text=text), *steps)


def _steps(view: View) -> Iterator[Step]:
    """Yield the next steps, the most urgent first.

    What was not measured is measured before anything else is settled.
    """
    if view.compares_runs:
        yield from _between_runs(view)
    elif view.decision.kind != "measured":
        yield from _measuring(view)
        yield from _remedies(view)
        return
    else:
        yield from _decided(view)
    yield from _remedies(view)
    yield from _settling(view)
    yield from _covering(view)
    if not view.compares_runs:
        yield from _control(view)


def _measuring(view: View) -> Iterator[Step]:
    """Yield how to decide on servers that run, and what these need before."""
    level = view.policy.slo(None)
    limits = None
    if level is not None:
        limits = Slo(ttft_ms=level.ttft_ms, tpot_ms=level.tpot_ms, turn_ms=level.turn_ms)
    peak = view.evidence.deployment.peak_agents
    described, decided, minutes = on_own_servers(
        view.facts, slo=limits, agents=peak, decide_by=view.policy.decide_by
    )
    write = (
        f"This run was {view.decision.kind}, so measure before you act. Write endpoints.yaml, "
        "set the URLs of your servers in it, and delete the arms that you do not have (a minute)."
    )
    yield Step(text=write, command=described)
    most = say.minutes(minutes)
    decide = f"Decide on them, in {most} at most (--dry-run says what that settles)."
    yield Step(text=decide, command=decided)
    for need in view.decision.needs:
        if isinstance(need.step, Calibrate):
            text = view.typeset(f"{_upper(need.what)}.")
            yield Step(text=text, command=view.command(need.step))


def _decided(view: View) -> Iterator[Step]:
    """Yield what the decision comes to: the canary, or to leave the servers as they are."""
    choice, plan = view.decision.choice, rollout(view)
    if plan is not None:
        short = ""
        if choice.holds_to is not None:
            short = f" whose contexts stay below {words.length(choice.holds_to)}"
        files = "canary.yaml, alerts.yaml and rollback.md are here"
        sessions = f"{plan.percent}% of the sessions{short}"
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
    """Yield what would say more of contexts that no call had: no command brings it yet."""
    longest = view.decision.choice.holds_to
    wanted = [view.typeset(need.what) for need in view.decision.needs if need.step is None]
    if longest is not None and wanted:
        yield Step(text=f"To decide beyond {words.length(longest)}: {_together(wanted)}.")


def _controls(view: View) -> list[Control]:
    """List the controls that findings ask for."""
    asked = (each.next_step for each in view.decision.findings)
    return [step for step in asked if isinstance(step, Control)]


def _control(view: View) -> Iterator[Step]:
    """Yield the run that has the control which this one lacks, unless another step brings it."""
    wanted = _controls(view)
    if not wanted or any(isinstance(need.step, Control) for need in view.decision.needs):
        return
    if command := view.command(wanted[0]):
        arm = labels.arm(wanted[0].arm)
        text = (
            f"To be surer: play {arm} twice, "
            "which shows by how much identical servers differ (A/A control)."
        )
        yield Step(text=text, command=command, cost=_controlled_cost(view, view.played))


def _controlled_cost(view: View, pairs: int) -> str:
    """Say how long so many pairs of the run take with one arm played twice."""
    minutes, arms = view.facts.made.minutes, len(view.arms)
    if not minutes:
        return ""
    return say.minutes(minutes * pairs / max(1, view.played) * (arms + 1) / arms)


def suggestions(view: View) -> frozenset[Suggestion]:
    """Return the steps whose commands are among those to take now, without how much of each."""
    if view.decision.kind != "measured":
        return frozenset()
    needed = [need.step for need in view.decision.needs if need.step is not None]
    return frozenset(counted(step)[0] for step in (*needed, *_controls(view)))


def _remedies(view: View) -> Iterator[Step]:
    """Yield what would make an arm that is avoided worth testing again."""
    verdicts = (*view.decision.server, *view.decision.classes)
    arms = {each.remedy: each.arm for each in verdicts if each.remedy is not None}
    for remedy, arm in arms.items():
        text = view.typeset(f"{_upper(remedy)}, then test {arm} again.")
        yield Step(text=text, command=view.command(Again()))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Open:
    """What is missing, and the step that brings it."""

    need: Need
    step: Suggestion
    count: float
    """How much of the step is asked for."""

    @property
    def reach(self) -> tuple[int, float]:
        """Return how much the step covers: of questions first the lengths."""
        return len(getattr(self.step, "lengths", ())), self.count


def _settling(view: View) -> Iterator[Step]:
    """Yield what settles the open questions, what was invalid first.

    Of steps that differ in a count alone, the largest settles all.
    """
    focus = labels.arm(view.focus)
    by_step: dict[Suggestion, list[_Open]] = {}
    for need in view.decision.needs:
        if need.step is not None:
            same, count = counted(need.step)
            missing = _Open(need=need, step=need.step, count=count)
            by_step.setdefault(_within(same, by_step), []).append(missing)

    def urgency(found: list[_Open]) -> tuple[bool, bool, float]:
        is_about = any(focus in view.typeset(each.need.what) for each in found)
        longest = max(each.need.minutes or 0.0 for each in found)
        return not isinstance(found[0].step, Again), not is_about, longest

    for found in sorted(by_step.values(), key=urgency):
        largest = max(found, key=lambda each: each.reach)
        what = _together([view.typeset(each.need.what) for each in found])
        is_calibration = isinstance(largest.step, Calibrate)
        text = _upper(what) if is_calibration else f"To reach a decision: {what}"
        cost = labels.cost(largest.need)
        yield Step(text=f"{text}.", command=view.command(largest.step), cost=cost)


def _within(step: Suggestion, known: Iterable[Suggestion]) -> Suggestion:
    """Return the questions among those that are *known* whose lengths hold those of *step*, or *step* itself."""
    if not isinstance(step, Questions):
        return step
    alike = (each for each in known if isinstance(each, Questions) and each.aa == step.aa)
    return next((each for each in alike if {*step.lengths} <= {*each.lengths}), step)


def _upper(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


SHOWN: Final = 3
"""Things that one step settles, named; of more, their number."""


def _together(whats: Sequence[str]) -> str:
    """Name what a step settles, what they begin with once: `more paired calls of rag on FP8, chat on FP8`."""
    first, *others = dict.fromkeys(whats)
    same = commonprefix([first, *others])  # noqa: RUF071  # letters are meant
    start = same.rfind(" ") + 1
    named = [first, *(other[start:] for other in others)]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    begin = "more " if first.startswith("paired") else ""
    return f"{begin}{', '.join(named[:SHOWN])}{more}"


def roll_back(view: View) -> str:
    """Say in one line what ends the canary; empty when there is none."""
    plan = rollout(view)
    return " · ".join(limit.text for limit in plan.limits) if plan else ""


def rollout(view: View) -> Rollout | None:
    """Plan the canary of the chosen arm; None unless the decision is to use it."""
    choice = view.decision.choice
    if choice.verdict != "use" or choice.arm == view.reference or view.compares_runs:
        return None
    deployment = view.evidence.deployment
    arm = view.evidence.arm(choice.arm)
    return Rollout(
        arm=arm.name,
        label=labels.arm(arm.name),
        reference=view.against,
        kind=view.decision.kind,
        model=arm.weights or view.evidence.model.name,
        version=deployment.version,
        gpus_per_replica=deployment.gpus_per_replica,
        arguments=_arguments(view, arm, most=choice.holds_to),
        is_whole=arm.all_flags,
        reference_arguments=_arguments(view, view.evidence.arm(view.reference)),
        percent=_percent(view),
        hours=CANARY_HOURS,
        limits=limits(view),
    )


def _percent(view: View) -> int:
    """Return the sessions that load the canary's one replica as much as each of today's.

    With fewer it shows nothing of its limit.
    """
    stable = view.capacity(view.reference)
    at_peak = max(stable.replicas_at_peak or 0 if stable else 0, view.evidence.deployment.replicas)
    return max(1, round(100 / (at_peak + 1))) if at_peak > 1 else CANARY_PERCENT


def _arguments(view: View, arm: Arm, *, most: float | None = None) -> tuple[str, ...]:
    """Return the arguments of an arm's server.

    One that is used for contexts up to *most* takes no longer ones.
    """
    deployment = view.evidence.deployment
    out = ["--served-model-name", view.evidence.model.name] if arm.weights else []
    if deployment.tensor_parallel > 1:
        out += ["--tensor-parallel-size", str(deployment.tensor_parallel)]
    ends = [end for end in (deployment.max_model_len, most) if end]
    if ends:
        out += ["--max-model-len", str(int(min(ends)))]
    out += ["--kv-cache-dtype", arm.expected_dtype or arm.observed_dtype or "auto"]
    if arm.skip_layers:
        out += ["--kv-cache-dtype-skip-layers", *arm.skip_layers]
    return (*out, *arm.flags)
