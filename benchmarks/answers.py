"""Simulate questions in sequence: how many items "as accurate" takes,
how often it is wrong, and what several questions a context save.

    python -m benchmarks.answers [--draws 2000]

The looks and the error that each may spend are those of `agentload eval
--until-settled` and `agentload decide`; next to them the fixed number of items that
shows the same with nine chances of ten. Where hardly anything differs, a fixed
number is smaller: a sequence pays where it is not known beforehand how much does.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from advisor.statistics.looks import AnswerTruth, Ends, ends
from advisor.statistics.planning import PLANNED_ANSWERS, items_needed
from agentload.cli._print import table
from agentload.decision.look import ITEMS

MARGIN = 0.03
TRUTHS = (
    ("equal", 0.10, 0.0),
    ("equal", 0.05, 0.0),
    ("equal", 0.03, 0.0),
    ("equal", 0.01, 0.0),
    ("at the margin", 0.10, -0.03),
    ("at the margin", 0.05, -0.03),
    ("1 pp worse", 0.10, -0.01),
    ("10 pp worse", 0.12, -0.10),
)
TOGETHER = 8
CORRELATIONS = (0.0, 0.1, 0.3)


def played(
    flips: float, change: float, draws: int, *, together: int = 1, correlation: float = 0.0
) -> Ends:
    """Simulate one truth."""
    return ends(
        ITEMS,
        AnswerTruth(flips=flips, change=change, together=together, correlation=correlation),
        margin=MARGIN,
        level=PLANNED_ANSWERS,
        draws=draws,
    )


def alone(draws: int) -> Iterator[tuple[str, ...]]:
    """Yield a line a truth, each question behind a context of its own."""
    for name, flips, change in TRUTHS:
        found = played(flips, change, draws)
        fixed = f"{items_needed(flips, MARGIN):,}" if change == 0 else "–"
        yield (
            name,
            f"{flips:.0%}",
            f"{found.mean_items:,.0f}",
            fixed,
            f"{found.safe:.1%}",
            f"{found.worse:.1%}",
        )


def shared(draws: int) -> Iterator[tuple[str, ...]]:
    """Yield a line a correlation, eight questions behind each context."""
    single = played(0.10, 0.0, draws).contexts
    for correlation in CORRELATIONS:
        equal = played(0.10, 0.0, draws, together=TOGETHER, correlation=correlation)
        wrong = played(0.10, -MARGIN, draws, together=TOGETHER, correlation=correlation)
        yield (
            f"{correlation:.1f}",
            f"{equal.contexts:,.0f}",
            f"{equal.contexts / single:.0%}",
            f"{equal.safe:.0%}",
            f"{wrong.safe:.1%}",
        )


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000)
    draws = parser.parse_args().draws
    for line in table(
        ("truth", "items that differ", "items, mean", "fixed", "as accurate", "worse"),
        list(alone(draws)),
    ):
        print(line)
    print(f"\n{TOGETHER} questions behind a context, 10% of the items differ:")
    columns = (
        "correlation",
        "contexts, mean",
        "of one question each",
        "as accurate",
        "wrong at the margin",
    )
    for line in table(columns, list(shared(max(1, draws // 5)))):
        print(line)


if __name__ == "__main__":
    main()
