"""Token latency against context is not a straight line: read the points, not the slope."""

from __future__ import annotations

from advisor.case import Case
from advisor.verdict import Finding

NEEDS = frozenset({"itl"})


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm whose two fits disagree or whose residuals bend."""
    return tuple(
        Finding(
            kind="informs",
            arm=line.arm,
            message=(
                f"{line.arm}, batch {line.users}: least squares gives {line.slope_ms_per_token.value:.3g} ms/token, Theil-Sen "
                f"{line.theil_sen_slope.value:.3g}"
                + ("" if line.lack_of_fit_p is None else f", lack of fit p {line.lack_of_fit_p:.3f}")
                + ": kernels switch with length, so do not extrapolate."
            ),
            estimates=(line.slope_ms_per_token, line.theil_sen_slope),
            next_command=case.context_sweep(),
            leg="validity",
        )
        for line in case.itl
        if not line.straight
    )
