"""Documents of the sample decision, with something of it changed."""

from dataclasses import replace
from functools import cache

from advisor.evidence import Evidence
from advisor.policy import Policy
from advisor.verdict import Choice, Decision
from agentload.report.document import document
from agentload.report.parts import Document, RunFacts
from tests.report import sample

POLICY = Policy()


def made(
    decision: Decision | None = None,
    evidence: Evidence | None = None,
    facts: RunFacts | None = None,
    policy: Policy = POLICY,
) -> Document:
    return document(
        decision or sample.decision(),
        evidence or sample.evidence(),
        facts or sample.facts(),
        policy=policy,
    )


@cache
def told() -> Document:
    return made()


def chosen(choice: Choice, **changes: object) -> Decision:
    # the field's own type, by name
    return replace(sample.decision(), choice=replace(choice, **changes))  # type: ignore[arg-type]


CHOICE = sample.decision().choice
