"""Options that several verbs have, and what they name: a policy, a profile, a server in production."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from agentload.cli._print import print_table
from agentload.errors import TraceError, UsageError
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape
from agentload.report.policy import Setting, read_policy
from agentload.report.sections.production import shown
from agentload.telemetry.reach import HINT, called, scrape

Policy: TypeAlias = Annotated[Path | None, typer.Option(help="YAML: min_change, accuracy_margin, slos, load: {peak_agents: 42}, price, …")]
Profile: TypeAlias = Annotated[str | None, typer.Option(help="Profile that describes hardware and model of measured servers.")]
Against: TypeAlias = Annotated[
    str | None, typer.Option(help="Compare with production: prometheus=URL or prometheus=FILE, a /metrics text.")
]


def setting(policy: Path | None) -> Setting:
    """Read the policy file, or take the defaults."""
    return Setting() if policy is None else read_policy(policy)


def production(against: str) -> Scrape:
    """Read the metrics that `prometheus=URL|FILE` names."""
    kind, _, place = against.partition("=")
    if kind != "prometheus" or not place:
        raise UsageError(
            f"--against takes prometheus=URL or prometheus=FILE, got '{against}'", hint="--against prometheus=http://HOST:8000/metrics"
        )
    told = scrape(place)
    if told.histogram("prompt_tokens") is None:
        raise TraceError(f"{called(place)}: no request has ended yet, or it is no vLLM or SGLang", hint=f"{HINT}, after some load")
    return told


def print_compared(rows: Sequence[Likeness], *, ours: str) -> None:
    """Print a table of what was compared with production, and how much of it is alike."""
    print_table(("beside production", ours, "production", ""), [(row.what, *shown(row), row.verdict) for row in rows])
    print(f"{sum(row.verdict == 'alike' for row in rows)} of {len(rows)} alike")
