"""How the run compares with production, by what the metrics of a
server there tell: lengths, cached share, batch, first token, KV pool.
"""

import math
import shlex
from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.evidence import Calls, Floats
from agentload.exposition.likeness import Figures, Level, Likeness, Spread, Unit, likeness
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Cell, Check, Group, Tone, group, table
from agentload.report.sections.view import View


def shown(row: Likeness) -> tuple[str, str]:
    """Return our value and production's, which is known to a bucket."""
    return _value(row.ours, row.unit), _between(row)


def _between(row: Likeness) -> str:
    if row.low == row.high:
        return _value(row.low, row.unit)
    if math.isinf(row.high):
        return f"over {_value(row.low, row.unit)}"
    low, high = _value(row.low, row.unit), _value(row.high, row.unit)
    return f"up to {high}" if not row.low else f"{low} to {high}"


def _value(value: float, unit: Unit) -> str:
    match unit:
        case "share":
            return say.percent(value)
        case "seconds":
            return say.duration(1_000 * value)
        case "tokens":
            return say.number(round(value))
        case "requests":
            return say.significant(value, 2)


_SHOWN: Final = (0.5, 0.9, 0.99)
_MOSTLY: Final = (0.1, 0.5, 0.9)
_OTHER: Final = ("more", "less")
_TONES: Final[dict[str, Tone]] = {"alike": "good", "more": "bad", "less": "bad"}


def compared(view: View) -> tuple[Likeness, ...]:
    """Compare what the reference served, which is the arm in use
    today, with production; empty without metrics from there.
    """
    told = view.facts.production
    return () if told is None else tuple(likeness(_figures(view), told))


def _figures(view: View) -> Figures:
    reference = view.evidence.reference
    calls = view.calls(reference)
    line = next((each for each in view.facts.timelines if each.arm == reference), None)
    busy = [] if line is None else [at for at, running in enumerate(line.running) if running > 0]
    prompts, computed = _joined(calls, "prompt_tokens"), _joined(calls, "computed_tokens")
    known = np.isfinite(prompts) & np.isfinite(computed)
    return Figures(
        prompt=_spread(prompts),
        output=_spread(_joined(calls, "output_tokens")),
        ttft_s=_spread(_joined(calls, "ttft_ms"), 1e-3),
        cached=1.0 - float(computed[known].sum() / prompts[known].sum()) if known.any() else None,
        running=None if line is None else _level([line.running[at] for at in busy]),
        kv_usage=None if line is None else _level([line.kv_usage[at] for at in busy]),
    )


def _joined(calls: Sequence[Calls], name: str) -> Floats:
    """Return a column of the calls that ended well; NaN where it is not known."""
    columns = ((getattr(each, name), each.ok) for each in calls)
    found = [
        np.full(int(ok.sum()), np.nan) if values is None else values[ok] for values, ok in columns
    ]
    return np.concatenate(found) if found else np.empty(0)


def _spread(values: Floats, factor: float = 1.0) -> Spread | None:
    known = values[np.isfinite(values)] * factor
    if not known.size:
        return None
    return Spread(
        mean=float(known.mean()),
        quantiles={share: float(np.quantile(known, share)) for share in _SHOWN},
    )


def _level(values: Sequence[float]) -> Level | None:
    if not values:
        return None
    low, middle, high = (float(np.quantile(values, share)) for share in _MOSTLY)
    return Level(low=low, middle=middle, high=high)


def representative(view: View, rows: Sequence[Likeness]) -> Check:
    """Say whether the load was production's, by what was compared."""
    made = f"{view.facts.made.origin}; " if view.facts.made.origin else ""
    if not rows:
        command = (
            f"agentload report {shlex.quote(view.facts.made.database or 'agentload.duckdb')} "
            f"--run {view.facts.made.run}"
        )
        told = (
            f"representativeness unknown: {made}compare with production by {command} --against "
            "prometheus= and your server's URL"
        )
        return Check(state="unknown", text=told)
    other = [
        f"{verdict} {found}"
        for verdict in _OTHER
        if (found := _named([row.what for row in rows if row.verdict == verdict]))
    ]
    if not other:
        return Check(
            state="ok", text=f"{made}all {len(rows)} figures of the load are like production's"
        )
    differ = sum(row.verdict != "alike" for row in rows)
    return Check(
        state="bad",
        text=f"{differ} of {len(rows)} figures of the load differ from production's: "
        f"{'; '.join(other)}",
        caps="medium",
    )


def _named(figures: Sequence[str]) -> str:
    """Name figures once for all their quantiles."""
    found: dict[str, list[str]] = {}
    for figure in figures:
        stem, _, last = figure.rpartition(" ")
        name, which = (stem, [last]) if last == "mean" or last[1:].isdigit() else (figure, [])
        found.setdefault(name, []).extend(which)
    return ", ".join(
        f"{name} ({', '.join(which)})" if which else name for name, which in found.items()
    )


def production(view: View, rows: Sequence[Likeness]) -> Group | None:
    """Compare the run's load with production's, figure by figure."""
    reference = labels.arm(view.evidence.reference)
    note = (
        "Alike is within a quarter of production's value, or of the histogram bucket that "
        "holds the quantile; ten points for the cached "
        "share. Requests at once and KV pool are of the moment at which its metrics were "
        "read, ours of all samples under load."
    )
    cells = (
        (row.what, *shown(row), Cell(text=row.verdict, tone=_TONES[row.verdict])) for row in rows
    )
    laid = table(
        "The load next to production's",
        ("figure", reference, "production", "the run has"),
        cells,
        note,
    )
    return group("Production", tables=(laid,))
