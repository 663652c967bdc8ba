"""Compare the run with production, by the metrics of a server there.

Lengths, cached share, batch, first token, KV pool.
"""

import math
import shlex
from collections.abc import Sequence
from typing import Final

import numpy as np

from advisor.evidence import Calls, Floats
from agentload.exposition.likeness import Figures, Level, Likeness, MeanAndQuantiles, Unit, likeness
from agentload.report import format as say
from agentload.report.lookup import first
from agentload.report.parts import Cell, Check, Group, Tone, assurance, doubt, group, table
from agentload.report.sections.view import View


def sides(row: Likeness) -> tuple[str, str]:
    """Return our value and production's, which is known only to a histogram bucket."""
    return _value(row.ours, row.unit), _between(row)


def _between(row: Likeness) -> str:
    if row.low == row.high:
        return _value(row.low, row.unit)
    if math.isinf(row.high):
        return f"over {_value(row.low, row.unit)}"
    low = _value(row.low, row.unit)
    high = _value(row.high, row.unit)
    if not row.low:
        return f"up to {high}"
    return f"{low} to {high}"


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
_TONES: Final[dict[str, Tone]] = {"alike": "good", "more": "bad", "less": "bad"}


def comparison(view: View) -> tuple[Likeness, ...]:
    """Compare what the reference served with production; the reference is in use today.

    Empty without metrics from there.
    """
    told = view.facts.production
    if told is None:
        return ()
    return tuple(likeness(_figures(view), told))


def _figures(view: View) -> Figures:
    reference = view.reference
    calls = view.calls(reference)
    line = first(view.facts.timelines, arm=reference)
    running, usage = [], []
    if line is not None:
        busy = [at for at, requests in enumerate(line.running) if requests > 0]
        running = [line.running[at] for at in busy]
        usage = [line.kv_usage[at] for at in busy]
    prompts = _column(calls, "prompt_tokens")
    computed = _column(calls, "computed_tokens")
    known = np.isfinite(prompts) & np.isfinite(computed)
    cached = None
    if known.any():
        cached = 1.0 - float(computed[known].sum() / prompts[known].sum())
    return Figures(
        prompt=_spread(prompts),
        output=_spread(_column(calls, "output_tokens")),
        ttft_s=_spread(_column(calls, "ttft_ms"), 1e-3),
        cached=cached,
        running=_level(running),
        kv_usage=_level(usage),
    )


def _column(calls: Sequence[Calls], name: str) -> Floats:
    """Return a column of the calls that ended well; NaN where it is not known."""
    found = [np.empty(0)]
    for each in calls:
        values = getattr(each, name)
        if values is None:
            values = np.full(each.ok.size, np.nan)
        found.append(values[each.ok])
    return np.concatenate(found)


def _spread(values: Floats, factor: float = 1.0) -> MeanAndQuantiles | None:
    known = values[np.isfinite(values)] * factor
    if not known.size:
        return None
    quantiles = {share: float(np.quantile(known, share)) for share in _SHOWN}
    return MeanAndQuantiles(mean=float(known.mean()), quantiles=quantiles)


def _level(values: Sequence[float]) -> Level | None:
    if not values:
        return None
    low, middle, high = np.quantile(values, _MOSTLY).tolist()
    return Level(low=low, middle=middle, high=high)


def representative(view: View, rows: Sequence[Likeness]) -> Check:
    """Say whether the load was like production's, as far as it was compared."""
    made = view.facts.made
    origin = f"{made.origin}; " if made.origin else ""
    if not rows:
        database = shlex.quote(made.database or "agentload.duckdb")
        command = f"agentload report {database} --run {made.run} --against prometheus="
        return doubt(
            f"representativeness unknown: {origin}compare with production by {command} "
            "and your server's URL"
        )
    unlike = [row for row in rows if row.verdict != "alike"]
    if not unlike:
        return assurance(f"{origin}all {len(rows)} figures of the load are like production's")
    sides = []
    for side in ("more", "less"):
        figures = [row.what for row in unlike if row.verdict == side]
        if figures:
            sides.append(f"{side} {_figure_names(figures)}")
    told = "; ".join(sides)
    share = f"{len(unlike)} of {len(rows)}"
    text = f"{share} figures of the load differ from production's: {told}"
    return Check(state="bad", text=text)


def _figure_names(figures: Sequence[str]) -> str:
    """Name each figure once, with its quantiles in brackets."""
    quantiles: dict[str, list[str]] = {}
    for figure in figures:
        stem, _, last = figure.rpartition(" ")
        if last == "mean" or last[1:].isdigit():
            quantiles.setdefault(stem, []).append(last)
        else:
            quantiles.setdefault(figure, [])
    texts = []
    for name, shown in quantiles.items():
        texts.append(f"{name} ({', '.join(shown)})" if shown else name)
    return ", ".join(texts)


def production(view: View, rows: Sequence[Likeness]) -> Group | None:
    """Compare the run's load with production's, figure by figure."""
    note = (
        "Alike is within a quarter of production's value, or of the histogram bucket that "
        "holds the quantile; ten points for the cached "
        "share. Requests at once and KV pool are of the moment at which its metrics were "
        "read, ours of all samples under load."
    )
    columns = ("figure", view.against, "production", "the run has")
    cells = []
    for row in rows:
        verdict = Cell(text=row.verdict, tone=_TONES[row.verdict])
        cells.append((row.what, *sides(row), verdict))
    laid = table("The load next to production's", columns, cells, note)
    return group("Production", tables=(laid,))
