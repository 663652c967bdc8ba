"""Count false alarms and found slowdowns on simulated histories
whose truth is known: `python -m tests.watch.calibration`.

Run-to-run noise is AR(1) 0.3 of 1.5%, the first run is the reference,
alarms are those of `agentload watch`, change points included.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from random import Random
from typing import Final

from agentload.watch.alarms import Alarm, ChangeRule, alarms
from tests.watch.histories import FACTS, execution, history

NOISE: Final = 0.015
LIKENESS: Final = 0.3
WITHIN: Final = 3


def noisy(rng: Random, runs: int) -> list[float]:
    """Draw the levels of runs whose noise is AR(1)."""
    out = [rng.gauss(0, NOISE)]
    while len(out) < runs:
        out.append(LIKENESS * out[-1] + rng.gauss(0, NOISE * math.sqrt(1 - LIKENESS**2)))
    return out


def raised(values: list[float]) -> tuple[Alarm, ...]:
    """Fold the values of runs, the first being the reference."""
    return alarms(history(*(each - values[0] for each in values[1:])), ChangeRule())


def false_share(rng: Random, *, histories: int, runs: int) -> float:
    """Return the share of quiet runs that raise an alarm."""
    return sum(len(raised(noisy(rng, runs + 1))) for _ in range(histories)) / (histories * runs)


def found_share(
    rng: Random, *, histories: int, before: int, by: float, within: int = WITHIN
) -> float:
    """Return the share of histories whose slowdown,
    after so many runs, is alarmed within the next ones.
    """
    stamp = execution(before).ended_ns
    assert stamp is not None
    found = 0
    for _ in range(histories):
        values = [
            each + math.log1p(by) * (place >= before)
            for place, each in enumerate(noisy(rng, before + within))
        ]
        found += any(
            each.kind == "regression" and each.raised_ns >= stamp for each in raised(values)
        )
    return found / histories


def suspect_share(rng: Random, *, histories: int, before: int = 20) -> float:
    """Return the share of alarms on a slowdown that name the version that changed with it."""
    newer = {"prod": {**FACTS["prod"], "version": "0.11.0"}}
    named = told = 0
    for _ in range(histories):
        values = noisy(rng, before + WITHIN)
        late = [
            execution(day, change=values[day] - values[0] + math.log1p(0.05), facts=newer)
            for day in range(before, before + WITHIN)
        ]
        quiet = history(*(each - values[0] for each in values[1:before]))
        found = [
            each
            for each in alarms((*quiet, *late), ChangeRule())
            if each.kind == "regression" and each.raised_ns >= (late[0].ended_ns or 0)
        ]
        told += len(found)
        named += sum("version 0.10.0 → 0.11.0" in " ".join(each.suspects) for each in found)
    return named / told


def main(histories: int = 1000) -> int:
    """Print the table; 1 when a promise is not kept."""
    rng, kept = Random(8), True

    def row(
        told: str, share: float, promise: str, is_kept: Callable[[float], bool] = lambda _: True
    ) -> None:
        nonlocal kept
        kept &= is_kept(share)
        sys.stdout.write(
            f"{told:62} {share:7.2%}  {promise}{'' if is_kept(share) else '  NOT KEPT'}\n"
        )
        sys.stdout.flush()

    sys.stdout.write(
        f"run-to-run noise {NOISE:.1%}, AR(1) {LIKENESS}, {histories:,} histories a row\n"
    )
    row(
        f"false alarms a quiet run, of {60 * histories:,}",
        false_share(rng, histories=histories, runs=60),
        "<= 1%",
        lambda x: x <= 0.01,
    )
    for before in (10, 20, 30):
        told = f"5% slower after {before} runs, alarmed within {WITHIN}"
        row(
            told,
            found_share(rng, histories=histories, before=before, by=0.05),
            ">= 90%",
            lambda x: x >= 0.9,
        )
    for within in (WITHIN, 10, 20):
        told = f"3.5% slower after 20 runs, alarmed within {within}"
        row(told, found_share(rng, histories=histories, before=20, by=0.035, within=within), "")
    row(
        "the change of version just before it is named the suspect",
        suspect_share(rng, histories=100),
        "100%",
        lambda x: x == 1,
    )
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
