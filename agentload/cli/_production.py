"""Compare with a server in production, by the metrics that an option names."""

from collections.abc import Sequence

from agentload.cli._print import print_table
from agentload.errors import TraceError, UsageError
from agentload.exposition.likeness import Likeness
from agentload.exposition.scrape import Scrape
from agentload.telemetry.reach import HINT, public_name, scrape


def production(against: str) -> Scrape:
    """Read the metrics that `prometheus=URL|FILE` names."""
    kind, _, place = against.partition("=")
    if kind != "prometheus" or not place:
        raise UsageError(
            f"--against takes prometheus=URL or prometheus=FILE, got '{against}'",
            hint="--against prometheus=http://HOST:8000/metrics",
        )
    scraped = scrape(place)
    if scraped.histogram("prompt_tokens") is None:
        raise TraceError(
            f"{public_name(place)}: no request has ended yet, or it is no vLLM or SGLang",
            hint=f"{HINT}, after some load",
        )
    return scraped


def print_compared(rows: Sequence[Likeness]) -> None:
    """Print what of a trace was compared with production, and how much of it is alike."""
    from agentload.report.sections.production import sides  # late: little is compared with it

    print_table(
        ("next to production", "trace", "production", ""),
        [(row.what, *sides(row), row.verdict) for row in rows],
    )
    print(f"{sum(row.verdict == 'alike' for row in rows)} of {len(rows)} alike")
