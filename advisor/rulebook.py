"""Run every rule: a rule whose inputs are missing is skipped and listed, never guessed."""

from __future__ import annotations

from dataclasses import replace

from advisor import plugins, rules
from advisor.case import Case, missing
from advisor.verdict import Finding, Skipped

_ORDER = {"blocks": 0, "opposes": 1, "supports": 2, "informs": 3}


def run(case: Case) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Return all findings, the weightiest first, and the rules that could not look."""
    findings: list[Finding] = []
    skipped: list[Skipped] = []
    for module in plugins.modules(rules):
        name = module.__name__.rpartition(".")[2]
        absent = missing(case, module.NEEDS)
        if absent:
            skipped.append(Skipped(rule=name, missing=absent))
            continue
        found = module.check(case)
        several = () if found is None else found if isinstance(found, tuple) else (found,)
        findings.extend(replace(each, rule=name) for each in several)
    return tuple(sorted(findings, key=lambda each: _ORDER[each.kind])), tuple(skipped)
