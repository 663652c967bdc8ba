"""Every bucket falls a little: no bucket proves it, all of them together do.

Calibrate the scales, then test again.

A one-sided sign test over buckets, at the level of the look: a single one takes six of six (p =
0.016; Kimi-K2.5 on H200, published), one of a planned sequence eight. It asks for calibration
where scales are not known to be calibrated, and a loss of the margin is not ruled out.
"""

from advisor.case import Case
from advisor.dtypes import is_quantised
from advisor.evidence import Arm
from advisor.rules import BLOG
from advisor.statistics.accuracy import sign_test
from advisor.steps import Calibrate
from advisor.verdict import Finding

NEEDS = frozenset({"buckets"})

SCALES = {"default": "scales of 1.0", None: "scales of unknown origin"}


def check(case: Case, arm: Arm) -> Finding | None:
    """Return that all buckets of scales that were not calibrated moved down."""
    differences = [each.difference.value for each in case.buckets if each.arm == arm.name]
    signs, level = sign_test(differences), case.level_of_answers
    if any(each.arm == arm.name for each in (*case.broken, *case.suspects)):
        return None  # scales lose some everywhere
    if (
        not is_quantised(arm)
        or arm.scales in ("calibrated", "dynamic")
        or not signs.all_down
        or signs.p / 2 > level
    ):
        return None
    still = f", {signs.still} did not move" if signs.still else ""
    pooled = case.accuracy_of(arm.name, None)
    is_small = pooled is not None and pooled.p_not_worse <= level
    return Finding(
        kind="opposes",
        message=(
            f"{signs.down} of {len(differences)} buckets fell and none rose{still} (sign test "
            f"p {signs.p / 2:.3f}, screening); the largest fall is "
            f"{-100 * min(differences):.1f} pp. With {SCALES[arm.scales]}, that is what "
            "uncalibrated scales look like."
            f"{' Pooled, the loss is within the margin.' if is_small else ''}"
        ),
        flips="calibrated scales under which the signs are mixed",
        next_step=Calibrate(),
        source=f"{BLOG}; llm-compressor ab1ba3e, examples/quantization_kv_cache",
        leg="safe",
        asks_for=None if is_small else "calibrate",
        screening=True,
    )
