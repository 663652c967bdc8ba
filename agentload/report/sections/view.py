"""Hold what every section reads.

The decision, its evidence, the run's facts, and which arm the report speaks for.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from advisor.estimate import present
from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.steps import Step
from advisor.verdict import ArmVerdict, Capacity, Change, Decision, Figure, Need
from agentload.model.record import Record
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Mark, Series
from agentload.report.commands import suggestion
from agentload.report.lookup import first
from agentload.report.parts import RunFacts


class View(Record):
    """Join what the sections read, with the look-ups they share."""

    decision: Decision
    evidence: Evidence
    facts: RunFacts
    policy: Policy

    @property
    def focus(self) -> str:
        """Return the challenger that the report speaks for.

        This is the chosen arm, or the best of those that lost to the reference. In a run of one
        arm, it is the reference.
        """
        choice = self.decision.choice
        names = self.others or (self.reference,)
        if choice.arm in names:
            return choice.arm
        return choice.runner_up if choice.runner_up in names else names[0]

    @property
    def reference(self) -> str:
        """Return the arm that the others are compared with."""
        return self.evidence.reference

    @property
    def against(self) -> str:
        """Name the reference as people write it."""
        return labels.arm(self.reference)

    @property
    def others(self) -> tuple[str, ...]:
        """List the arms without the reference."""
        return tuple(arm.name for arm in self.evidence.challengers)

    @property
    def focus_first(self) -> list[str]:
        """List the arms without the reference, the one that the report speaks for first."""
        return sorted(self.others, key=lambda arm: arm != self.focus)

    @property
    def arms(self) -> tuple[str, ...]:
        """List the arms, the reference first."""
        return (self.reference, *self.others)

    @property
    def columns(self) -> tuple[str, ...]:
        """Name the arms as people write them, the reference first."""
        return tuple(map(labels.arm, self.arms))

    @property
    def slots(self) -> labels.Slots:
        """Return the colour of each arm."""
        return labels.slots(self.evidence)

    @property
    def compares_runs(self) -> bool:
        """Tell whether two runs are compared, whose arms then are runs."""
        return self.facts.made.compared_with is not None

    @property
    def workloads(self) -> tuple[str, ...]:
        """List the workload classes, the one with most of the server's time first."""
        ordered = sorted(self.evidence.workloads, key=lambda each: -(each.gpu_time_share or 0.0))
        return tuple(each.name for each in ordered)

    @property
    def title(self) -> str:
        """Name what was compared."""
        if labels.is_fp8(self.evidence):
            return "FP8 KV cache for"
        if not self.others:
            return f"{self.against} alone on"
        return f"{' and '.join(map(labels.arm, self.others))} against {self.against} on"

    def subject(self, arms: Sequence[str]) -> str:
        """Name what the heading of a list is about, in which these *arms* are."""
        if labels.is_fp8(self.evidence):
            return "FP8 KV-cache"
        named = arms or self.others
        if len(named) != 1:
            return "a new arm"
        return labels.arm(named[0])

    def series(
        self,
        arm: str,
        mark: Mark,
        xs: Iterable[float],
        ys: Iterable[float],
        *,
        tips: Iterable[str] = (),
        label: str | None = None,
    ) -> Series:
        """Return values of an arm in its colour, under its name unless a *label* is given."""
        return Series(
            label=label or labels.arm(arm),
            slot=self.slots[arm],
            mark=mark,
            xs=tuple(xs),
            ys=tuple(ys),
            tips=tuple(tips),
        )

    def typeset(self, words: str) -> str:
        """Set one of the advisor's sentences with our figures and the arms' labels."""
        return labels.with_names(say.typeset(words), self.arms)

    @property
    def unlike(self) -> tuple[str, ...]:
        """Say on what the run was measured that carries over to no server in use."""
        evidence = self.evidence
        found = []
        if evidence.deployment.gpu.name.upper().startswith("CPU"):
            found.append("on a CPU")
        has_dummy_weights = any("dummy" in arm.flags for arm in evidence.arms)
        if has_dummy_weights or "random" in evidence.model.name.lower():
            found.append("with random weights")
        return tuple(found)

    @property
    def played(self) -> int:
        """Count the block pairs that the figures rest on."""
        pairs: set[int] = set()
        for each in self.evidence.observations:
            if each.calls is not None:
                pairs.update(np.unique(each.calls.pair).tolist())
        return len(pairs)

    def calls(self, arm: str) -> list[Calls]:
        """List the calls that were observed on an arm, class by class."""
        observed = self.evidence.observations
        return present(each.calls for each in observed if each.arm == arm)

    def command(self, step: Step) -> str | None:
        """Return the command that takes a step; None where it would be refused."""
        joins = bool(self.evidence.observations)
        return suggestion(step, self.facts, played=self.played, joins=joins)

    def verdict(self, arm: str, workload: str | None) -> ArmVerdict | None:
        """Return the verdict on an arm for a class; with None, for the whole server."""
        verdicts = self.decision.server if workload is None else self.decision.classes
        return first(verdicts, arm=arm, workload=workload)

    @property
    def focus_verdict(self) -> ArmVerdict | None:
        """Return the verdict on the arm that the report speaks for; None for the reference."""
        return self.verdict(self.focus, None)

    def has_valid_timings(self, arm: str, workload: str | None) -> bool:
        """Tell whether no check invalidates how an arm's timings compare.

        Where one does, its speed counts as untested although changes were computed.
        """
        found = self.verdict(arm, workload)
        is_compared = any(change.arm == arm for change in self.decision.changes)
        return found is None or found.pays.state != "untested" or not is_compared

    @property
    def every_verdict(self) -> tuple[ArmVerdict, ...]:
        """List the verdicts on whole servers, then those on classes."""
        return (*self.decision.server, *self.decision.classes)

    def verdicts(self, workload: str | None) -> tuple[ArmVerdict | None, ...]:
        """List the verdicts on the arms other than the reference."""
        return tuple(self.verdict(arm, workload) for arm in self.others)

    @property
    def needs(self) -> tuple[Need, ...]:
        """List what is missing: of a class only where its whole server is settled."""
        waiting: set[Need] = set()
        due: set[Need] = set()
        for each in self.every_verdict:
            side = waiting if self.decision.waits_for_mix(each) else due
            side.update(each.needs)
        return tuple(need for need in self.decision.needs if need in due or need not in waiting)

    def change(self, metric: str, arm: str, workload: str | None) -> Change | None:
        """Return the paired change of a metric."""
        return first(self.decision.changes, metric=metric, arm=arm, workload=workload)

    def changes(self, metric: str, workload: str | None) -> list[Change | None]:
        """List the paired change of a metric on each arm other than the reference."""
        return [self.change(metric, arm, workload) for arm in self.others]

    def figure(self, name: str, arm: str, workload: str | None) -> Figure | None:
        """Return a figure of the evidence, of the decision's own kind only."""
        kind = self.decision.kind
        return first(self.decision.figures, name=name, arm=arm, workload=workload, kind=kind)

    def figures(self, name: str, workload: str | None) -> list[Figure | None]:
        """List a figure of each arm, the reference first."""
        return [self.figure(name, arm, workload) for arm in self.arms]

    def capacity(self, arm: str, workload: str | None = None) -> Capacity | None:
        """Return how many agents an arm carries."""
        return first(self.decision.capacity, arm=arm, workload=workload)

    @property
    def has_agents_per_gpu(self) -> bool:
        """Tell whether the agents that a GPU of some arm carries were measured."""
        return any(each.agents_per_gpu is not None for each in self.decision.capacity)
