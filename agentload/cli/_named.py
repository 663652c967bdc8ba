"""What options of several verbs name: a policy, a server in production, verdicts to fail on."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Final, get_args

from advisor.verdict import Word
from agentload.cli import _defaults
from agentload.cli._print import print_table
from agentload.errors import ALIKE, GateError, TraceError, UsageError
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape
from agentload.report.parts import Document
from agentload.report.sections.production import sides
from agentload.telemetry.reach import HINT, public_name, scrape
from agentload.verdict.policy import Setting, read_policy

WORDS: Final[dict[str, Word]] = {word.replace(" ", "-"): word for word in get_args(Word)}
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


def production(against: str) -> Scrape:
    """Read the metrics that `prometheus=URL|FILE` names."""
    kind, _, place = against.partition("=")
    if kind != "prometheus" or not place:
        raise UsageError(
            f"--against takes prometheus=URL or prometheus=FILE, got '{against}'",
            hint="--against prometheus=http://HOST:8000/metrics",
        )
    told = scrape(place)
    if told.histogram("prompt_tokens") is None:
        raise TraceError(
            f"{public_name(place)}: no request has ended yet, or it is no vLLM or SGLang",
            hint=f"{HINT}, after some load",
        )
    return told


def print_compared(rows: Sequence[Likeness]) -> None:
    """Print what of a trace was compared with production, and how much of it is alike."""
    print_table(
        ("next to production", "trace", "production", ""),
        [(row.what, *sides(row), row.verdict) for row in rows],
    )
    print(f"{sum(row.verdict == 'alike' for row in rows)} of {len(rows)} alike")


def gate(fail_on: str | None) -> frozenset[str]:
    """Parse `--fail-on`; raise `UsageError` on a word that is no verdict."""
    words = frozenset(word.strip() for word in fail_on.split(",")) if fail_on else frozenset[str]()
    known = [*WORDS, GATES, SLO, BOUNDED]
    unknown = sorted(words - {*known})
    if unknown:
        every = f"one of: {', '.join(known)}"
        near = get_close_matches(unknown[0], known, n=1, cutoff=ALIKE)
        raise UsageError(
            f"--fail-on: '{unknown[0]}' is no verdict",
            hint=f"--fail-on {near[0]}" if near else every,
        )
    return words


def check(document: Document, words: frozenset[str]) -> None:
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
