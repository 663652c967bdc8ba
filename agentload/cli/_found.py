"""Say what a search for capacity found."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from agentload.cli._print import table
from agentload.run.capacity import Found
from agentload.study.kinds import What


def describe(found: Iterable[Found], what: What, *, slo: str, share: float) -> str:
    """Return the loads that were tried, and for each arm the largest that held."""
    return "\n".join(_lines(found, "sessions" if what == "max-concurrency" else "starts/s", slo, share))


def _lines(found: Iterable[Found], unit: str, slo: str, share: float) -> Iterator[str]:
    for each in found:
        yield f"{each.arm}: {_bracket(each, unit)} ({slo} ms for {share:.0%} of turns; simulated)"
        yield f"  {unit:>10}{'turns':>9}{'within':>9}{'cached':>9}{'KV peak':>9}{'preempted':>11}{'tokens/s':>10}"
        for trial in each.trials:
            cached, usage = (_share(each) for each in (trial.hit_rate, trial.peak_kv_usage))
            yield (
                f"  {trial.load:>10.4g}{trial.turns:>9,}{trial.share:>9.1%}{cached:>9}{usage:>9}"
                f"{trial.preemptions or 0:>11,}{trial.output_tokens_per_s:>10,.0f}"
            )


def _share(share: float | None) -> str:
    return "–" if share is None else f"{share:.0%}"


def _bracket(found: Found, unit: str) -> str:
    if found.holds is None:
        return f"no load holds, not even {found.trials[0].load:.4g} {unit}"
    holds, low, high = (_sessions(each) if unit == "sessions" else f"{each or 0:.3g}" for each in (found.holds, found.low, found.high))
    return f"{holds} {unit} or more" if found.high is None else f"{holds} {unit} [{low}, {high}]"


def described(found: Sequence[Found]) -> str:
    """Return a table with a line an arm: what it carries, with its interval, and which trouble there is beyond."""
    cells = [
        (each.arm, _sessions(each.holds), _sessions(each.low), _sessions(each.high), _trouble(each), str(len(each.trials)))
        for each in found
    ]
    return "\n".join(table(("arm", "holds", "surely", "at most", "trouble", "trials"), cells))


def _sessions(sessions: float | None) -> str:
    """Write whole sessions: a part of one carries nobody."""
    return "–" if sessions is None else f"{math.floor(sessions)}"


def _trouble(found: Found) -> str:
    trial = found.broken
    if trial is None or trial.trouble is None:
        return "–"
    return trial.trouble if trial.died is None else f"{trial.trouble} ({trial.died})"
