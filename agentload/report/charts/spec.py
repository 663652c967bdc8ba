"""Hold what a chart shows as data, and thin many values to few.

How it looks is decided by the drawing files.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from agentload.model.record import Record
from agentload.report.format import Quantity

Mark: TypeAlias = Literal["points", "line", "steps", "path"]
"""A path joins its points, in their order."""


class ChartAxis(Record):
    """One axis: what it counts, and from where to where (None: as far as the values go)."""

    label: str
    quantity: Quantity
    scale: Literal["linear", "log"] = "linear"
    low: float | None = None
    high: float | None = None
    whole: bool = False
    """Nothing lies between two numbers, such as those of runs."""


class Series(Record):
    """Values of one arm; `slot` fixes its colour and marker, equal in every chart.

    A slot of None belongs to no arm.
    """

    label: str
    slot: int | None
    mark: Mark
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    tips: tuple[str, ...] = ()
    """What to say at each value; empty: made from the axes."""
    lows: tuple[float, ...] = ()
    """Lower ends of the values' intervals, drawn as bars with `highs`; empty: none are drawn."""
    highs: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.xs)
        assert len(self.ys) == count, self.label
        assert len(self.tips) in (0, count), self.label
        assert len(self.lows) in (0, count), self.label
        assert len(self.lows) == len(self.highs), self.label

    @classmethod
    def of(
        cls, label: str, slot: int | None, mark: Mark, points: Iterable[tuple[float, float, str]]
    ) -> Self:
        """Return a series of points, each with what to say at it."""
        known = tuple(points)
        xs = tuple(float(x) for x, _, _ in known)
        ys = tuple(float(y) for _, y, _ in known)
        tips = tuple(tip for *_, tip in known)
        return cls(label=label, slot=slot, mark=mark, xs=xs, ys=ys, tips=tips)


class Band(Record):
    """A range across the plot, such as a break-even set; None is open."""

    axis: Literal["x", "y"]
    low: float | None
    high: float | None
    label: str = ""
    slot: int | None = None

    @property
    def ends(self) -> tuple[float, ...]:
        """Return the ends that are not open."""
        return tuple(end for end in (self.low, self.high) if end is not None)


class RuleLine(Record):
    """A line across the plot at one value."""

    axis: Literal["x", "y"]
    at: float
    label: str = ""


class Plot(Record):
    """Values over two axes."""

    name: str
    """File-name part, unique in a document."""
    title: str
    caption: str
    """What to see in it, in a sentence or two."""
    x: ChartAxis
    y: ChartAxis
    series: tuple[Series, ...]
    bands: tuple[Band, ...] = ()
    rules: tuple[RuleLine, ...] = ()


class Square(Record):
    """One field of a heat map.

    `value` is how dark it is (0 to 1), `slot` its colour, `text` is written in it, `tip` says more.
    """

    column: int
    row: int
    value: float
    text: str
    tip: str
    slot: int = 0


class HeatMap(Record):
    """Values over two ordered sets of labels, such as accuracy by depth and length."""

    name: str
    title: str
    caption: str
    x_label: str
    y_label: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    cells: tuple[Square, ...]


Look: TypeAlias = Literal[
    "interval", "noise", "block", "invalid", "wait", "queue", "prefill", "decode", "mark"
]
"""What a span is: it decides how the span is drawn."""


class LaneSpan(Record):
    """A stretch of a lane, or with `at` a value within it.

    `offset` places it between the lane's top (0) and bottom (1).
    """

    lane: int
    look: Look
    low: float
    high: float
    tip: str = ""
    at: float | None = None
    slot: int | None = None
    offset: float = 0.5


class LaneTrace(Record):
    """A value between 0 and 1 along a lane, such as how full a pool is; NaN breaks the line."""

    lane: int
    slot: int | None
    xs: tuple[float, ...]
    ys: tuple[float, ...]


class Lanes(Record):
    """Labelled lanes over one axis.

    Differences with their intervals, blocks of a run, phases of a call.
    """

    name: str
    title: str
    caption: str
    x: ChartAxis
    lanes: tuple[str, ...]
    spans: tuple[LaneSpan, ...]
    arms: tuple[tuple[str, int], ...] = ()
    """Label and slot of the arms that lanes share; empty where each lane is one arm's and says
    whose.
    """
    traces: tuple[LaneTrace, ...] = ()
    bands: tuple[Band, ...] = ()
    rules: tuple[RuleLine, ...] = ()
    height: float = 20.0
    """Of a lane, in pixels."""


Chart: TypeAlias = Plot | HeatMap | Lanes


def legend(chart: Chart) -> tuple[tuple[str, int], ...]:
    """List the (label, slot) of the arms in a chart, in order of slot.

    A heat map's arm is in its title.
    """
    match chart:
        case Plot():
            labels = {series.slot: series.label for series in reversed(chart.series)}
            slots = sorted(slot for slot in labels if slot is not None)
            return tuple((labels[slot], slot) for slot in slots)
        case Lanes():
            return chart.arms
        case HeatMap():
            return ()


def is_empty(chart: Chart) -> bool:
    """Say whether a chart would show nothing."""
    match chart:
        case Plot():
            return not any(series.xs for series in chart.series)
        case Lanes():
            return not (chart.spans or chart.traces)
        case HeatMap():
            return not chart.cells


MARKS = 150
"""As many marks an arm as a chart of 480 pixels can show apart."""

Value = TypeVar("Value")


def every(values: Sequence[Value], most: int = MARKS) -> tuple[Value, ...]:
    """Return at most *most* of the values, evenly spread, the first and the last among them."""
    if len(values) <= most:
        return tuple(values)
    places = np.linspace(0, len(values) - 1, most).round().astype(int)
    return tuple(values[place] for place in places)


def cloud(
    xs: npt.NDArray[np.float64], ys: npt.NDArray[np.float64]
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return points spread evenly over the order of *xs*.

    A row that lacks either value is left out.
    """
    known = np.flatnonzero(np.isfinite(xs) & np.isfinite(ys))
    order = known[np.lexsort((ys[known], xs[known]))]
    rows = list(every(order.tolist()))
    return tuple(xs[rows].tolist()), tuple(ys[rows].tolist())
