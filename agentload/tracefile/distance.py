"""Compare a trace's lengths and waits with a real trace's, by ratios of quantiles.

Ratios between the real trace's own halves show how far equal traces may differ. Calls
count alike whatever their event, since recorded traces have none.
"""

from array import array
from collections import defaultdict
from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from agentload.model.record import Record
from agentload.model.trace import Trace
from agentload.model.walk import families
from agentload.tracefile.overview import fields

FIELDS: Final = ("context", "output", "tool", "wait.tool", "wait.user")
FIGURES: Final = {"q50": 0.50, "q90": 0.90, "q99": 0.99}
LOW = 0.8
HIGH = 1.25
"""Bounds of a ratio that counts as alike: judgement."""
_SPLITS: Final = 100
_WITHIN: Final = (0.05, 0.95)
Verdict: TypeAlias = Literal["alike", "as its halves", "more", "less"]


class Distance(Record):
    """One quantile of a field in both traces."""

    field: str
    figure: str
    ours: float
    real: float
    ratio: float
    halves: tuple[float, float]
    """Range of this ratio between halves of the real trace, drawn by session.

    Nine in ten are within.
    """
    verdict: Verdict


def distances(ours: Trace, real: Trace) -> Iterator[Distance]:
    """Compare the fields that both traces have; quantiles that are 0 in *real* are left out."""
    mine = _values(ours)
    theirs = _values(real)
    for field in FIELDS:
        if field not in mine or field not in theirs:
            continue
        values, owners = theirs[field]
        halves = _halves(values, owners)
        for (figure, share), between in zip(FIGURES.items(), halves, strict=True):
            found = _quantile(mine[field][0], share)
            aim = _quantile(values, share)
            if aim:
                verdict = _verdict(found / aim, between)
                yield Distance(
                    field=field,
                    figure=figure,
                    ours=found,
                    real=aim,
                    ratio=found / aim,
                    halves=between,
                    verdict=verdict,
                )


_Values: TypeAlias = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]


def _values(trace: Trace) -> dict[str, _Values]:
    """Return each field's values, and for each value the number of its family of sessions."""
    found: dict[str, tuple[array[float], array[int]]] = defaultdict(
        lambda: (array("d"), array("q"))
    )
    for number, family in enumerate(families(trace.sessions)):
        for session in family:
            for name, value in fields(trace.header, session):
                values, owners = found[name.partition("@")[0]]
                values.append(value)
                owners.append(number)
    return {
        name: (np.asarray(values), np.asarray(owners)) for name, (values, owners) in found.items()
    }


def _halves(
    values: npt.NDArray[np.float64], owners: npt.NDArray[np.int64]
) -> list[tuple[float, float]]:
    rng = np.random.default_rng(7)
    ratios = []
    for _ in range(_SPLITS):
        chosen = (rng.permutation(owners[-1] + 1) % 2 == 0)[owners]
        if chosen.any() and not chosen.all():
            one = values[chosen]
            other = values[~chosen]
            ratios.append(
                [
                    _quantile(one, share) / max(_quantile(other, share), 1e-9)
                    for share in FIGURES.values()
                ]
            )
    if not ratios:  # a single session has no halves
        return [(1.0, 1.0)] * len(FIGURES)
    low, high = np.quantile(np.asarray(ratios), _WITHIN, axis=0)
    return [(float(least), float(most)) for least, most in zip(low, high, strict=True)]


def _quantile(values: npt.NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share, method="inverted_cdf"))


def _verdict(ratio: float, halves: tuple[float, float]) -> Verdict:
    if LOW <= ratio <= HIGH:
        return "alike"
    if halves[0] <= ratio <= halves[1]:
        return "as its halves"
    return "more" if ratio > 1 else "less"
