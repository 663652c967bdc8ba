"""What options of several verbs name: a policy, verdicts to fail on."""

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from agentload.cli import _defaults
from agentload.errors import ALIKE, GateError, UsageError
from agentload.verdict.policy import Setting, read_policy

if TYPE_CHECKING:
    from agentload.report.parts import Document

GATES: Final = "gates"
SLO: Final = "slo"
BOUNDED: Final = "bounded"
"""A verdict that holds up to a context only: much
of the user's trace is longer than what was tested.
"""


def setting(policy: Path | None) -> Setting:
    """Read the policy file, or take the defaults; suggested
    commands name what a defaults file here would change.
    """
    return replace(
        Setting() if policy is None else read_policy(policy), spelled=_defaults.options_of_files()
    )


def gate(fail_on: str | None) -> frozenset[str]:
    """Parse `--fail-on`; raise `UsageError` on a word that is no verdict."""
    from advisor.verdict import Word  # late: help names no verdict

    words = frozenset(word.strip() for word in fail_on.split(",")) if fail_on else frozenset[str]()
    known = [*(word.replace(" ", "-") for word in get_args(Word)), GATES, SLO, BOUNDED]
    unknown = sorted(words - {*known})
    if unknown:
        every = f"one of: {', '.join(known)}"
        near = get_close_matches(unknown[0], known, n=1, cutoff=ALIKE)
        raise UsageError(
            f"--fail-on: '{unknown[0]}' is no verdict",
            hint=f"--fail-on {near[0]}" if near else every,
        )
    return words


def check(document: "Document", words: frozenset[str]) -> None:
    """Raise `GateError` when the decision is one that the user wants to fail on."""
    decision = document.decision
    verdict = decision.choice.verdict.replace(" ", "-")
    if verdict in words:
        raise GateError(
            f"the verdict is '{decision.choice.verdict}': {document.headline}",
            hint=f"--fail-on {verdict} asked for this exit",
        )
    level = next(
        (each for each in decision.service_levels if each.arm == decision.choice.arm), None
    )
    if SLO in words and level is not None and level.is_missed:
        raise GateError(
            f"{level.arm} misses {level.limits}: {document.headline}",
            hint="relax the service level, or lower the load",
        )
    if BOUNDED in words and decision.choice.holds_to is not None:
        raise GateError(
            f"the verdict is bounded: {document.headline}",
            hint="--fail-on bounded asked for this exit",
        )
    failed = sorted({each.name for each in decision.gates if each.status == "fail"})
    if GATES in words and failed:
        raise GateError(
            f"failed gates: {', '.join(failed)}",
            hint="their figures are not usable; the report's checks say why",
        )
