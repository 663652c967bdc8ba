"""Place data in templates; every value is escaped."""

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from agentload import __version__
from agentload.endpoints.endpoint import without_user
from agentload.report import format as say
from agentload.report import labels
from agentload.report.charts.svg import across, element, path
from agentload.report.formats import html
from agentload.ui.pages.calls import Bar
from agentload.ui.pages.jobs import standing
from agentload.ui.progress import chart
from agentload.watch.history import RunChange
from agentload.watch.job import in_words
from agentload.watch.schedule import firings

SECOND: Final = 1_000_000_000
DAY: Final = 86_400 * SECOND
_AGES: Final = (
    (120, 1, "s"),
    (7_200, 60, "min"),
    (172_800, 3_600, "h"),
    (float("inf"), 86_400, "days"),
)
_SPARK: Final = (96.0, 22.0)
_WATERFALL: Final = (320.0, 16.0)


def render(template: str, context: Mapping[str, object]) -> str:
    """Fill in a template."""
    return environment().get_template(f"{template}.html.j2").render(**context)


@cache
def environment() -> Environment:
    """Return the template environment of all pages."""
    made = html.environment(
        ChoiceLoader([PackageLoader("agentload.ui"), PackageLoader("agentload.report")])
    )
    made.finalize = _shown
    made.filters |= {
        "piece": lambda words: quote(words, safe=""),
        "from_one": lambda place: place + 1,
        "when": say.when,
        "day": _day,
        "ago": ago,
        "due": lambda schedule, now_ns: next(firings(schedule, now_ns)),
        "number": say.number,
        "counted": say.plural,
        "percent": lambda share: html.tie(say.percent(share)),
        "duration": lambda ms: html.tie(say.duration(ms)),
        "ms": lambda ms, decimals=0: say.ABSENT if ms is None else say.number(ms, decimals),
        "s": lambda ms, decimals=2: say.ABSENT if ms is None else say.number(ms / 1000, decimals),
        "seconds": lambda count, decimals: (
            say.ABSENT if count is None else say.number(count, decimals)
        ),
        "span": lambda seconds: html.tie(say.duration(1000 * seconds)),
        "minutes": lambda count: html.tie(say.minutes(count)),
        "tokens": say.tokens,
        "change": say.relative,
        "change_text": _change_text,
        "worded": in_words,
        "standing": standing,
        "typeset": say.typeset,
        "arm": labels.arm,
        "named": labels.with_names,
        "opening": lambda words: say.typeset(say.capital(words)),
        "spark": _spark,
        "waterfall": _waterfall,
        "chart": chart,
    }
    made.globals["version"] = __version__
    made.globals["assets"] = {name: _address(name, text) for name, (text, _) in assets().items()}
    return made


def _address(name: str, text: str) -> str:
    """Return where a file is loaded from: another address for another content."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"/assets/{name}?v={digest[:12]}"


@cache
def assets() -> Mapping[str, tuple[str, str]]:
    """Return the files that pages load, each with its text and type."""
    return {
        "style.css": (html.style() + _text("ui.css"), "text/css"),
        "charts.js": (html.script(), "text/javascript"),
        "live.js": (_text("live.js"), "text/javascript"),
    }


def ago(at_ns: int | None, now_ns: int) -> str:
    """Format how long ago an instant was, or how far ahead it is."""
    if at_ns is None:
        return say.ABSENT
    seconds = (now_ns - at_ns) / SECOND
    size, unit = next((size, unit) for limit, size, unit in _AGES if abs(seconds) < limit)
    span = f"{abs(seconds) / size:.0f} {unit}"
    if seconds >= 0:
        return f"{span} ago"
    return f"in {span}"


def _day(at_ns: int | None, later: int = 0) -> str:
    """Format the day, in UTC, that is a number of days *later* than an instant."""
    if at_ns is None:
        return say.ABSENT
    return say.when(at_ns + later * DAY)[:10]


def _shown(value: object) -> object:
    """Mask passwords in URLs: a server's error may repeat one."""
    if isinstance(value, str) and not isinstance(value, Markup):
        value = without_user(value)
    return html.show(value)


def _change_text(change: RunChange) -> str:
    """Format a change from the reference, with the interval of the run itself."""
    middle, *ends = change.relative()
    low, high = (say.with_sign(100 * end, 1) for end in ends)
    pairs = say.plural(change.pairs, "pair")
    return f"{in_words(change.series)} {say.relative(middle)} [{low}, {high}], {pairs}"


def _spark(values: Sequence[float]) -> Markup:
    """Draw a series as a sparkline around zero."""
    wide, high = _SPARK
    reach = max(0.03, *map(abs, values))
    middle = high / 2
    last = max(1, len(values) - 1)
    points = []
    for at, value in enumerate(values):
        x = 3 + (wide - 6) * at / last
        points.append((x, middle - value / reach * (middle - 3)))
    end_x, end_y = points[-1]
    drawn = element(
        "svg",
        across("axis", 0.0, wide, middle),
        element("path", class_="line", d=path(points)),
        element("circle", class_="end", cx=end_x, cy=end_y, r=2.5),
        class_="spark",
        viewBox=f"0 0 {wide:g} {high:g}",
        width=wide,
        height=high,
        aria_hidden="true",
    )
    return Markup(drawn)  # noqa: S704  # numbers alone


def _waterfall(bar: Bar) -> Markup:
    """Draw a call within its session."""
    wide, high = _WATERFALL
    at = 1 + bar.start * (wide - 4)
    drawn = []
    for kind, share in (("held", bar.held), ("first", bar.first), ("wrote", bar.wrote)):
        long = share * (wide - 4)
        shown = max(1.5, long) if share else 0.0
        drawn.append(element("rect", class_=kind, x=at, y=2.0, width=shown, height=high - 4))
        at += long
    said = f"starts {say.percent(bar.start)} into the session"
    label = element("title", said)
    return Markup(  # noqa: S704  # numbers alone
        element(
            "svg",
            label,
            *drawn,
            class_="waterfall",
            viewBox=f"0 0 {wide:g} {high:g}",
            width=wide,
            height=high,
            role="img",
        )
    )


def _text(name: str) -> str:
    return (resources.files("agentload.ui") / "templates" / name).read_text(encoding="utf-8")


def context_of(**known: Any) -> dict[str, Any]:  # a template's values
    """Return the values of every page and those of this one."""
    return {"title": "agentload", "live_url": None, "stale_ns": None, "again_s": None, **known}
