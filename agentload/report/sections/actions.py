"""What to do now, and the canary with the limits that take it back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from advisor.evidence import Arm
from advisor.verdict import Need
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Limit, Rollout, Step
from agentload.report.sections.costs import sentence
from agentload.report.sections.view import View

# One part in ten is seen in the tail of a day's latencies and still bounds the harm; a day holds one cycle of the load.
CANARY_PERCENT: Final = 10
CANARY_HOURS: Final = 24
# Above the noise of two replicas under the same load (their TTFT p95 differ by a few percent), below what users notice.
TTFT_FACTOR: Final = 1.1
# A pool that is large enough does not preempt; five a minute is the least that is no accident.
PREEMPTIONS_PER_MIN: Final = 5
# MLPerf Inference bounds generated tokens to 90-110 % of the reference: a broken model that stops early is fast.
LENGTH_LOW, LENGTH_HIGH = 0.9, 1.1
# Loops end at the length limit; two points more of them than the stable servers is beyond chance at a thousand requests.
LENGTH_ENDS: Final = 0.02
# Lengths are no counts: every class has its answers at its own.
_COUNT: Final = re.compile(r"(--(?:pairs|restarts|items|seconds)) \d+")


def do_now(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first."""
    choice = view.decision.choice
    steps: list[Step] = []
    compares = view.facts.made.compared_with is not None
    if view.decision.kind != "measured" and not compares:
        endpoints = ",".join(f"{arm}=URL" for arm in view.arms)
        steps.append(
            Step(
                text=f"Measure on your own servers before you act: this run was {view.decision.kind}.",
                command=view.typed(f"agentload replay TRACE --endpoints {endpoints} --model MODEL --db agentload.duckdb"),
            )
        )
    if rollout(view) is not None:
        steps.append(
            Step(text=f"Canary {CANARY_PERCENT} %, {CANARY_HOURS} h: canary.yaml, alerts.yaml and rollback.md lie beside this report.")
        )
    elif choice.verdict in ("avoid", "no difference") and not compares:
        steps.append(Step(text=f"Leave the servers on {labels.arm(view.evidence.reference)}."))
    elif choice.verdict == "avoid":
        steps.append(Step(text="Find what changed between the two runs: the servers' identities are under How to reproduce."))
    return (*steps, *_settling(view), *_calibrating(view))


def but_for_counts(command: str) -> str:
    """Return what commands that differ in a count alone have in common."""
    return _COUNT.sub(r"\1 N", command)


def _settling(view: View) -> Iterator[Step]:
    """Yield what settles the open questions; of commands that differ in a count alone, the largest settles all."""
    focus = labels.arm(view.focus)
    by_command: dict[str, list[Need]] = {}
    for need in view.decision.needs:
        if need.command:
            by_command.setdefault(but_for_counts(need.command), []).append(need)
    for needs in sorted(by_command.values(), key=lambda each: not any(focus in view.told(need.what) for need in each)):
        largest = max(needs, key=lambda need: (need.pairs or 0, need.calls or 0, need.minutes or 0.0))
        what = "; ".join(dict.fromkeys(view.told(sentence(need)) for need in needs))
        yield Step(text=f"To settle what is open: {what}.", command=view.typed(largest.command or ""))


def _calibrating(view: View) -> Iterator[Step]:
    for finding in view.decision.findings:
        if finding.asks_for == "calibrate" and finding.next_command:
            yield Step(text=view.told(finding.message), command=view.typed(finding.next_command))


def roll_back(view: View) -> str:
    """Say in one line what ends the canary; empty when there is none."""
    plan = rollout(view)
    return " · ".join(limit.text for limit in plan.limits) if plan else ""


def rollout(view: View) -> Rollout | None:
    """Plan the canary of the chosen arm; None unless the decision is to use it."""
    choice = view.decision.choice
    if choice.verdict != "use" or choice.arm == view.evidence.reference or view.facts.made.compared_with is not None:
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
        arguments=_arguments(view, arm),
        is_whole=arm.all_flags,
        reference_arguments=_arguments(view, view.evidence.arm(view.evidence.reference)),
        percent=CANARY_PERCENT,
        hours=CANARY_HOURS,
        limits=_limits(view),
    )


def _arguments(view: View, arm: Arm) -> tuple[str, ...]:
    deployment = view.evidence.deployment
    out = ["--served-model-name", view.evidence.model.name] if arm.weights else []
    if deployment.tensor_parallel > 1:
        out += ["--tensor-parallel-size", str(deployment.tensor_parallel)]
    if deployment.max_model_len:
        out += ["--max-model-len", str(deployment.max_model_len)]
    out += ["--kv-cache-dtype", arm.expected_dtype or arm.observed_dtype or "auto"]
    if arm.skip_layers:
        out += ["--kv-cache-dtype-skip-layers", *arm.skip_layers]
    return (*out, *arm.flags)


def _limits(view: View) -> tuple[Limit, ...]:
    def p95(job: str) -> str:
        return f'histogram_quantile(0.95, sum by (le) (rate(vllm:time_to_first_token_seconds_bucket{{job="{job}"}}[15m])))'

    def mean_length(job: str) -> str:
        tokens, answers = (f'sum(rate(vllm:{name}_total{{job="{job}"}}[30m]))' for name in ("generation_tokens", "request_success"))
        return f"({tokens} / {answers})"

    def length_ends(job: str) -> str:
        ended = f'vllm:request_success_total{{job="{job}"'
        return f'sum(rate({ended},finished_reason="length"}}[30m])) / sum(rate({ended}}}[30m]))'

    preemptions = _preemptions_per_min(view)
    return (
        Limit(
            name="CanaryTimeToFirstToken",
            text=f"TTFT p95 > {TTFT_FACTOR}× stable",
            expression=f"{p95('vllm-canary')} > {TTFT_FACTOR} * {p95('vllm-stable')}",
            minutes=15,
            because="beyond what two equal replicas differ by",
        ),
        Limit(
            name="CanaryPreemptions",
            text=f"preemptions > {say.number(preemptions)}/min",
            expression=f'sum(rate(vllm:num_preemptions_total{{job="vllm-canary"}}[10m])) * 60 > {preemptions:g}',
            minutes=10,
            because="the pool is smaller, or the load larger, than in the run",
        ),
        Limit(
            name="CanaryAnswerLength",
            text=f"answers outside {say.percent(LENGTH_LOW)} to {say.percent(LENGTH_HIGH)} of stable length",
            expression=f"abs({mean_length('vllm-canary')} / {mean_length('vllm-stable')} - 1) > {LENGTH_HIGH - 1:.1f}",
            minutes=30,
            because="a cache that loses information shows first in answers that stop early or never end",
        ),
        Limit(
            name="CanaryEndsAtLength",
            text=f"{say.number(100 * LENGTH_ENDS)} pp more answers cut at the length limit",
            expression=f"{length_ends('vllm-canary')} - {length_ends('vllm-stable')} > {LENGTH_ENDS}",
            minutes=30,
            because="repetition and garbage run into the length limit",
        ),
    )


def _preemptions_per_min(view: View) -> float:
    figures = view.evidence.telemetry(None, view.decision.choice.arm)
    seen = figures.preemptions / figures.minutes if figures and figures.preemptions is not None and figures.minutes else 0.0
    # Twice what the run itself showed, where it showed any.
    return max(float(PREEMPTIONS_PER_MIN), float(round(2 * seen)))
