"""What a page template needs to place a chart: the drawing, its legend, and an arm's mark."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from markupsafe import Markup

from agentload.report.charts.draw import inline
from agentload.report.charts.plot import marker
from agentload.report.charts.spec import Chart, legend


def _drawn(chart: Chart) -> Markup:
    return Markup(inline(chart))  # noqa: S704  # the drawing escapes every word it places


def _swatch(slot: int) -> Markup:
    mark = marker((6.0, 6.0), slot, "mark")
    return Markup(f'<svg class="series arm-{slot}" viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">{mark}</svg>')  # noqa: S704


FILTERS: Final[dict[str, Callable[..., Any]]] = {"drawn": _drawn, "legend": legend, "swatch": _swatch}
