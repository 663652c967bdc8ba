"""Show a trace as one HTML file: charts and tables, no network, no script."""

from typing import Final

from jinja2 import PackageLoader
from markupsafe import Markup

from agentload.cli.trace._seen import LENGTHS, Seen, arm_rows, duration, length_rows
from agentload.report.charts.spec import ChartAxis, Mark, Plot, Series
from agentload.report.format import number
from agentload.report.formats import html
from agentload.tracefile.load import DECODE_TOKENS_PER_S, PREFILL_TOKENS_PER_S, LoadCurve
from agentload.tracefile.overview import BINS, SHARES, Overview

_LENGTHS: Final = ("context", "user", "tool", "output.reply", "output.step", "image")
"""Fields whose spread is drawn, where the trace has them."""


def page(seen: Seen) -> str:
    """Render the page."""
    found = seen.overview
    environment = html.environment(PackageLoader("agentload.cli.trace", "."))
    return environment.get_template("page.html.j2").render(
        seen=seen,
        facts=_facts(found),
        plots=[*_lengths(found), *_growth(found), *_arrivals(found), *_over_time(seen.load)],
        head=("", *LENGTHS),
        rows=length_rows(found),
        pools=[(number(tokens), f"{share:.1%}") for tokens, share in seen.load.hits.items()],
        arms=arm_rows(seen),
        style=Markup(html.style()),  # noqa: S704  # our own files
    )


def _facts(found: Overview) -> list[tuple[str, str]]:
    facts = [
        ("sessions", number(found.sessions)),
        ("spawned by others", number(found.spawned)),
        ("calls", number(found.turns)),
        ("prompt tokens", number(found.reuse.tokens)),
        ("starts within", duration(found.last_start_s)),
        ("reuse if nothing is forgotten", f"{found.reuse.share:.1%}"),
    ]
    if found.arrivals_cv is None:
        return facts
    return [*facts, ("CV of the gaps between starts", f"{found.arrivals_cv:.2f}")]


def _lengths(found: Overview) -> list[Plot]:
    shown = [name for name in _LENGTHS if name in found.fields]
    series = tuple(
        Series(
            label=name,
            slot=slot,
            mark="line",
            xs=tuple(max(1.0, value) for value in found.fields[name].quantiles),
            ys=SHARES,
        )
        for slot, name in enumerate(shown)
    )
    plot = Plot(
        name="lengths",
        title="How long prompts, messages, results and answers are",
        caption="Share of values below a length, from 10% to 99% of them.",
        x=ChartAxis(label="tokens", quantity="tokens", scale="log"),
        y=ChartAxis(label="share below", quantity="share", low=0.0, high=1.0),
        series=series,
    )
    return [plot] if series else []


def _growth(found: Overview) -> list[Plot]:
    if len(found.growth) < 2:
        return []
    xs = tuple(float(growth.call) for growth in found.growth)
    series = (
        Series(
            label="half of the sessions",
            slot=0,
            mark="line",
            xs=xs,
            ys=tuple(growth.q50 for growth in found.growth),
        ),
        Series(
            label="nine in ten",
            slot=1,
            mark="line",
            xs=xs,
            ys=tuple(growth.q90 for growth in found.growth),
        ),
    )
    return [
        Plot(
            name="growth",
            title="How contexts grow from call to call",
            caption="Context below which half, and nine in ten, of the sessions lie that reach a "
            "call.",
            x=ChartAxis(label="call of a session", quantity="count", scale="log"),
            y=ChartAxis(label="tokens", quantity="tokens", low=0.0),
            series=series,
        )
    ]


def _arrivals(found: Overview) -> list[Plot]:
    span_s = found.last_start_s / BINS
    plot = _steps(
        name="arrivals",
        title="When sessions start",
        caption="Sessions that start by the clock, in sixty equal spans.",
        unit="sessions",
        span_s=span_s,
        series=(("starts", found.arrivals),),
    )
    return [plot] if span_s > 0 else []


def _over_time(load: LoadCurve) -> list[Plot]:
    if not load.calls:
        return []
    speed = (
        f"every call runs at {PREFILL_TOKENS_PER_S:,.0f} prompt and {DECODE_TOKENS_PER_S:g} "
        "output tokens a second, without a queue"
    )
    return [
        _steps(
            name="running",
            title="Calls at once",
            caption=f"Largest number in each of sixty equal spans if {speed}.",
            unit="calls",
            span_s=load.span_s,
            series=(("calls", load.running),),
        ),
        _steps(
            name="held",
            title="KV tokens over time",
            caption="What running calls hold, and what all sessions under way would hold if "
            f"nothing were forgotten; {speed}.",
            unit="tokens",
            span_s=load.span_s,
            series=(
                ("running calls", load.running_tokens),
                ("sessions under way", load.live_tokens),
            ),
        ),
    ]


def _steps(
    *,
    name: str,
    title: str,
    caption: str,
    unit: str,
    span_s: float,
    series: tuple[tuple[str, tuple[int, ...]], ...],
) -> Plot:
    mark: Mark = "steps"
    drawn = (
        Series(
            label=label,
            slot=slot,
            mark=mark,
            xs=tuple(span_s * number for number in range(len(values))),
            ys=tuple(map(float, values)),
        )
        for slot, (label, values) in enumerate(series)
    )
    return Plot(
        name=name,
        title=title,
        caption=caption,
        x=ChartAxis(label="time in s", quantity="seconds"),
        y=ChartAxis(label=unit, quantity="tokens" if unit == "tokens" else "count", low=0.0),
        series=tuple(drawn),
    )
