"""Assemble the document.

What the report says, section by section, with every number decided and in words.
"""

from collections.abc import Iterator, Sequence

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.steps import Step
from advisor.verdict import Decision, Need
from agentload.exposition.likeness import Likeness
from agentload.report.parts import Document, Group, RunFacts
from agentload.report.sections import (
    accuracy,
    actions,
    arms,
    belief,
    canary,
    capacity,
    certainty,
    checks,
    coverage,
    differences,
    latency,
    opening,
    production,
    reasons,
    tasks,
    timeline,
    workloads,
)
from agentload.report.sections.view import View


def document(
    decision: Decision, evidence: Evidence, facts: RunFacts, *, policy: Policy
) -> Document:
    """Lay out a decision in the order in which a reader needs it."""
    view = View(decision=decision, evidence=evidence, facts=facts, policy=policy)
    headline, tone = opening.headline(view)
    likeness = production.comparison(view)
    checked = (*belief.belief(view), production.representative(view, likeness))
    return Document(
        run=decision.run,
        kind=decision.kind,
        banner=opening.banner(view),
        title=view.title,
        model=decision.model,
        where=opening.where(view),
        about=opening.about(view),
        headline=headline,
        tone=tone,
        why=opening.why(view),
        arms=arms.server(view),
        criteria=arms.criteria(view),
        sure=certainty.confidence(view, checked, likeness),
        screened=actions.follow_ups(view),
        do_now=(*actions.do_now(view), *actions.follow_ups(view)),
        coverage=coverage.line(view),
        load=coverage.load(view),
        by_workload=opening.by_workload(view),
        identity=opening.identity(view),
        roll_back=canary.roll_back(view),
        unmeasured=opening.gaps(view),
        flips=opening.flips(view),
        answers=opening.answers(view),
        lists=opening.lists(view),
        no_difference=opening.no_difference(view),
        asides=opening.asides(view),
        belief=checked,
        verdicts=reasons.verdicts(view),
        findings=reasons.findings(view),
        skipped=checks.skipped_rules(view),
        gates=checks.gates(view),
        groups=_groups(view, likeness),
        reproduction=checks.reproduction(view),
        servers=checks.servers(view),
        commands=checks.commands(view),
        rollout=canary.rollout(view),
        decision=decision,
        next_commands={step: view.command(step) for step in dict.fromkeys(_steps(decision))},
        policy=policy,
        made=facts.made,
        production=likeness,
    )


def _steps(decision: Decision) -> Iterator[Step]:
    """Yield every step that a decision suggests."""
    for need in _needs(decision):
        if need.step is not None:
            yield need.step
    for finding in decision.findings:
        if finding.next_step is not None:
            yield finding.next_step


def _needs(decision: Decision) -> Iterator[Need]:
    """Yield what the decision, its findings and its verdicts lack."""
    yield from decision.needs
    for finding in decision.findings:
        if finding.need is not None:
            yield finding.need
    for verdict in (*decision.server, *decision.classes):
        yield from verdict.needs
        for leg in (verdict.pays, verdict.safe, verdict.capacity):
            if leg is not None:
                yield from leg.needs


def _groups(view: View, likeness: Sequence[Likeness]) -> tuple[Group, ...]:
    found = (
        differences.differences(view),
        coverage.coverage(view),
        workloads.server(view),
        tasks.tasks(view),
        latency.latency(view),
        capacity.capacity(view),
        timeline.timeline(view),
        accuracy.accuracy(view),
        production.production(view, likeness),
        *(workloads.workload(view, name) for name in view.workloads),
        checks.priors(view),
    )
    return tuple(group for group in found if group is not None)
