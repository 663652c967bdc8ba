"""What to do now, and the canary with the limits that take it back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from advisor.evidence import Arm
from advisor.steps import Step as Suggestion
from advisor.steps import counted
from advisor.verdict import Need
from agentload.report import labels
from agentload.report.commands import measured
from agentload.report.parts import Rollout, Step
from agentload.report.sections import alarms
from agentload.report.sections.costs import sentence
from agentload.report.sections.view import View

# Where it is not known how many replicas are beside it: one part in ten bounds the harm. A day holds one cycle of the load.
CANARY_PERCENT: Final = 10
CANARY_HOURS: Final = 24


def do_now(view: View) -> tuple[Step, ...]:
    """List the next steps, the most urgent first."""
    choice = view.decision.choice
    steps: list[Step] = []
    compares = view.facts.made.compared_with is not None
    if view.decision.kind != "measured" and not compares:
        steps.append(
            Step(
                text=f"Measure on your own servers before you act: this run was {view.decision.kind}.",
                command=measured(view.facts, view.arms, played=view.played),
            )
        )
    if (plan := rollout(view)) is not None:
        steps.append(
            Step(text=f"Canary {plan.percent} %, {CANARY_HOURS} h: canary.yaml, alerts.yaml and rollback.md lie beside this report.")
        )
    elif choice.verdict in ("avoid", "no difference") and not compares:
        steps.append(Step(text=f"Leave the servers on {labels.arm(view.evidence.reference)}."))
    elif choice.verdict == "avoid":
        steps.append(
            Step(
                text="Find what changed between the two runs: the servers' identities are under How to reproduce; "
                "a job of agentload watch keeps the history."
            )
        )
    return (*steps, *_settling(view), *_calibrating(view))


def suggestions(view: View) -> frozenset[Suggestion]:
    """Return the steps that are to be taken now, without how much of each."""
    needed = (need.step for need in view.decision.needs)
    calibrating = (finding.next_step for finding in view.decision.findings if finding.asks_for == "calibrate")
    return frozenset(counted(step)[0] for step in (*needed, *calibrating) if step is not None)


def _settling(view: View) -> Iterator[Step]:
    """Yield what settles the open questions; of steps that differ in a count alone, the largest settles all."""
    focus = labels.arm(view.focus)
    by_step: dict[Suggestion, list[tuple[float, Suggestion, Need]]] = {}
    for need in view.decision.needs:
        if need.step is not None:
            same, count = counted(need.step)
            by_step.setdefault(same, []).append((count, need.step, need))
    for found in sorted(by_step.values(), key=lambda each: not any(focus in view.told(need.what) for _, _, need in each)):
        _, largest, _ = max(found, key=lambda each: each[0])
        what = "; ".join(dict.fromkeys(view.told(sentence(need)) for _, _, need in found))
        yield Step(text=f"To settle what is open: {what}.", command=view.command(largest))


def _calibrating(view: View) -> Iterator[Step]:
    for finding in view.decision.findings:
        if finding.asks_for == "calibrate" and finding.next_step is not None:
            yield Step(text=view.told(finding.message), command=view.command(finding.next_step))


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
        percent=_percent(view),
        hours=CANARY_HOURS,
        limits=alarms.limits(view),
    )


def _percent(view: View) -> int:
    """Return the sessions that load the canary's one replica as much as each of today's: with fewer it shows nothing of its limit."""
    stable = view.capacity(view.evidence.reference)
    at_peak = max(stable.replicas_at_peak or 0 if stable else 0, view.evidence.deployment.replicas)
    return max(1, round(100 / (at_peak + 1))) if at_peak > 1 else CANARY_PERCENT


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
