"""Run every rule: a rule whose inputs are missing is skipped and listed, never guessed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from advisor import plugins, rules
from advisor.case import Case, missing
from advisor.verdict import Finding, Skipped

GROUP = "agentload.rules"  # in which other packages announce theirs
_ORDER = {"blocks": 0, "opposes": 1, "supports": 2, "informs": 3}


def run(case: Case) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Return all findings, the weightiest first, and the rules that could not look."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for rule in _rules():
        absent = missing(case, rule.module.NEEDS) if rule.problem is None else (rule.problem,)
        if absent:
            skipped.append(Skipped(rule=rule.name, missing=absent))
            continue
        found = rule.module.check(case)
        several = () if found is None else found if isinstance(found, tuple) else (found,)
        findings.extend(replace(each, rule=rule.name) for each in several)
    return tuple(sorted(findings, key=lambda each: _ORDER[each.kind])), tuple(skipped)


def _rules() -> Iterator[plugins.Announced]:
    """Yield ours, then those of other packages."""
    own = {module.__name__.rpartition(".")[2]: module for module in plugins.modules(rules)}
    yield from (plugins.Announced(name=name, module=module) for name, module in own.items())
    yield from plugins.announced(GROUP, taken=frozenset(own), needs=("NEEDS", "check"))
