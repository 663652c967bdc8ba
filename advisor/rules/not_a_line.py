"""Token latency against context is not a straight line: read the points, not the slope."""

from collections.abc import Iterator
from typing import Final

from advisor.case import Case
from advisor.statistics.line import BENT
from advisor.verdict import Finding, ItlLine

NEEDS = frozenset({"itl"})

NS_PER_MS: Final = 1e6


def _why(line: ItlLine) -> str:
    if line.lack_of_fit_p is not None and line.lack_of_fit_p < BENT:
        return "kernels switch with length, so do not extrapolate"
    return "a few calls decide the slope, so read the points; more pairs settle it"


def check(case: Case) -> Iterator[Finding]:
    """Yield one finding an arm whose two fits disagree or whose residuals bend."""
    for line in case.itl:
        if line.straight:
            continue
        bent = "" if line.lack_of_fit_p is None else f", lack of fit p {line.lack_of_fit_p:.3f}"
        yield Finding(
            kind="informs",
            arm=line.arm,
            message=(
                f"The line through the times per output token of {line.arm} at batch {line.users} "
                f"is unsafe: {_why(line)}. Its slope is "
                f"{NS_PER_MS * line.slope_ms_per_token.value:.3g} ns per token by least squares, "
                f"{NS_PER_MS * line.theil_sen_slope.value:.3g} ns by Theil-Sen{bent}."
            ),
            estimates=(line.slope_ms_per_token, line.theil_sen_slope),
            next_step=case.context_sweep(),
            leg="validity",
        )
