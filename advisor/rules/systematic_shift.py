"""Every bucket falls a little: no bucket proves it, all of them together do. Calibrate the scales, then test again.

An unadjusted two-sided sign test over buckets, so a screening verdict: six of six down have p = 0.031 (Kimi-K2.5 on H200, published).
"""

from __future__ import annotations

from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.sources import BLOG
from advisor.statistics.signs import Signs, sign_test
from advisor.steps import Calibrate
from advisor.verdict import Finding

NEEDS = frozenset({"buckets"})

SCALES = {"default": "scales of 1.0", None: "scales of unknown origin"}
SCREENING_P = 0.05


def _told(signs: Signs) -> str:
    still = f", {signs.still} did not move" if signs.still else ""
    return f"{signs.down} of {signs.down + signs.still} buckets fell, none rose{still} (sign test p {signs.p:.3f}, screening)"


def check(case: Case) -> tuple[Finding, ...]:
    """Return one finding an arm with scales that were not calibrated and all buckets that moved down."""
    out = []
    for arm in case.evidence.challengers:
        buckets = [each for each in case.buckets if each.arm == arm.name]
        signs = sign_test([each.difference.value for each in buckets])
        if not is_quantised(arm) or arm.scales in ("calibrated", "dynamic") or not signs.all_down or signs.p >= SCREENING_P:
            continue
        worst = min(each.difference.value for each in buckets)
        out.append(
            Finding(
                kind="opposes",
                arm=arm.name,
                message=(
                    f"{_told(signs)}, the largest fall {-100 * worst:.1f} pp, with {SCALES[arm.scales]}: "
                    "that is what uncalibrated scales look like."
                ),
                flips="calibrated scales under which the signs are mixed",
                next_step=Calibrate(),
                source=f"{BLOG}; llm-compressor ab1ba3e, examples/quantization_kv_cache",
                leg="safe",
                asks_for="calibrate",
                screening=True,
            )
        )
    return tuple(out)
