"""Token latency against context is not a straight line: read the points, not the slope."""

from collections.abc import Iterator

from advisor.case import Case
from advisor.statistics.line import BENT
from advisor.verdict import Finding, ItlLine

NEEDS = frozenset({"itl"})


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
                f"{line.arm}, batch {line.users}: least squares gives "
                f"{line.slope_ms_per_token.value:.3g} ms/token, Theil-Sen "
                f"{line.theil_sen_slope.value:.3g}{bent}: {_why(line)}."
            ),
            estimates=(line.slope_ms_per_token, line.theil_sen_slope),
            next_step=case.context_sweep(),
            leg="validity",
        )
