"""Ask one rule about evidence."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

from advisor import rulebook
from advisor.case import Case
from advisor.decide import assess
from advisor.evidence import Evidence, Telemetry, WorkloadClass
from advisor.policy import Policy
from advisor.verdict import Finding
from tests.advisor.worlds import Noise

QUIET = Noise(call=0.04, wander=0.01, phi=0.2, block=0.003)


def case(evidence: Evidence, policy: Policy | None = None) -> Case:
    return assess(evidence, policy or Policy())


def findings(rule: ModuleType, evidence: Evidence, policy: Policy | None = None) -> list[Finding]:
    return list(rulebook.findings(rule.check, case(evidence, policy)))


def chat_class(**changes: object) -> WorkloadClass:
    # a test names the field
    return replace(WorkloadClass(name="chat", gpu_time_share=1.0), **changes)  # type: ignore[arg-type]


def with_telemetry(evidence: Evidence, arm: str, telemetry: Telemetry) -> Evidence:
    changed = tuple(
        replace(each, telemetry=telemetry) if each.arm == arm else each
        for each in evidence.observations
    )
    return replace(evidence, observations=changed)
