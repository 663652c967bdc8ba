"""What to do now, and the canary with the limits that take it back."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np

from advisor import words
from advisor.evidence import Arm
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
# a quarter of the day: enough answers to tell, and a
# turn for the worse is not thinned by a good morning
WINDOW: Final = "6h"
# An expression is looked at every minute: what chance
# exceeds once in a thousand looks would page within the day.
STANDARD_ERRORS: Final = 4
# A pool that is large enough does not preempt; five a minute is the least that is no accident.
PREEMPTIONS_PER_MIN: Final = 5
# First tokens that come late on the canary alone: what users
# would notice, and above what two equal replicas differ by.
LATE_SHARE: Final = 0.05
# MLPerf Inference bounds generated tokens to 90-110 % of
# the reference: a broken model that stops early is fast.
LENGTH_CHANGE: Final = 0.1
# Loops end at the length limit; two points more of them than the stable servers, beyond chance.
LENGTH_ENDS: Final = 0.02
# Answers of agents are long-tailed: where the run does
# not tell, a standard deviation of one and a half means.
LENGTH_SPREAD: Final = 1.5
LEAST_SHARE: Final = 0.01  # a share of which nothing was seen yet is not known to be none


def limits(view: View) -> tuple[Limit, ...]:
    """List the conditions that end the canary of the chosen arm."""
    preemptions, late_s, spread = _preemptions_per_min(view), _late_s(view), _length_spread(view)
    answers = f"clamp_min({_increase('request_success_total', CANARY)}, 1)"
    length, stable_length = _mean_length(CANARY), _mean_length(STABLE)
    return (
        Limit(
            name="CanaryTimeToFirstToken",
            text=f"TTFT above {late_s:g} s in {say.number(100 * LATE_SHARE)} pp more of the "
            "requests than on stable servers",
            expression=_more(_late(CANARY, late_s), _late(STABLE, late_s), LATE_SHARE, answers),
            minutes=15,
            because="beyond what two equal replicas differ by, at a bound of vLLM's histogram, "
            "where nothing is interpolated",
        ),
        Limit(
            name="CanaryPreemptions",
            text=f"preemptions > {say.number(preemptions)}/min",
            expression=f"sum(rate(vllm:num_preemptions_total{{{CANARY}}}[10m])) "
            f"* 60 > {preemptions:g}",
            minutes=10,
            because="the pool is smaller, or the load larger, than in the run",
        ),
        Limit(
            name="CanaryAnswerLength",
            text=f"mean answer length outside {say.percent(1 - LENGTH_CHANGE)} to "
            f"{say.percent(1 + LENGTH_CHANGE)} of stable servers'",
            expression=f"abs({length} / {stable_length} - 1) > {LENGTH_CHANGE:g} + "
            f"{STANDARD_ERRORS * spread:.1f} / sqrt({answers})",
            minutes=15,
            because="a cache that loses information shows first in answers that stop early or "
            "never end",
        ),
        Limit(
            name="CanaryEndsAtLength",
            text=f"{say.number(100 * LENGTH_ENDS)} pp more answers cut at the length limit than "
            "on stable servers",
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
    return (
        f"({_increase('generation_tokens_total', job)} / {_increase('request_success_total', job)})"
    )


def _length_ends(job: str) -> str:
    ended = f'{job},finished_reason="length"'
    return (
        f"({_increase('request_success_total', ended)} / {_increase('request_success_total', job)})"
    )


def _more(canary: str, stable: str, margin: float, answers: str) -> str:
    """Say that a share is larger on the canary by *margin*
    and by what chance makes of this many answers.
    """
    # The variance of a share is no larger than the share.
    return (
        f"{canary} - {stable} > {margin:g} + {STANDARD_ERRORS} * sqrt(clamp_min({stable}, "
        f"{LEAST_SHARE}) / {answers})"
    )


def _late_s(view: View) -> float:
    """Return the bound of vLLM's histogram above which a first
    token is late: the service level, else the p95 of the reference.
    """
    agreed = [
        slo.ttft_ms
        for each in view.workloads
        if (slo := view.policy.slo(each)) is not None and slo.ttft_ms is not None
    ]
    seen = _of_reference(view, "ttft_ms")
    late_ms = min(agreed) if agreed else float(np.quantile(seen, 0.95)) if seen.size else 1000.0
    return next((bound for bound in FIRST_TOKEN_S if bound * 1000 >= late_ms), FIRST_TOKEN_S[-1])


def _length_spread(view: View) -> float:
    """Return the standard deviation of the lengths of answers
    in means, as the run saw it, and no less than one.
    """
    tokens = _of_reference(view, "output_tokens")
    return (
        max(1.0, float(tokens.std() / tokens.mean()))
        if tokens.size and tokens.mean() > 0
        else LENGTH_SPREAD
    )


def _of_reference(view: View, column: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    found = [
        np.asarray(getattr(calls, column), dtype=np.float64)
        for calls in view.calls(view.evidence.reference)
    ]
    values = np.concatenate(found) if found else np.zeros(0)
    return values[np.isfinite(values)]


def _preemptions_per_min(view: View) -> float:
    figures = view.evidence.telemetry(None, view.decision.choice.arm)
    seen = (
        figures.preemptions / figures.minutes
        if figures and figures.preemptions is not None and figures.minutes
        else 0.0
    )
    # Twice what the run itself showed, where it showed any.
    return max(float(PREEMPTIONS_PER_MIN), float(round(2 * seen)))


# Where the number of replicas next to it is unknown: one part
# in ten bounds the harm. A day holds one cycle of the load.
CANARY_PERCENT: Final = 10
CANARY_HOURS: Final = 24


def do_now(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first; before
    commands what would make them something else here.
    """
    steps, options = tuple(_steps(view)), unspoken(view.facts)
    if not options or not any(step.command for step in steps):
        return steps
    return (
        Step(
            text=f"agentload.toml sets {', '.join(options)} here, which this run did without: "
            "take that out first."
        ),
        *steps,
    )


def _steps(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first; what was
    not measured is measured before anything else is settled.
    """
    choice = view.decision.choice
    steps: list[Step] = []
    compares = view.facts.made.compared_with is not None
    if view.decision.kind != "measured" and not compares:
        level = view.policy.slo(None)
        slo = (
            None
            if level is None
            else Slo(ttft_ms=level.ttft_ms, tpot_ms=level.tpot_ms, turn_ms=level.turn_ms)
        )
        described, decided, minutes = on_own_servers(
            view.facts,
            slo=slo,
            agents=view.evidence.deployment.peak_agents,
            decide_by=view.policy.decide_by,
        )
        return (
            Step(
                text=f"This run was {view.decision.kind}, so measure before you act. Write "
                "endpoints.yaml, set the URLs of your servers "
                "in it, and delete the arms that you do not have (a minute).",
                command=described,
            ),
            Step(
                text=f"Decide on them, in {say.minutes(minutes)} at most (--dry-run says what "
                "that settles).",
                command=decided,
            ),
            *(
                Step(text=view.typeset(f"{_upper(each.what)}."), command=view.command(each.step))
                for each in view.decision.needs
                if isinstance(each.step, Calibrate)
            ),
            *_remedies(view),
        )
    if (plan := rollout(view)) is not None:
        short = (
            ""
            if choice.holds_to is None
            else f" whose contexts stay below {words.length(choice.holds_to)}"
        )
        files = "canary.yaml, alerts.yaml and rollback.md are here"
        text = (
            f"Send {plan.percent}% of the sessions{short} to a canary for {CANARY_HOURS} h: "
            f"{files}."
        )
        steps.append(Step(text=text))
    elif choice.verdict in ("avoid", "no difference") and not compares:
        steps.append(Step(text=f"Leave the servers on {labels.arm(view.evidence.reference)}."))
    elif choice.verdict == "avoid":
        steps.append(
            Step(
                text="Find what changed between the two runs: the servers' identities are under "
                "How to reproduce; "
                "a job of agentload watch keeps the history."
            )
        )
    return (
        *steps,
        *_remedies(view),
        *_settling(view),
        *_covering(view),
        *(() if compares else _control(view)),
    )


def _covering(view: View) -> Iterator[Step]:
    """Yield what would say more of contexts that no call had: no command brings it yet."""
    wanted = [view.typeset(need.what) for need in view.decision.needs if need.step is None]
    if view.decision.choice.holds_to is not None and wanted:
        yield Step(
            text=f"To decide beyond {words.length(view.decision.choice.holds_to)}: "
            f"{_together(wanted)}."
        )


def _control(view: View) -> Iterator[Step]:
    """Yield the run that has the control which this one lacks, unless another step brings it."""
    wanted = next(
        (each.next_step for each in view.decision.findings if isinstance(each.next_step, Control)),
        None,
    )
    if wanted is None or any(isinstance(need.step, Control) for need in view.decision.needs):
        return
    if command := view.command(wanted):
        text = (
            f"To be surer: play {labels.arm(wanted.arm)} twice, which shows by how much "
            "identical servers differ (A/A control)."
        )
        yield Step(text=text, command=command, cost=_controlled_cost(view, view.played))


def _controlled_cost(view: View, pairs: int) -> str:
    """Say how long so many pairs of the run take with one arm played twice."""
    minutes, arms = view.facts.made.minutes, len(view.arms)
    return say.minutes(minutes * pairs / max(1, view.played) * (arms + 1) / arms) if minutes else ""


def suggestions(view: View) -> frozenset[Suggestion]:
    """Return the steps whose commands are among those to take now, without how much of each."""
    if view.decision.kind != "measured":
        return frozenset()
    controls = (
        each.next_step for each in view.decision.findings if isinstance(each.next_step, Control)
    )
    return frozenset(
        counted(step)[0]
        for step in (*(need.step for need in view.decision.needs), *controls)
        if step is not None
    )


def _remedies(view: View) -> Iterator[Step]:
    """Yield what would make an arm that is avoided worth testing again."""
    remedies = {
        each.remedy: each
        for each in (*view.decision.server, *view.decision.classes)
        if each.remedy is not None
    }
    for remedy, verdict in remedies.items():
        text = view.typeset(f"{_upper(remedy)}, then test {verdict.arm} again.")
        yield Step(text=text, command=view.command(Again()))


def _settling(view: View) -> Iterator[Step]:
    """Yield what settles the open questions, what was invalid first;
    of steps that differ in a count alone, the largest settles all.
    """
    focus = labels.arm(view.focus)
    by_step: dict[Suggestion, list[tuple[float, Suggestion, Need]]] = {}
    for need in view.decision.needs:
        if need.step is not None:
            same, count = counted(need.step)
            by_step.setdefault(_within(same, by_step), []).append((count, need.step, need))

    def urgency(found: list[tuple[float, Suggestion, Need]]) -> tuple[bool, bool, float]:
        about = any(focus in view.typeset(need.what) for _, _, need in found)
        return (
            not isinstance(found[0][1], Again),
            not about,
            max(need.minutes or 0.0 for _, _, need in found),
        )

    for found in sorted(by_step.values(), key=urgency):
        _, step, need = max(found, key=lambda each: (len(getattr(each[1], "lengths", ())), each[0]))
        what = _together([view.typeset(each.what) for _, _, each in found])
        text = _upper(what) if isinstance(step, Calibrate) else f"To reach a decision: {what}"
        yield Step(text=f"{text}.", command=view.command(step), cost=labels.cost(need))


def _within(step: Suggestion, known: Iterable[Suggestion]) -> Suggestion:
    """Return the questions among those that are *known*
    whose lengths hold those of *step*, or *step* itself.
    """
    if not isinstance(step, Questions):
        return step
    return next(
        (
            each
            for each in known
            if isinstance(each, Questions)
            and each.aa == step.aa
            and {*step.lengths} <= {*each.lengths}
        ),
        step,
    )


def _upper(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


SHOWN: Final = 3
"""Things that one step settles, named; of more, their number."""


def _together(whats: Sequence[str]) -> str:
    """Name what a step settles, what they begin with
    once: `more paired calls of rag on FP8, chat on FP8`.
    """
    first, *others = dict.fromkeys(whats)
    same = next(
        (
            at
            for at, letters in enumerate(zip(first, *others, strict=False))
            if len(set(letters)) > 1
        ),
        len(first),
    )
    start = first.rfind(" ", 0, same) + 1
    named = [first, *(other[start:] for other in others)]
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return f"{'more ' if first.startswith('paired') else ''}{', '.join(named[:SHOWN])}{more}"


def roll_back(view: View) -> str:
    """Say in one line what ends the canary; empty when there is none."""
    plan = rollout(view)
    return " · ".join(limit.text for limit in plan.limits) if plan else ""


def rollout(view: View) -> Rollout | None:
    """Plan the canary of the chosen arm; None unless the decision is to use it."""
    choice = view.decision.choice
    if (
        choice.verdict != "use"
        or choice.arm == view.evidence.reference
        or view.facts.made.compared_with is not None
    ):
        return None
    deployment = view.evidence.deployment
    arm = view.evidence.arm(choice.arm)
    return Rollout(
        arm=arm.name,
        label=labels.arm(arm.name),
        reference=labels.arm(view.evidence.reference),
        kind=view.decision.kind,
        model=arm.weights or view.evidence.model.name,
        version=deployment.version,
        gpus_per_replica=deployment.gpus_per_replica,
        arguments=_arguments(view, arm, most=choice.holds_to),
        is_whole=arm.all_flags,
        reference_arguments=_arguments(view, view.evidence.arm(view.evidence.reference)),
        percent=_percent(view),
        hours=CANARY_HOURS,
        limits=limits(view),
    )


def _percent(view: View) -> int:
    """Return the sessions that load the canary's one replica as much
    as each of today's: with fewer it shows nothing of its limit.
    """
    stable = view.capacity(view.evidence.reference)
    at_peak = max(stable.replicas_at_peak or 0 if stable else 0, view.evidence.deployment.replicas)
    return max(1, round(100 / (at_peak + 1))) if at_peak > 1 else CANARY_PERCENT


def _arguments(view: View, arm: Arm, *, most: float | None = None) -> tuple[str, ...]:
    """Return the arguments of an arm's server; one that is
    used for contexts up to *most* takes no longer ones.
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
