"""What the verbs that decide have in common: their options, and the gate of continuous integration."""

from pathlib import Path
from typing import Annotated, Final, get_args

import typer

from advisor.verdict import Word
from agentload.errors import GateError, UsageError
from agentload.report.parts import Document
from agentload.report.policy import Setting, read_policy

Policy = Annotated[Path | None, typer.Option(help="YAML: min_change, accuracy_margin, slos, load: {peak_agents: 42}, price, …")]
Profile = Annotated[str | None, typer.Option(help="Profile that describes hardware and model of measured servers.")]
FailOn = Annotated[
    str | None, typer.Option(help="Exit with 3 on these verdicts for the whole server: avoid,calibrate,test-further,… or gates.")
]

WORDS: Final[dict[str, Word]] = {word.replace(" ", "-"): word for word in get_args(Word)}
GATES: Final = "gates"


def setting(policy: Path | None) -> Setting:
    """Read the policy file, or take the defaults."""
    return Setting() if policy is None else read_policy(policy)


def gate(fail_on: str | None) -> frozenset[str]:
    """Parse `--fail-on`; raise `UsageError` on a word that is no verdict."""
    words = frozenset(word.strip() for word in fail_on.split(",")) if fail_on else frozenset[str]()
    unknown = sorted(words - {*WORDS, GATES})
    if unknown:
        raise UsageError(f"--fail-on: '{unknown[0]}' is no verdict", hint=f"one of: {', '.join([*WORDS, GATES])}")
    return words


def check(document: Document, words: frozenset[str]) -> None:
    """Raise `GateError` when the decision is one that the user wants to fail on."""
    decision = document.decision
    verdict = decision.choice.verdict.replace(" ", "-")
    if verdict in words:
        raise GateError(f"the verdict is '{decision.choice.verdict}': {document.headline}", hint=f"--fail-on {verdict} asked for this exit")
    failed = sorted({each.name for each in decision.gates if each.status == "fail"})
    if GATES in words and failed:
        raise GateError(f"failed gates: {', '.join(failed)}", hint="their figures are not usable; the report's checks say why")
