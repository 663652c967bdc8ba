"""The fits as tables: token latency over KV tokens, time to first token over computed tokens, and where arms cross."""

from __future__ import annotations

from advisor.verdict import BreakEven, ItlLine, TtftCurve
from agentload.report import format as say
from agentload.report import labels
from agentload.report.parts import Cell, Table
from agentload.report.sections.view import View

US, NS = 1e3, 1e6
"""In a millisecond."""


def break_evens(view: View) -> Table:
    """List from where on each arm is ahead."""
    return Table(
        title="Break-even",
        columns=("arm", "in KV tokens of the batch", "in tokens of one request", "published, for comparison"),
        rows=tuple(_break_even_row(each) for each in view.decision.break_even),
        note="The length at which the lines cross; inside the interval, a Fieller set, the arms cannot be told apart.",
    )


def _break_even_row(each: BreakEven) -> tuple[Cell, ...]:
    own = (
        f"{say.token_range(each.own_tokens, each.own_low, each.own_high)} at batch {say.significant(each.users)}"
        if each.own_tokens is not None
        else say.ABSENT
    )
    texts = (labels.arm(each.arm), break_even(each), own, say.tokens(each.prior_tokens))
    return tuple(Cell(text=text) for text in texts)


def break_even(each: BreakEven) -> str:
    """Say a break-even set in words and figures."""
    match each.shape:
        case "always":
            return "ahead at every length"
        case "none":
            return "ahead nowhere"
        case "unclear":
            return "not settled: neither arm is shown to be ahead"
        case "bounded" | "half-line" if each.tokens is not None:
            return f"ahead {each.ahead} {say.token_range(each.tokens, each.low, each.high)}"
        case "bounded" | "half-line":
            shown = each.high if each.ahead == "above" else each.low
            return "not settled" if shown is None else f"ahead {each.ahead} {say.tokens(shown)}"


def lines(view: View) -> Table:
    """List the fitted lines of token latency."""
    return Table(
        title="Token latency as a line over KV tokens",
        columns=("arm", "batch", "slope, ns per token", "the same by Theil–Sen", "intercept, ms", "bandwidth, TB/s", "straight"),
        rows=tuple(_line_row(line) for line in view.decision.itl),
        note="Bandwidth is the KV bytes of a token over the slope; above the GPU's peak the measurement would be broken.",
    )


def _line_row(line: ItlLine) -> tuple[Cell, ...]:
    texts = (
        labels.arm(line.arm),
        str(line.users),
        say.spread(line.slope_ms_per_token, say.number, factor=NS),
        say.spread(line.theil_sen_slope, say.number, factor=NS),
        say.spread(line.intercept_ms, say.number),
        say.spread(line.bandwidth_tb_s, say.number),
        "yes" if line.straight else "no",
    )
    return tuple(Cell(text=text) for text in texts)


def curves(view: View) -> Table:
    """List the fitted curves of time to first token."""
    return Table(
        title="Time to first token as a curve over computed tokens",
        columns=("arm", "quadratic, ns per token²", "linear, µs per token", "constant, ms", "fitted over, tokens"),
        rows=tuple(_curve_row(curve) for curve in view.decision.ttft),
    )


def _curve_row(curve: TtftCurve) -> tuple[Cell, ...]:
    low, high = curve.range_tokens
    texts = (
        labels.arm(curve.arm),
        say.spread(curve.a, say.number, factor=NS),
        say.spread(curve.b, say.number, factor=US),
        say.spread(curve.c, say.number),
        f"{say.tokens(low)} to {say.tokens(high)}",
    )
    return tuple(Cell(text=text) for text in texts)
