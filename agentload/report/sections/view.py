"""What every section looks at: the decision, its evidence,
the run's facts, and which arm the report speaks for.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from advisor.evidence import Calls, Evidence
from advisor.policy import Policy
from advisor.steps import Step
from advisor.verdict import ArmVerdict, Capacity, Change, Decision, Figure
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.spec import Mark, Series
from agentload.report.commands import suggested
from agentload.report.parts import RunFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Join what the sections read, with the look-ups they share."""

    decision: Decision
    evidence: Evidence
    facts: RunFacts
    policy: Policy

    @property
    def focus(self) -> str:
        """Return the challenger that the report speaks for: the
        chosen arm, or the best of those that lost to the reference.

        A run of one arm has none: then the reference speaks for itself.
        """
        choice = self.decision.choice
        names = [arm.name for arm in self.evidence.challengers] or [self.evidence.reference]
        return next((name for name in (choice.arm, choice.runner_up) if name in names), names[0])

    @property
    def arms(self) -> tuple[str, ...]:
        """List the arms, the reference first."""
        return (self.evidence.reference, *(arm.name for arm in self.evidence.challengers))

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
        if not self.evidence.challengers:
            return f"{labels.arm(self.evidence.reference)} alone on"
        return (
            f"{' and '.join(labels.arm(arm) for arm in self.arms[1:])} against "
            f"{labels.arm(self.evidence.reference)} on"
        )

    @property
    def subject(self) -> str:
        """Name what the verdicts are about, as the headings of the four lists do."""
        if labels.is_fp8(self.evidence):
            return "FP8 KV-cache"
        challengers = self.evidence.challengers
        return labels.arm(challengers[0].name) if len(challengers) == 1 else "a new arm"

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
        """Return values of an arm in its colour, under
        its name unless they are called otherwise.
        """
        slot = labels.slots(self.evidence)[arm]
        return Series(
            label=label or labels.arm(arm),
            slot=slot,
            mark=mark,
            xs=tuple(xs),
            ys=tuple(ys),
            tips=tuple(tips),
        )

    def typeset(self, words: str) -> str:
        """Set one of the advisor's sentences: its figures as ours, its arms as people call them."""
        return labels.named(say.typeset(words), self.arms)

    @property
    def played(self) -> int:
        """Count the block pairs that the figures rest on."""
        observed = (each.calls for each in self.evidence.observations if each.calls is not None)
        return len({pair for calls in observed for pair in np.unique(calls.pair).tolist()})

    def calls(self, arm: str) -> list[Calls]:
        """List the calls that were observed on an arm, class by class."""
        return [
            each.calls
            for each in self.evidence.observations
            if each.arm == arm and each.calls is not None
        ]

    def command(self, step: Step) -> str | None:
        """Return the command that takes a step; None where it could not be played."""
        return suggested(
            step, self.facts, played=self.played, joins=bool(self.evidence.observations)
        )

    def verdict(self, arm: str, workload: str | None) -> ArmVerdict | None:
        """Return the verdict on an arm for a class; with None, for the whole server."""
        verdicts = self.decision.server if workload is None else self.decision.classes
        return next(
            (each for each in verdicts if each.arm == arm and each.workload == workload), None
        )

    def change(self, metric: str, arm: str, workload: str | None) -> Change | None:
        """Return the paired change of a metric."""
        changes = self.decision.changes
        return next(
            (
                each
                for each in changes
                if (each.metric, each.arm, each.workload) == (metric, arm, workload)
            ),
            None,
        )

    def figure(self, name: str, arm: str, workload: str | None) -> Figure | None:
        """Return a figure of the evidence, of the decision's own kind only."""
        return next(
            (
                each
                for each in self.decision.figures
                if (each.name, each.arm, each.workload, each.kind)
                == (name, arm, workload, self.decision.kind)
            ),
            None,
        )

    def capacity(self, arm: str, workload: str | None = None) -> Capacity | None:
        """Return how many agents an arm carries."""
        return next(
            (
                each
                for each in self.decision.capacity
                if (each.arm, each.workload) == (arm, workload)
            ),
            None,
        )
