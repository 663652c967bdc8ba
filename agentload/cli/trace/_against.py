"""Show a trace beside production."""

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentload.cli._table import table
from agentload.cli.trace._metrics import fetched
from agentload.errors import TraceError, UsageError
from agentload.importers.parts import metrics
from agentload.importers.parts.likeness import Likeness, likeness
from agentload.report.format import number
from agentload.tracefile.overview import SHARES, Overview

_SHOWN = (0.5, 0.9, 0.99)


def beside(found: Overview, source: str) -> tuple[Likeness, ...]:
    """Compare a trace with the metrics that `prometheus=URL|FILE` names."""
    kind, _, place = source.partition("=")
    if kind != "prometheus" or not place:
        raise UsageError(
            f"--against takes prometheus=URL or prometheus=FILE, got '{source}'", hint="--against prometheus=http://HOST:8000/metrics"
        )
    with tempfile.TemporaryDirectory(prefix="agentload-") as folder:
        path = fetched(place, Path(folder) / "metrics")
        try:
            told = metrics.read(path.read_text(encoding="utf-8", errors="replace"))
        except OSError as error:
            raise TraceError(f"{path}: {error.strerror}", hint="curl SERVER/metrics > FILE") from error
        except ValueError as error:
            raise TraceError(f"{place}: no metrics text", hint="curl SERVER/metrics > FILE") from error
    fields = {"prompt": found.fields["context"], "output": found.fields["output"]}
    quantiles = {name: {share: each.quantiles[SHARES.index(share)] for share in _SHOWN} for name, each in fields.items()}
    rows = tuple(likeness(quantiles, {name: each.mean for name, each in fields.items()}, found.reuse.share, told))
    if not rows:
        raise TraceError(
            f"{place}: no request has ended yet, or it is no vLLM or SGLang", hint="curl SERVER/metrics > FILE, after some load"
        )
    return rows


def against_lines(rows: Sequence[Likeness]) -> Iterator[str]:
    """Yield a table of what was compared, and how much of it is alike."""
    yield from table(
        ("beside production", "trace", "production", ""), [(row.what, _said(row, row.trace), _range(row), row.verdict) for row in rows]
    )
    alike = sum(row.verdict == "alike" for row in rows)
    yield f"{alike} of {len(rows)} alike; time to first token, batch size and KV usage are compared by a replay"


def _range(row: Likeness) -> str:
    if row.low == row.high:
        return _said(row, row.low)
    return f"over {_said(row, row.low)}" if row.high == float("inf") else f"{_said(row, row.low)}–{_said(row, row.high)}"


def _said(row: Likeness, value: float) -> str:
    return f"{value:.0%}" if "share" in row.what else number(round(value))
