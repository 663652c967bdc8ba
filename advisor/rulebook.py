"""Find rules and gates by file name, and run those whose inputs are there.

A rule whose inputs are missing is skipped and listed, never guessed. Every module of a package is
a plug-in, in the order of its name; other packages announce rules as entry points. The parameters
of a rule are its scope: `check(case)` looks at everything once, `check(case, arm)` at each
challenger, `check(case, arm, workload)` at each workload of each, `check(case, workload, arm)` the
other way round; what it finds is about that scope.
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import signature
from itertools import product
from types import ModuleType
from typing import Any

from advisor import rules
from advisor.case import Case, missing
from advisor.evidence import Arm, WorkloadClass
from advisor.verdict import Finding, Skipped

GROUP = "agentload.rules"  # entry points by which other packages announce rules
NEEDED = ("NEEDS", "check")  # what the module of a rule has to define
_ORDER = {"blocks": 0, "opposes": 1, "supports": 2, "informs": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFile:
    """Hold a rule, or say why one of another package cannot be used."""

    name: str
    module: Any = None  # what the entry point names: a module as a rule
    problem: str | None = None


@cache
def modules(package: ModuleType) -> tuple[ModuleType, ...]:
    """Return the modules of *package*, sorted by name: files are known by their names."""
    names = sorted(found.name for found in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"{package.__name__}.{name}") for name in names)


@cache
def all_rules() -> tuple[RuleFile, ...]:
    """Return our rules, then those of other packages, sorted by name.

    A rule that has a taken name, cannot be loaded or lacks a part comes with its problem.
    """
    found = [
        RuleFile(name=module.__name__.rpartition(".")[2], module=module)
        for module in modules(rules)
    ]
    for entry in sorted(entry_points(group=GROUP), key=lambda each: (each.name, each.value)):
        package = f"the package {entry.dist.name if entry.dist else '?'}"
        if entry.name in {each.name for each in found}:
            found.append(
                RuleFile(name=entry.name, problem=f"another name: that of {package} is taken")
            )
            continue
        try:
            module = entry.load()
        # whatever a package does wrong, it is named, and no other rule suffers
        except Exception as error:  # noqa: BLE001
            found.append(
                RuleFile(
                    name=entry.name,
                    problem=f"{package}, which cannot be loaded: {type(error).__name__}: {error}",
                )
            )
            continue
        lacks = [each for each in NEEDED if not hasattr(module, each)]
        problem = f"{' and '.join(lacks)}, which {package} does not define" if lacks else None
        found.append(RuleFile(name=entry.name, module=module, problem=problem))
    return tuple(found)


def findings(
    check: Callable[..., Finding | Iterable[Finding] | None], case: Case
) -> Iterator[Finding]:
    """Yield what a rule finds in each scope that its parameters name."""
    known: dict[str, list[Arm | WorkloadClass]] = {
        "arm": [*case.evidence.challengers],
        "workload": [*case.evidence.workloads],
    }
    names = [name for name in signature(check).parameters if name in known]
    for scope in product(*(known[name] for name in names)):
        found = check(case, *scope)
        of = {name: each.name for name, each in zip(names, scope, strict=True)}
        for each in [found] if isinstance(found, Finding) else found or ():
            yield replace(
                each, arm=of.get("arm", each.arm), workload=of.get("workload", each.workload)
            )


def run(case: Case) -> tuple[tuple[Finding, ...], tuple[Skipped, ...]]:
    """Return all findings, the weightiest first, and the rules that lacked data."""
    found: list[Finding] = []
    skipped: list[Skipped] = []
    for rule in all_rules():
        absent = missing(case, rule.module.NEEDS) if rule.problem is None else (rule.problem,)
        if absent:
            skipped.append(Skipped(rule=rule.name, missing=absent))
        else:
            found.extend(
                replace(each, rule=rule.name) for each in findings(rule.module.check, case)
            )
    return tuple(sorted(found, key=lambda each: _ORDER[each.kind])), tuple(skipped)
