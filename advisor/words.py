"""Say an estimate in words, the same way everywhere."""

from collections.abc import Callable, Sequence
from itertools import pairwise

from advisor.estimate import Estimate
from advisor.policy import ServiceLimits

K = 1024
"""Tokens that `k` means wherever lengths and pools are printed or typed: 8k is 8,192."""


SOON_IN_HOURS = 120
"""Minutes from which a time is said in hours."""


def percent(value: float) -> str:
    """Return a share as signed percent."""
    return f"{with_sign(100 * value)}%"


def margin(share: float) -> str:
    """Return a threshold as text, as it is typed: 3%, 2.5%."""
    return f"{100 * share:.3g}%"


def with_sign(value: float) -> str:
    """Return a number to one decimal with its sign, which a zero has not."""
    return f"{value:+.1f}" if round(value, 1) else "0.0"


def _end(value: float) -> str:
    """Return an end of an interval: one that is not zero is not printed as zero."""
    is_hidden = not round(value, 1) and abs(value) >= 1e-4
    return f"{value:+.1g}" if is_hidden else with_sign(value)


def interval(low: str | None, high: str | None) -> str:
    """Return an interval as text from the text of its ends; a missing end is said in words."""
    if low is not None and high is not None:
        return f"[{low}, {high}]"
    if low is not None:
        return f"(at least {low})"
    return "(no bound)" if high is None else f"(at most {high})"


def _spread(estimate: Estimate, say: Callable[[float], str]) -> str:
    low = None if estimate.low is None else say(estimate.low)
    high = None if estimate.high is None else say(estimate.high)
    return interval(low, high)


def change(estimate: Estimate) -> str:
    """Return a relative change with its interval as text; a bound is "at least" so large."""
    if estimate.is_bound:
        direction = "less" if estimate.low is None else "more"
        return f"at least {abs(100 * estimate.value):.1f}% {direction}"
    ends = _spread(estimate, lambda end: f"{_end(100 * end)}%")
    return f"{percent(estimate.value)} {ends}"


def moves(estimate: Estimate) -> str:
    """Return what something does by a relative change: a bound is how far it falls or rises."""
    if not estimate.is_bound:
        return f"changes by {change(estimate)}"
    verb = "falls" if estimate.low is None else "rises"
    return f"{verb} by {abs(100 * estimate.value):.1f}% or more"


VAGUE = 0.5  # an interval of a difference of shares that is wider, and holds zero, shows nothing
TOO_FEW = "(too few questions for an interval)"


def is_vague(difference: Estimate) -> bool:
    """Say whether too few questions were asked for an interval that is worth printing."""
    low, high = difference.low, difference.high
    return low is not None and high is not None and low < 0 < high and high - low > VAGUE


def points(difference: Estimate) -> str:
    """Return an accuracy difference in points of 100 with its interval."""
    if is_vague(difference):
        return f"{with_sign(100 * difference.value)} pp {TOO_FEW}"
    ends = _spread(difference, lambda end: _end(100 * end))
    return f"{with_sign(100 * difference.value)} pp {ends}"


def latency(estimate: Estimate) -> str:
    """Return a time with its interval, in ms, in seconds from 1 s on."""
    if estimate.value < 1e3:
        return f"{estimate.value:.0f} ms {_spread(estimate, '{:.0f}'.format)}"
    return f"{_seconds(estimate.value)} s {_spread(estimate, _seconds)}"


def _seconds(value: float) -> str:
    return f"{value / 1e3:.4g}"


def tokens(count: float) -> str:
    """Return a length: exact below ten thousand, in k (1,024 tokens) above."""
    return f"{count:,.0f}" if count < 10_000 else f"{count / K:,.0f}k"


def length(context_tokens: float) -> str:
    """Return a context length as people name it: 8k, 128k."""
    return f"{context_tokens:,.0f}" if context_tokens < K else f"{context_tokens / K:.0f}k"


def lengths(tokens: Sequence[int]) -> str:
    """Return lengths as one text: `4k..128k` where they double from the first to the last."""
    names = [f"{each // K}k" if each % K == 0 else str(each) for each in tokens]
    is_doubling = all(after == min(2 * before, tokens[-1]) for before, after in pairwise(tokens))
    if is_doubling and len(names) > 1:
        return f"{names[0]}..{names[-1]}"
    return ",".join(names)


def bucket(task: str, context_tokens: float) -> str:
    """Return the name of one accuracy bucket."""
    return f"{task} at {length(context_tokens)}"


def quantity(count: float, noun: str) -> str:
    """Return a number with its noun: 1 minute, 2 minutes."""
    text = f"{count:,.0f}"
    plural = "" if text == "1" else "s"
    return f"{text} {noun}{plural}"


def whole(estimate: Estimate, noun: str = "") -> str:
    """Return a count of *noun* with its interval, or alone where the count is certain."""
    said = quantity(estimate.value, noun) if noun else f"{estimate.value:,.0f}"
    ends = (estimate.low, estimate.high)
    if ends == (estimate.value, estimate.value):
        return said
    return f"{said} {_spread(estimate, '{:,.0f}'.format)}"


def ms(value: float) -> str:
    """Return a time in milliseconds as text, in seconds from 1 s on."""
    return f"{value / 1e3:.3g} s" if value >= 1e3 else f"{value:.3g} ms"


def limit(value: float) -> str:
    """Return a limit of a service level as text: 60 s, 3.5 s, 50 ms."""
    return f"{value / 1e3:g} s" if value >= 1e3 else f"{value:g} ms"


def limits(slo: ServiceLimits) -> str:
    """Return the limits of a service level, as they are typed."""
    named = (("ttft", slo.ttft_ms), ("tpot", slo.tpot_ms), ("turn", slo.turn_ms))
    return ",".join(
        f"{name}={limit(most).replace(' ', '')}" for name, most in named if most is not None
    )


def beyond(factor: float) -> str:
    """Return the words before a limit that say by how much it is exceeded."""
    if factor >= 2:
        return f"{factor:.2g} times the limit of"
    return f"{100 * (factor - 1):.2g}% above the limit of"


def times(count: int) -> str:
    """Return how often something happened: once, 3 times."""
    return "once" if count == 1 else f"{count} times"


def part_of(share: float) -> str:
    """Return a share as `95% of`, or as `55 times` where it is more than the whole."""
    if share <= 1:
        return f"{share:.0%} of"
    return f"{share:,.0f} times" if share >= 10 else f"{share:,.1f} times"


def cost(minutes: float | None, usd: float | None) -> str:
    """Return a time, and its price where known, as the end of a list; empty without a time."""
    if not minutes:
        return ""
    time = f"{minutes:,.0f} min"
    if minutes >= SOON_IN_HOURS:
        hours = minutes / 60
        time = f"{hours:,.0f} h" if hours >= 10 else f"{hours:.2g} h"
    return f", {time}" if usd is None else f", {time} and {money(usd)}"


def money(usd: float) -> str:
    """Return an amount: whole dollars, and cents below a hundred, so that sums agree."""
    return f"{usd:,.0f} USD" if usd >= 100 else f"{usd:.2f} USD"


def scope(workload: str | None) -> str:
    """Return the workload's name, or "the mix" where it is None."""
    return "the mix" if workload is None else workload
